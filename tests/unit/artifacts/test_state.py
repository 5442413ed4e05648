"""An artifact's life, as a pure fold."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastvideo.artifacts.events import (
    ArtifactCompleted,
    ArtifactCreated,
    ArtifactUpdated,
    BufferRef,
    MediaChunkAdded,
    MediaCompleted,
    MediaInitialized,
)
from fastvideo.artifacts.state import (
    EXPIRED,
    ArtifactCommand,
    ArtifactEvent,
    ArtifactState,
    CompleteArtifact,
    CreateArtifact,
    DeleteArtifact,
    GrowArtifact,
    KeepArtifact,
    artifact_id_of,
    decide,
    evolve,
)
from fastvideo.artifacts.types import ArtifactKind, ArtifactRecord, MediaInfo, Producer
from fastvideo.errors import (
    AlreadyExists,
    CorruptLog,
    FailedPrecondition,
    InvalidField,
    Unavailable,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)
PRODUCER = Producer(request_id="req_1", node_id="write", worker_id="w1", attempt=1)
VIDEO = MediaInfo(container="mp4", codec="h264", width=48, height=48, fps=8.0, frames=9)
RECORD = ArtifactRecord(
    artifact_id="art_1",
    kind=ArtifactKind.VIDEO,
    name="video.mp4",
    content_type="video/mp4",
    producer=PRODUCER,
    media=VIDEO,
    created_at=AT,
)
DONE = CompleteArtifact(digest="ab" * 32, size_bytes=100, producer=PRODUCER, at=AT, expires_at=None)


def run(*commands: ArtifactCommand) -> tuple[ArtifactState | None, list[ArtifactEvent]]:
    """Decide and fold each command in turn."""
    state: ArtifactState | None = None
    events: list[ArtifactEvent] = []
    for command in commands:
        for event in decide(state, command):
            state = evolve(state, event)
            events.append(event)
    return state, events


@pytest.mark.row("EVT-12")
def test_a_video_is_created_then_begun_then_filled_then_completed() -> None:
    state, events = run(CreateArtifact(record=RECORD), GrowArtifact(size_bytes=60), DONE)
    assert [type(event) for event in events] == [
        ArtifactCreated,
        MediaInitialized,
        ArtifactUpdated,
        MediaChunkAdded,
        MediaCompleted,
        ArtifactCompleted,
    ]
    assert state is not None
    assert state.completed
    assert (state.record.digest, state.record.size_bytes) == (DONE.digest, 100)
    assert state.media is not None
    assert (state.media.chunks, state.media.size_bytes) == (1, 100)
    assert state.media.stop_seconds == 9 / 8


def test_a_preview_is_a_chunk_of_the_stream_that_counts_for_nothing() -> None:
    preview = BufferRef(buffer_id="art_0", size_bytes=7)
    _, events = run(CreateArtifact(record=RECORD, preview=preview), DONE)
    _, _, coarse, whole, ended, _ = events
    assert isinstance(coarse, MediaChunkAdded)
    assert (coarse.index, coarse.source, coarse.final) == (0, preview, False)
    assert isinstance(whole, MediaChunkAdded)
    assert (whole.index, whole.start_seconds, whole.final) == (1, 0.0, True)
    assert isinstance(ended, MediaCompleted)
    assert (ended.chunks, ended.size_bytes) == (2, 100)


def test_an_artifact_without_media_has_no_media_events() -> None:
    record = replace(RECORD, kind=ArtifactKind.LATENT, media=None)
    _, events = run(CreateArtifact(record=record), DONE)
    assert [type(event) for event in events] == [ArtifactCreated, ArtifactCompleted]


def test_an_image_keeps_its_media_but_is_no_stream() -> None:
    image = replace(VIDEO, container="png", codec="png", fps=0.0, frames=0)
    record = replace(RECORD, kind=ArtifactKind.IMAGE, media=image)
    state, events = run(CreateArtifact(record=record), DONE)
    assert [type(event) for event in events] == [ArtifactCreated, ArtifactCompleted]
    assert state is not None
    assert state.record.media == image


def test_putting_again_tells_nothing_twice() -> None:
    again = replace(RECORD, producer=replace(PRODUCER, worker_id="w2", attempt=2))
    once = run(CreateArtifact(record=RECORD), DONE)
    twice = run(CreateArtifact(record=RECORD), DONE, CreateArtifact(record=again), DONE)
    assert twice == once


def test_a_put_that_broke_is_taken_up_by_the_next() -> None:
    again = replace(RECORD, producer=replace(PRODUCER, worker_id="w2", attempt=2))
    state, events = run(
        CreateArtifact(record=RECORD),
        GrowArtifact(size_bytes=60),
        CreateArtifact(record=again),
        GrowArtifact(size_bytes=30),
        GrowArtifact(size_bytes=90),
        replace(DONE, producer=again.producer),
    )
    sizes = [event.size_bytes for event in events if isinstance(event, ArtifactUpdated)]
    assert sizes == [60, 90]
    assert state is not None
    assert state.record.producer.worker_id == "w2"


def test_other_bytes_under_a_completed_id_are_refused() -> None:
    state, _ = run(CreateArtifact(record=RECORD), DONE)
    with pytest.raises(AlreadyExists) as caught:
        decide(state, replace(DONE, digest="cd" * 32))
    assert caught.value.reason == "DIGEST_DIFFERS"
    assert caught.value.attributes["digest"] == DONE.digest


@pytest.mark.parametrize(
    "other",
    [
        replace(RECORD, kind=ArtifactKind.IMAGE),
        replace(RECORD, name="other.mp4"),
        replace(RECORD, media=replace(VIDEO, width=64)),
        replace(RECORD, parents=("art_0",)),
        replace(RECORD, producer=replace(PRODUCER, request_id="req_2")),
    ],
)
def test_another_meaning_under_the_same_id_is_refused(other: ArtifactRecord) -> None:
    state, _ = run(CreateArtifact(record=RECORD))
    with pytest.raises(AlreadyExists) as caught:
        decide(state, CreateArtifact(record=other))
    assert caught.value.reason == "MEANING_DIFFERS"


def test_an_artifact_has_bytes() -> None:
    state, _ = run(CreateArtifact(record=RECORD))
    with pytest.raises(InvalidField, match="size_bytes"):
        decide(state, replace(DONE, size_bytes=0))


def test_nothing_can_be_done_to_what_was_not_created() -> None:
    with pytest.raises(FailedPrecondition):
        decide(None, DONE)


def test_a_log_with_events_after_completion_is_corrupt() -> None:
    state, _ = run(CreateArtifact(record=RECORD), DONE)
    with pytest.raises(CorruptLog):
        evolve(state, ArtifactUpdated(artifact_id="art_1", size_bytes=200))
    with pytest.raises(CorruptLog):
        evolve(None, ArtifactUpdated(artifact_id="art_1", size_bytes=200))


def test_ids_of_outputs_are_the_same_in_every_attempt_and_differ_by_output() -> None:
    ids = {artifact_id_of("req_1", "write", output) for output in ("video", "sheet", "latents")}
    assert len(ids) == 3
    assert artifact_id_of("req_1", "write", "video") in ids


@pytest.mark.row("EVT-13")
@given(st.lists(st.one_of(st.integers(0, 200), st.just("create"), st.just("done")), max_size=12))
def test_any_mix_of_repeats_gives_one_lawful_history(steps: list[int | str]) -> None:
    commands: list[ArtifactCommand] = [CreateArtifact(record=RECORD)]
    for step in steps:
        if isinstance(step, int):
            commands.append(GrowArtifact(size_bytes=step))
        else:
            commands.append(CreateArtifact(record=RECORD) if step == "create" else DONE)
    _, events = run(*commands)
    names = [type(event).__name__ for event in events]
    assert names[:2] == ["ArtifactCreated", "MediaInitialized"]
    assert names.count("ArtifactCreated") == 1
    assert names.count("ArtifactCompleted") == int(DONE in commands)
    sizes = [event.size_bytes for event in events if isinstance(event, ArtifactUpdated)]
    assert all(before < after for before, after in pairwise(sizes))
    if DONE in commands:
        assert names[-3:] == ["MediaChunkAdded", "MediaCompleted", "ArtifactCompleted"]


def test_an_input_that_is_put_again_is_kept_for_longer_and_goes_when_its_time_is_over() -> None:
    def until(days: int) -> KeepArtifact:
        return KeepArtifact(expires_at=AT + timedelta(days=days))

    def gone(days: int) -> DeleteArtifact:
        return DeleteArtifact(reason=EXPIRED, at=AT + timedelta(days=days))

    record = replace(RECORD, expires_at=AT + timedelta(days=1))
    begun = (CreateArtifact(record=record), replace(DONE, expires_at=record.expires_at))
    state, events = run(*begun, until(3), until(2), gone(2))
    assert state is not None
    assert (state.record.expires_at, state.deleted) == (AT + timedelta(days=3), False)
    assert [event.kept for event in events if isinstance(event, ArtifactUpdated)] == [True]
    state, _ = run(*begun, until(3), gone(3))
    assert state is not None
    assert state.deleted
    with pytest.raises(Unavailable):
        decide(state, until(9))
    state, _ = run(*begun, KeepArtifact(expires_at=None), until(3))
    assert state is not None
    assert state.record.expires_at is None
    # What has no time is not given one, such as what a request made.
    made = (CreateArtifact(record=RECORD), DONE)
    assert run(*made, until(3)) == run(*made)


def test_an_input_whose_first_put_broke_off_is_kept_for_as_long_as_the_later_one_asks() -> None:
    first, later = AT + timedelta(days=1), AT + timedelta(days=9)
    done = replace(DONE, at=first, expires_at=later)
    begun = [CreateArtifact(record=replace(RECORD, expires_at=at)) for at in (first, later)]
    state, _ = run(*begun, done)
    assert state is not None
    assert state.record.expires_at == later
    # Two that were put at once: whichever was done first.
    for pair in (done, replace(done, expires_at=first)), (replace(done, expires_at=first), done):
        state, _ = run(*begun, *pair)
        assert state is not None
        assert state.record.expires_at == later
