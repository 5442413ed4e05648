"""The loop "write": one artifact a unit, the same ids in every attempt."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fastvideo.artifacts.state import artifact_id_of
from fastvideo.artifacts.types import ArtifactKind
from fastvideo.engine.sink import LocalArtifacts, NewArtifact
from fastvideo.errors import AlreadyExists, NotFound, Unavailable
from fastvideo.media.tensors import decode_tensors
from fastvideo.media.video import probe_mp4
from fastvideo.requests.types import OutputSpec, RequestSpec
from fastvideo.scheduling.commands import (
    CancelStream,
    ExecuteBatch,
    PrepareLoop,
    ReleaseLoops,
    SnapshotLoops,
)
from fastvideo.scheduling.events import LoopFailed, LoopPrepared
from fastvideo.scheduling.work import LoopResult, StepResult, UnitKind, WorkPlan

World = Any
MakeRequest = Callable[..., RequestSpec]
ALL = OutputSpec(video=True, sheet=True, latents=True)
INPUTS = {"frames": "spin.frames", "latents": "spin.latents"}


def _generate(world: World, request: RequestSpec, attempt: int = 1) -> WorkPlan:
    """Run the toy loop; returns the plan of its write loop."""
    plan = world.prepare(request, attempt=attempt)
    _finish(world, plan, UnitKind.DIFFUSION_STEP)
    write: WorkPlan = world.prepare(
        request, node_id="write", loop_id="write", inputs=INPUTS, attempt=attempt
    )
    return write


def _finish(world: World, plan: WorkPlan, kind: UnitKind) -> tuple[list[StepResult], LoopResult]:
    results: list[StepResult] = []
    while True:
        units = tuple(unit.unit_id for unit in plan.units)
        [result] = world.executor.execute(
            ExecuteBatch(batch_id="b", kind=kind, unit_ids=units)
        ).results
        assert result.error is None, result.error
        results.append(result)
        if result.loop_result is not None:
            return results, result.loop_result
        plan = result.next_plan


def test_each_output_is_one_unit_off_the_compute_window(
    world: World, make_request: MakeRequest
) -> None:
    plan = _generate(world, make_request("r", outputs=ALL))
    [unit] = plan.units
    assert (unit.kind, unit.resources.compute) == (UnitKind.ARTIFACT_WRITE, False)
    assert unit.resources.staging_bytes > 0
    results, end = _finish(world, plan, UnitKind.ARTIFACT_WRITE)
    assert len(results) == 3
    names = ("video", "sheet", "latents")
    assert end.artifact_ids == tuple(artifact_id_of("r", "write", name) for name in names)


def test_the_files_are_typed_named_and_traceable(world: World, make_request: MakeRequest) -> None:
    _, end = _finish(
        world, _generate(world, make_request("r", outputs=ALL)), UnitKind.ARTIFACT_WRITE
    )
    (video, video_bytes), (sheet, _), (latents, latents_bytes) = (
        world.artifacts.take(artifact_id) for artifact_id in end.artifact_ids
    )
    assert [record.name for record in (video, sheet, latents)] == [
        "video.mp4",
        "sheet.png",
        "latents.safetensors",
    ]
    assert video.kind is ArtifactKind.VIDEO
    assert (video.media.width, video.media.height, video.media.frames, video.media.fps) == (
        2,
        2,
        5,
        8.0,
    )
    assert probe_mp4(video_bytes).frames == 5
    assert decode_tensors(latents_bytes)["latents"].shape == (1, 4, 1, 1, 1)
    assert video.producer.versions["weights"] == "w1"
    assert video.producer.worker_id == "worker-0"


def test_another_attempt_stores_the_same_artifact(world: World, make_request: MakeRequest) -> None:
    request = make_request("r")
    _, first = _finish(world, _generate(world, request), UnitKind.ARTIFACT_WRITE)
    world.executor.release(ReleaseLoops(request_id="r", attempt=1))
    _, second = _finish(world, _generate(world, request, 2), UnitKind.ARTIFACT_WRITE)
    assert second.artifact_ids == first.artifact_ids
    assert world.artifacts.take(first.artifact_ids[0])[0].producer.attempt == 1


def test_latents_are_written_when_they_are_all_there_is(
    world: World, make_request: MakeRequest
) -> None:
    request = make_request("r", outputs=OutputSpec(latents=True))
    _finish(world, world.prepare(request), UnitKind.DIFFUSION_STEP)
    plan = world.prepare(
        request, node_id="write", loop_id="write", inputs={"latents": "spin.latents"}
    )
    _, end = _finish(world, plan, UnitKind.ARTIFACT_WRITE)
    assert end.artifact_ids == (artifact_id_of("r", "write", "latents"),)


def test_an_output_that_cannot_be_made_is_refused_by_name(
    world: World, make_request: MakeRequest, make_command: Callable[..., PrepareLoop]
) -> None:
    request = make_request("r", outputs=OutputSpec(sheet=True))
    _finish(world, world.prepare(request), UnitKind.DIFFUSION_STEP)
    event = world.executor.prepare(
        make_command(request, "write", "write", {"latents": "spin.latents"})
    )
    assert isinstance(event, LoopFailed)
    assert (event.error.reason, event.error.subject) == ("INVALID_FIELD", "outputs.sheet")


def test_a_sink_that_is_away_fails_the_unit_as_unavailable(
    world: World, make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(artifact: NewArtifact, data: bytes, *more: Any) -> None:
        raise Unavailable("the artifact service does not answer", subject="artifacts")

    monkeypatch.setattr(world.artifacts, "put", away)
    plan = _generate(world, make_request("r"))
    units = tuple(unit.unit_id for unit in plan.units)
    command = ExecuteBatch(batch_id="b", kind=UnitKind.ARTIFACT_WRITE, unit_ids=units)
    [result] = world.executor.execute(command).results
    assert result.error is not None
    assert result.error.reason == "UNAVAILABLE"
    world.executor.release(ReleaseLoops(request_id="r", attempt=1))
    assert world.pools.in_use_bytes() == world.start_bytes


def test_local_artifacts_refuse_other_bytes_and_forget_what_was_taken(
    world: World, make_request: MakeRequest
) -> None:
    artifacts: LocalArtifacts = world.artifacts
    _, end = _finish(world, _generate(world, make_request("r")), UnitKind.ARTIFACT_WRITE)
    record, data = artifacts.take(end.artifact_ids[0])
    again = NewArtifact(
        artifact_id=record.artifact_id,
        kind=record.kind,
        name=record.name,
        content_type=record.content_type,
        producer=record.producer,
    )
    artifacts.put(again, data)
    with pytest.raises(AlreadyExists):
        artifacts.put(again, data + b"\0")
    artifacts.discard("r")
    with pytest.raises(NotFound):
        artifacts.take(record.artifact_id)


def _cancel(world: World, name: str, attempt: int = 1) -> None:
    world.executor.cancel_stream(CancelStream(request_id="r", attempt=attempt, name=name))


def test_a_cancelled_stream_is_not_written_and_the_other_outputs_are(
    world: World, make_request: MakeRequest
) -> None:
    # Before the loop that writes is there, and before what it writes was computed.
    _cancel(world, "video")
    results, end = _finish(
        world, _generate(world, make_request("r", outputs=ALL)), UnitKind.ARTIFACT_WRITE
    )
    assert len(results) == 3
    names = ("sheet", "latents")
    assert end.artifact_ids == tuple(artifact_id_of("r", "write", name) for name in names)
    with pytest.raises(NotFound):
        world.artifacts.get(artifact_id_of("r", "write", "video"))


def test_a_stream_that_is_cancelled_while_it_is_stored_leaves_nothing(
    world: World, make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = world.artifacts.put

    def cancelled(artifact: NewArtifact, data: bytes, wanted: Callable[[], bool]) -> Any:
        if artifact.name == "video.mp4":
            assert wanted()
            _cancel(world, "video")
            assert not wanted()
        return put(artifact, data, wanted)

    monkeypatch.setattr(world.artifacts, "put", cancelled)
    _, end = _finish(
        world, _generate(world, make_request("r", outputs=ALL)), UnitKind.ARTIFACT_WRITE
    )
    names = ("sheet", "latents")
    assert end.artifact_ids == tuple(artifact_id_of("r", "write", name) for name in names)


def test_a_video_whose_preview_was_cancelled_names_none(
    world: World, make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    previews: list[str] = []
    put = world.artifacts.put

    def watched(artifact: NewArtifact, data: bytes, wanted: Callable[[], bool]) -> Any:
        previews.append(artifact.preview_artifact_id)
        return put(artifact, data, wanted)

    monkeypatch.setattr(world.artifacts, "put", watched)
    _cancel(world, "preview")
    outputs = OutputSpec(video=True, preview=True)
    _finish(world, _generate(world, make_request("r", outputs=outputs)), UnitKind.ARTIFACT_WRITE)
    assert previews == [""]


def test_a_cancelled_stream_is_one_attempt_s_alone_and_is_forgotten_with_it(
    world: World, make_request: MakeRequest
) -> None:
    _cancel(world, "video")
    world.executor.release(ReleaseLoops(request_id="r", attempt=1))
    for attempt in (2, 3):
        _, end = _finish(
            world,
            _generate(world, make_request("r", outputs=ALL), attempt),
            UnitKind.ARTIFACT_WRITE,
        )
        assert len(end.artifact_ids) == (3 if attempt == 2 else 2)
        _cancel(world, "sheet", attempt=3)


def test_a_moved_writer_keeps_what_was_cancelled(
    world: World, make_world: type[World], make_request: MakeRequest, make_command: Any
) -> None:
    request = make_request("r", outputs=ALL)
    plan = _generate(world, request)
    _cancel(world, "video")
    unit_ids = tuple(unit.unit_id for unit in plan.units)
    world.executor.execute(
        ExecuteBatch(batch_id="b", kind=UnitKind.ARTIFACT_WRITE, unit_ids=unit_ids)
    )
    event = world.executor.snapshot(SnapshotLoops(request_id="r", attempt=1, release=True))
    [saved] = [saved for saved in event.snapshots if not saved.ended]
    there = make_world(shelf=world.shelf)
    command = make_command(request, node_id="write", loop_id="write", attempt=2)
    moved = there.executor.prepare(replace(command, restore=saved), there.executor.fetch(saved))
    assert isinstance(moved, LoopPrepared)
    _, end = _finish(there, moved.plan, UnitKind.ARTIFACT_WRITE)
    names = ("sheet", "latents")
    assert end.artifact_ids == tuple(artifact_id_of("r", "write", name) for name in names)
