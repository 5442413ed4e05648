"""How a request, an explanation and a wait look to people: text, HTML, a cell's output."""

import dataclasses
import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fastvideo import wire
from fastvideo.artifacts.types import ArtifactKind, ArtifactRecord, MediaInfo, Producer
from fastvideo.client.explanations import Explained
from fastvideo.client.generation import Generation, Media
from fastvideo.client.waiting import NotebookProgress, TerminalProgress, shows_waiting
from fastvideo.events.types import Event, EventMetadata, EventPayload
from fastvideo.explain.types import ExplainedTotals
from fastvideo.requests.events import RequestCompleted, RequestProgressed
from fastvideo.requests.types import (
    ErrorDetail,
    OutputSpec,
    RequestKind,
    RequestMetrics,
    RequestSpec,
    RequestState,
    RequestStatus,
    SamplingParams,
    TextPart,
    TextSegment,
)
from tests.plugins.notebook import notebook_shell

AT = datetime(2026, 1, 1, tzinfo=UTC)


def record(name: str, kind: ArtifactKind, content_type: str) -> ArtifactRecord:
    return ArtifactRecord(
        artifact_id=f"art_{kind.value}",
        kind=kind,
        name=name,
        content_type=content_type,
        size_bytes=1234,
        producer=Producer(),
        media=MediaInfo(width=48, height=48),
        created_at=AT,
        completed_at=AT,
    )


VIDEO = record("video.mp4", ArtifactKind.VIDEO, "video/mp4")
SHEET = record("sheet.png", ArtifactKind.IMAGE, "image/png")
STATE = RequestState(
    spec=RequestSpec(
        request_id="req_1",
        kind=RequestKind.GENERATION,
        model_id="moving-digits",
        inputs=(TextPart(role="prompt", text="a <b>red</b> three"),),
        sampling=SamplingParams(width=48, height=48, num_frames=9, fps=8, steps=4, seed=7),
        outputs=OutputSpec(video=True),
    ),
    status=RequestStatus.COMPLETED,
    artifacts=(VIDEO, SHEET),
    latents_digest="abc",
    metrics=RequestMetrics(total_seconds=1.5),
    accepted_at=AT,
)


def test_a_generation_is_its_state_with_the_names_that_are_asked_for_most() -> None:
    generation = Generation.of(STATE)
    assert (generation.request_id, generation.prompt) == ("req_1", "a <b>red</b> three")
    assert generation.ended
    assert generation.video == VIDEO
    assert generation.artifact("sheet.png") == SHEET
    assert generation.artifact("none") is None
    assert generation == STATE
    plain: object = STATE
    assert plain == generation
    assert generation != dataclasses.replace(STATE, latents_digest="other")
    assert wire.from_proto(RequestState, wire.to_proto(generation)) == STATE
    changed = dataclasses.replace(generation, progress=0.5)
    assert (type(changed), changed.media) == (Generation, ())


def test_its_text_says_what_was_made_and_how() -> None:
    lines = repr(Generation.of(STATE)).splitlines()
    assert lines[0] == "Generation req_1 completed in 1.50 s"
    assert "seed 7" in lines[1]
    assert lines[2] == "  video.mp4 (1.2 kB) art_video, sheet.png (1.2 kB) art_image"
    failed = dataclasses.replace(
        STATE,
        status=RequestStatus.FAILED,
        error=ErrorDetail(reason="NON_FINITE", message="step 3 is not a number"),
    )
    assert repr(Generation.of(failed)).splitlines()[2] == "  NON_FINITE: step 3 is not a number"


def test_its_html_has_the_media_and_no_markup_of_the_prompt() -> None:
    media = (Media(VIDEO, b"mp4"), Media(SHEET, b"png"))
    bundle = Generation.of(STATE, media)._repr_mimebundle_()
    assert bundle["text/plain"] == repr(Generation.of(STATE))
    html = bundle["text/html"]
    assert 'src="data:video/mp4;base64,bXA0"' in html
    assert 'src="data:image/png;base64,cG5n"' in html
    assert "<b>red" not in html
    assert "a &lt;b&gt;red&lt;/b&gt; three" in html


def test_what_is_too_large_or_gone_says_so_in_its_place() -> None:
    html = Generation.of(STATE, (Media(VIDEO, None, "34 MB, not shown <here>"),))._repr_html_()
    assert "<video" not in html
    assert "video.mp4: 34 MB, not shown &lt;here&gt;" in html


def test_the_own_words_stand_out_from_what_a_session_joined() -> None:
    part = TextPart(
        role="prompt",
        text="night. a three",
        segments=(
            TextSegment(role="context", source_id="psh_1", start=0, stop=5),
            TextSegment(role="own", start=7, stop=14),
        ),
    )
    spec = dataclasses.replace(STATE.spec, inputs=(part,))
    generation = Generation.of(dataclasses.replace(STATE, spec=spec))
    assert generation.prompt == "a three"
    html = generation._repr_html_()
    assert '<span style="opacity:.65" title="context psh_1">night</span>' in html
    assert '<span title="own ">a three</span>' in html


def test_an_explanation_reads_as_its_sentence_and_where_the_time_went() -> None:
    explained = Explained(
        request_id="req_1",
        status=RequestStatus.COMPLETED,
        accepted_at=AT,
        explained_at=AT,
        headline="completed after 2 s",
        totals=ExplainedTotals(device_busy_seconds=1.5, waited_by_cause={"batch": 0.5}),
    )
    assert repr(explained).splitlines() == [
        "completed after 2 s",
        "     1.500 s  computing",
        "     0.500 s  batch",
    ]
    assert "<td" in explained._repr_html_()


def events() -> Iterator[Event]:
    payloads: list[EventPayload] = [
        *(RequestProgressed(fraction=i / 100, node_id="denoise") for i in range(101)),
        RequestCompleted(metrics=RequestMetrics()),
    ]
    for version, payload in enumerate(payloads, start=1):
        yield Event(
            stream_version=version,
            type=type(payload).__name__,
            metadata=EventMetadata(occurred_at=AT),
            recorded_at=AT + timedelta(seconds=version),
            payload=payload,
        )


def test_a_file_gets_a_few_lines_and_a_terminal_one_that_is_written_over() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    file, terminal = io.StringIO(), Terminal()
    for out in (file, terminal):
        progress = TerminalProgress(out)
        for event in events():
            progress(event)
    lines = file.getvalue().splitlines()
    assert [line[:4] for line in lines] == ["  0%", " 25%", " 50%", " 75%", "100%", "100%"]
    assert lines[-1] == "100% completed"
    assert terminal.getvalue().count("\n") == 1
    assert terminal.getvalue().endswith("100% completed\n")


def test_nothing_is_shown_outside_of_notebooks_unless_it_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for progress in (None, False):
        show = shows_waiting(progress)
        for event in events():
            show(event)
    assert capsys.readouterr() == ("", "")
    assert isinstance(shows_waiting(True), TerminalProgress)


class TestInANotebook:
    """Through IPython's own shell, the one that kernels extend."""

    @pytest.fixture
    def shell(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
        with notebook_shell(tmp_path, monkeypatch) as shell:
            yield shell

    def test_the_last_line_of_a_cell_shows_the_video(self, shell: Any) -> None:
        shell.push({"generation": Generation.of(STATE, (Media(VIDEO, b"mp4"),))})
        result = shell.run_cell("generation")
        result.raise_error()
        data, _ = shell.display_formatter.format(result.result)
        assert data["text/plain"].startswith("Generation req_1")
        assert "data:video/mp4;base64,bXA0" in data["text/html"]

    def test_a_wait_moves_one_bar(self, shell: Any) -> None:
        assert isinstance(shows_waiting(None), NotebookProgress)
        shell.push({"show": shows_waiting(None), "events": list(events())})
        shell.run_cell("for event in events: show(event)").raise_error()
        shown = shell.display_pub.outputs
        ids = {output["transient"]["display_id"] for output in shown}
        assert len(ids) == 1
        assert 10 < len(shown) < 60
        assert "<progress" in shown[0]["data"]["text/html"]
        assert "100 % completed" in shown[-1]["data"]["text/html"]
