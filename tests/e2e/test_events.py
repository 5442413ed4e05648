"""What a watch tells of a request, and in which order."""

import asyncio
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fastvideo.events.types import Event
from fastvideo.scheduling.events import BatchExecuted
from fastvideo.scheduling.work import UnitKind
from tests.e2e.media_files import read_video
from tests.e2e.stack import Stack

PROMPT = "a green five moving up"
STEPS = 6
TERMINAL = {"request.completed", "request.failed", "request.cancelled"}


@dataclass(frozen=True)
class Watched:
    """A completed request with two outputs, and its events as JSON."""

    record: Any
    events: list[Any]

    @property
    def names(self) -> list[str]:
        return [event["name"] for event in self.events]

    def of(self, name: str) -> list[Any]:
        return [event for event in self.events if event["name"] == name]

    def place(self, name: str) -> int:
        return self.names.index(name)


@pytest.fixture(scope="module")
def session_id(stack: Stack) -> str:
    outcome = stack.run("session", "create", "--json")
    assert outcome.code == 0, outcome.err
    return str(outcome.json["session_id"])


@pytest.fixture(scope="module")
def watched(stack: Stack, session_id: str, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    sheet = tmp_path_factory.mktemp("events") / "sheet.png"
    arguments = ("--steps", str(STEPS), "--sheet", str(sheet), "--seed", "2")
    record = stack.generate(PROMPT, *arguments, "--session", session_id)
    return Watched(record, stack.watch(record["id"]))


@pytest.mark.row("REQ-07")
def test_sequence_numbers_rise_by_one_and_a_watch_resumes_from_any(
    stack: Stack, watched: Watched
) -> None:
    count = len(watched.events)
    assert [event["sequence"] for event in watched.events] == list(range(1, count + 1))
    for after in (1, count // 2, count - 1, count):
        outcome = stack.run(
            "request", "watch", watched.record["id"], "--json", "--after", str(after)
        )
        assert outcome.code == 0
        assert len(outcome.out.splitlines()) == count - after


@pytest.mark.row("EVT-01")
def test_accepted_is_first_and_once_with_id_and_program(watched: Watched) -> None:
    assert watched.names[0] == "request.accepted"
    assert watched.names.count("request.accepted") == 1
    spec = watched.events[0]["request_accepted"]["spec"]
    assert spec["request_id"] == watched.record["id"]
    assert spec["program_id"]


@pytest.mark.row("EVT-03")
def test_started_comes_once_and_before_progress(watched: Watched) -> None:
    assert watched.names.count("request.started") == 1
    assert watched.place("request.started") < watched.place("request.progress")


@pytest.mark.row("EVT-04")
def test_progress_rises_to_1(watched: Watched) -> None:
    fractions = [
        event["request_progressed"]["fraction"] for event in watched.of("request.progress")
    ]
    assert fractions[-1] == 1
    assert all(before <= after for before, after in pairwise(fractions))
    # Steps that ran in one window are told together, nodes never are.
    nodes = [event["request_progressed"]["node_id"] for event in watched.of("request.progress")]
    assert list(dict.fromkeys(nodes)) == ["encode", "denoise", "decode", "write"]


@pytest.mark.row("EVT-07")
def test_completed_is_last_and_lists_artifacts_and_metrics(watched: Watched) -> None:
    assert watched.names[-1] == "request.completed"
    assert len(TERMINAL & set(watched.names)) == 1
    completed = watched.events[-1]["request_completed"]
    stored = {
        event["artifact_completed"]["record"]["artifact_id"]
        for event in watched.of("artifact.completed")
    }
    assert set(completed["artifact_ids"]) == stored
    assert len(stored) == 2
    assert completed["latents_digest"] == watched.record["latents_digest"]
    assert completed["metrics"]["total_seconds"] == watched.record["seconds"]
    assert completed["metrics"]["units"] >= STEPS


@pytest.mark.row("EVT-12", "EVT-14")
def test_each_artifact_is_created_before_it_is_completed(watched: Watched) -> None:
    created = {
        e["artifact_created"]["record"]["artifact_id"]: e for e in watched.of("artifact.created")
    }
    completed = {
        e["artifact_completed"]["record"]["artifact_id"]: e
        for e in watched.of("artifact.completed")
    }
    assert set(created) == set(completed)
    for artifact_id, event in completed.items():
        begun = created[artifact_id]
        assert begun["sequence"] < event["sequence"]
        assert "digest" not in begun["artifact_created"]["record"]
        record = event["artifact_completed"]["record"]
        assert len(record["digest"]) == 64
        assert int(record["size_bytes"]) > 0
    kinds = {e["artifact_completed"]["record"]["kind"] for e in completed.values()}
    assert kinds == {"ARTIFACT_KIND_VIDEO", "ARTIFACT_KIND_IMAGE"}


@pytest.mark.row("REQ-05")
def test_artifacts_carry_kind_producer_and_versions(watched: Watched) -> None:
    for event in watched.of("artifact.completed"):
        producer = event["artifact_completed"]["record"]["producer"]
        assert producer["request_id"] == watched.record["id"]
        assert producer["node_id"]
        assert producer["model_id"] == "moving-digits"
        assert producer["versions"]["weights"]


@pytest.mark.row("EVT-15", "EVT-16", "EVT-17")
def test_media_begins_with_its_form_and_ends_once_with_the_totals(watched: Watched) -> None:
    [begun] = watched.of("media.init")
    chunks = [event["media_chunk_added"] for event in watched.of("media.chunk")]
    [ended] = watched.of("media.complete")
    media = begun["media_initialized"]["media"]
    assert (media["container"], media["codec"]) == ("mp4", "h264")
    assert (media["width"], media["height"], media["fps"], media["frames"]) == (48, 48, 8, 9)
    order = ["media.init", "media.chunk", "media.complete", "artifact.completed"]
    assert [watched.place(name) for name in order] == sorted(map(watched.place, order))
    assert [chunk.get("index", 0) for chunk in chunks] == list(range(len(chunks)))
    end, until_s = 0, 0.0
    for chunk in chunks:
        assert (chunk["artifact_id"], chunk["stream_id"]) == (
            begun["media_initialized"]["artifact_id"],
            begun["media_initialized"]["stream_id"],
        )
        assert chunk["codec"] == "h264"
        assert chunk["final"]
        assert chunk.get("start_seconds", 0.0) == until_s
        until_s = chunk["stop_seconds"]
        assert int(chunk["byte_range"].get("start", 0)) == end
        end = int(chunk["byte_range"]["stop"])
    totals = ended["media_completed"]
    assert totals["chunks"] == len(chunks)
    assert int(totals["size_bytes"]) == end
    [video] = [a for a in watched.record["artifacts"] if a["kind"] == "video"]
    assert end == video["bytes"]
    assert totals["duration_seconds"] == until_s == 9 / 8


def batches_of(events: list[Event], request_id: str) -> list[BatchExecuted]:
    """The executed batches that hold a unit of the request, in order."""
    return [
        event.payload
        for event in events
        if isinstance(event.payload, BatchExecuted)
        and any(result.loop.request_id == request_id for result in event.payload.results)
    ]


@pytest.mark.row("EVT-18", "EXA-01")
async def test_the_steps_come_in_the_order_of_the_program(stack: Stack, watched: Watched) -> None:
    request_id = watched.record["id"]
    batches = batches_of(await stack.log("scheduler-"), request_id)
    kinds = [batch.kind for batch in batches]
    assert list(dict.fromkeys(kinds)) == [
        UnitKind.ENCODER_CHUNK,
        UnitKind.DIFFUSION_STEP,
        UnitKind.VAE_TILE,
        UnitKind.ARTIFACT_WRITE,
    ]
    assert kinds == sorted(kinds, key=list(dict.fromkeys(kinds)).index)
    assert all(batch.measured_seconds > 0 and batch.results for batch in batches)
    versions = [
        result.state_version
        for batch in batches
        if batch.kind is UnitKind.DIFFUSION_STEP
        for result in batch.results
        if result.loop.request_id == request_id
    ]
    assert versions == list(range(versions[0], versions[0] + STEPS))


@pytest.mark.row("EXA-01", "EVT-16")
def test_a_preview_is_there_before_the_video_and_its_stream_says_so(
    stack: Stack, tmp_path: Path
) -> None:
    record = stack.generate(
        PROMPT,
        "--seed",
        "1",
        "--steps",
        "2",
        "--preview",
        str(tmp_path / "preview.mp4"),
        "-o",
        str(tmp_path / "video.mp4"),
    )
    events = stack.watch(record["id"])
    names = [(event["name"], artifact_of(event)) for event in events]
    created = {
        event["artifact_created"]["record"]["name"]: artifact_of(event)
        for event in events
        if event["name"] == "artifact.created"
    }
    preview, video = created["preview.mp4"], created["video.mp4"]
    assert names.index(("artifact.completed", preview)) < names.index(("media.init", video))
    first, last = [
        event["media_chunk_added"]
        for event in events
        if event["name"] == "media.chunk" and artifact_of(event) == video
    ]
    assert first["buffer_ref"]["buffer_id"] == preview
    assert not first.get("final", False)
    assert last["final"]
    coarse, whole = (read_video(tmp_path / name) for name in ("preview.mp4", "video.mp4"))
    assert (len(coarse.frames), len(whole.frames)) == (3, 9)


def artifact_of(event: Any) -> str:
    """The artifact that an event is about; empty when it is about none."""
    return str(event["metadata"].get("artifact_id", ""))


@pytest.mark.row("EXA-01")
def test_all_of_it_is_one_trace(watched: Watched) -> None:
    traces = {event["metadata"]["traceparent"].split("-")[1] for event in watched.events}
    assert len(traces) == 1


# What an event says beyond the request: where it runs, once that is decided, and in which loop.
PLACED = {"model_instance_id", "worker_id", "role_id"}
ABOUT = {
    "request.accepted": set(),
    "trace.loop": PLACED | {"loop_id"},
    "request.started": PLACED,
    "request.progress": PLACED | {"loop_id"},
    "trace.step": PLACED | {"loop_id"},
    "trace.cache": PLACED | {"loop_id"},
    "trace.scheduler": set(),
    "artifact.created": PLACED | {"loop_id", "artifact_id"},
    "artifact.completed": PLACED | {"loop_id", "artifact_id"},
    "media.init": PLACED | {"loop_id", "artifact_id"},
    "media.chunk": PLACED | {"loop_id", "artifact_id"},
    "media.complete": PLACED | {"loop_id", "artifact_id"},
    "request.completed": PLACED,
    "session.updated": set(),
}


@pytest.mark.row("OBS-02")
async def test_every_event_of_a_request_says_what_it_is_about(
    stack: Stack, watched: Watched, session_id: str
) -> None:
    request_id = watched.record["id"]
    events: list[Event] = []
    async with asyncio.timeout(60):
        # Its session tells of it a moment after.
        while not {event.name for event in events} >= set(ABOUT):
            events = [e for e in await stack.log("") if e.metadata.request_id == request_id]
    assert {event.name for event in events} == set(ABOUT)
    # A request that runs alone shares no batch: each of its steps is among them.
    steps = [event.payload for event in events if isinstance(event.payload, BatchExecuted)]
    assert steps == batches_of(await stack.log("scheduler-"), request_id)
    for event in events:
        about, wanted = event.metadata, ABOUT[event.name]
        said = (about.session_id, about.program_id, about.model_id)
        assert said == (session_id, "text_to_video", "moving-digits"), event
        missing = {name for name in wanted if not getattr(about, name)}
        assert not missing, (event, missing)
        assert about.versions["fastvideo"], event
        assert "model_instance_id" not in wanted or about.versions["weights"], event
        assert about.occurred_at <= event.recorded_at, event
    assert len({event.metadata.traceparent.split("-")[1] for event in events}) == 1
    assert {e.metadata.loop_id for e in events if e.name == "trace.step"} == {
        "encode",
        "denoise",
        "decode",
        "write",
    }


async def test_what_is_about_no_request_says_who_and_in_which_version(stack: Stack) -> None:
    elected = [e for e in await stack.log("scheduler-") if e.name == "scheduler.elected"]
    assert elected
    assert all(event.metadata.versions["fastvideo"] for event in elected)
    attached = [e for e in await stack.log("scheduler-") if e.name == "worker.attached"]
    assert attached
    for event in attached:
        assert event.metadata.worker_id
        assert event.metadata.role_id == "worker"
        assert event.metadata.versions["fastvideo"]
