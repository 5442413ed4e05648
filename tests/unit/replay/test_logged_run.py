"""A request's accepted run, from its stream and the shard's."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from fastvideo.errors import FailedPrecondition, NotFound
from fastvideo.model.caching import CacheClass, CacheLookup, CacheOutcome
from fastvideo.replay import logged_run
from fastvideo.replay.logged_run import read_logged_run
from fastvideo.replay.types import LoggedRun
from fastvideo.requests.types import RequestStatus
from fastvideo.scheduling.events import AssignLoop, BatchExecuted, RestartRequest
from fastvideo.scheduling.traces import CacheAccess, CacheAccessed, ComponentsTraced
from fastvideo.scheduling.work import LoopRef, LoopSnapshot
from tests.unit.replay.shard_log import SHARD, TRACEPARENT, ShardLog
from tests.unit.scheduling.world import World


async def read(world: World, request_id: str = "r1") -> LoggedRun:
    log = ShardLog()
    await log.write(world)
    return await read_logged_run(log.store, request_id, SHARD)


def steps_of(run: LoggedRun) -> list[str]:
    return [f"{step.node_id} {step.step_range.stop}" for step in run.steps]


async def test_a_run_has_every_step_once_in_order() -> None:
    world = World()
    world.attach("w1")
    world.submit("r1", steps=3)
    world.submit("r2", steps=3)
    world.run()
    run = await read(world)
    assert steps_of(run) == [
        *("encode 1", "denoise 1", "denoise 2", "denoise 3"),
        *("decode 1", "decode 2", "decode 3", "write 1"),
    ]
    assert run.status is RequestStatus.COMPLETED
    assert run.latents_digest == "digest-r1"
    assert run.traceparent == TRACEPARENT
    assert run.instance.model_instance_id == "w1/tiny"
    assert max(step.batch_size for step in run.steps) == 2


async def test_nobody_s_run_is_not_found() -> None:
    with pytest.raises(NotFound):
        await read(World(), "r9")


async def test_a_run_whose_worker_was_lost_is_that_of_the_attempt_that_went_on() -> None:
    world = World()
    world.attach("w1")
    world.submit("r1", steps=6)
    while not ran(world, "r1/denoise/1/2"):
        world.step()
    world.attach("w2")
    world.lose("w1")
    world.run()
    run = await read(world)
    assert run.attempt == 2
    assert len(set(steps_of(run))) == len(run.steps) == 1 + 6 + 3 + 1
    assert {step.unit_id.split("/")[2] for step in run.steps} == {"2"}
    assert run.instance.model_instance_id == "w2/tiny"


async def test_steps_before_a_snapshot_are_those_of_the_attempt_that_made_them() -> None:
    world = World()
    world.attach("w1")
    world.submit("r1", steps=6)
    while not ran(world, "r1/denoise/1/3"):
        world.step()
    world.attach("w2")
    log = ShardLog()
    await log.write(world)
    written = len(world.history)
    world.lose("w1")
    event, now, decisions = world.history[written]
    restored = [
        replace(one, loop=replace(one.loop, node_id="denoise"), restore=snapshot(2))
        if isinstance(one, AssignLoop)
        else one
        for one in decisions
    ]
    assert any(isinstance(one, RestartRequest) for one in restored)
    await log.take(event, now, restored)
    run = await read_logged_run(log.store, "r1", SHARD)
    assert steps_of(run) == ["encode 1", "denoise 1", "denoise 2"]
    assert run.status is not RequestStatus.COMPLETED


async def test_a_worker_that_attached_long_before_is_found() -> None:
    world = World()
    world.attach("w1")
    for number in range(300):
        world.submit(f"r{number}", steps=2)
        world.run()
    run = await read(world, "r299")
    assert run.instance.model_instance_id == "w1/tiny"


async def test_a_worker_that_attached_too_long_before_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.attach("w1")
    for number in range(300):
        world.submit(f"r{number}", steps=2)
        world.run()
    monkeypatch.setattr(logged_run, "EARLIER_EVENTS_MAX", 500)
    run = await read(world, "r299")
    assert run.steps
    assert run.fingerprint == {}
    assert run.instance.model_instance_id == "w1/tiny"
    assert run.instance.weights_version == ""


async def test_a_run_in_whose_time_too_much_happened_is_refused_with_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.attach("w1")
    world.submit("r1", steps=3)
    while not ran(world, "r1/denoise/1/2"):
        world.step()
    assert (await read(world)).steps
    monkeypatch.setattr(logged_run, "EVENTS_MAX", 3)
    with pytest.raises(FailedPrecondition, match="more than 3 events") as caught:
        await read(world)
    assert caught.value.reason == "RUN_TOO_LONG"
    assert caught.value.attributes == {"events_max": "3"}


async def test_notes_are_those_of_the_request() -> None:
    world = World()
    world.attach("w1")
    world.submit("r1", steps=2)
    world.run()
    log = ShardLog()
    for event, now, decisions in world.history:
        notes = notes_of(event) if isinstance(event, BatchExecuted) else ()
        await log.take(event, now, decisions, tuple(notes))
    run = await read_logged_run(log.store, "r1", SHARD)
    assert [step.components is not None for step in run.steps] == [True] * len(run.steps)
    assert {access.request_id for access in run.accesses} == {"r1"}


def notes_of(event: BatchExecuted) -> Iterable[ComponentsTraced | CacheAccessed]:
    for result in event.results:
        yield ComponentsTraced(request_id="r1", unit_id=result.unit_id)
    lookup = CacheLookup(cache_class=CacheClass.TEXT_ENCODER_OUTPUT, outcome=CacheOutcome.HIT)
    yield CacheAccessed(
        accesses=tuple(CacheAccess(request_id=name, lookup=lookup) for name in ("r1", "r2"))
    )


def ran(world: World, unit_id: str) -> bool:
    return any(
        result.unit_id == unit_id
        for event, _, _ in world.history
        if isinstance(event, BatchExecuted)
        for result in event.results
    )


def snapshot(steps_done: int) -> LoopSnapshot:
    loop = LoopRef(request_id="r1", node_id="denoise", attempt=1)
    return LoopSnapshot(loop=loop, steps_done=steps_done, steps=6)
