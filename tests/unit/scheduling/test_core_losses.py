"""Workers that go, by death or on purpose, and the requests that they had."""

from dataclasses import replace

import pytest

from fastvideo.requests.types import ErrorDetail
from fastvideo.scheduling.events import (
    AssignLoop,
    CompleteRequest,
    DispatchBatch,
    FailRequest,
    LoopFailed,
    QueueRequest,
    ReportProgress,
    RequestSnapshotted,
    RestartRequest,
    WorkerDraining,
)
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.work import LoopRef, LoopSnapshot
from tests.unit.scheduling.moving import Moving
from tests.unit.scheduling.world import World, denoising


def test_the_loss_of_a_worker_restarts_its_requests_elsewhere():
    world = World()
    world.attach("w1")
    world.submit("r1", steps=8)
    while not denoising(world, 4):
        world.step()
    late = world.execution("w1")
    told = max(d.fraction for d in world.made(ReportProgress))
    world.attach("w2")
    world.lose("w1")
    (restart,) = world.made(RestartRequest)
    assert (restart.request_id, restart.attempt) == ("r1", 2)
    assert world.tell(late) == (), "results of an older try are dropped"
    world.run()
    done = world.terminal("r1")
    assert isinstance(done, CompleteRequest)
    assert done.metrics.attempts == 2
    fractions = [d.fraction for d in world.made(ReportProgress)]
    assert fractions == sorted(fractions)
    assert told in fractions
    assert fractions[-1] == 1.0
    assert {d.worker_id for d in world.made(AssignLoop) if d.loop.attempt == 2} == {"w2"}
    assert world.reserved() == {}


def test_who_lost_a_worker_goes_before_those_that_only_wait():
    world = World(policy=SchedulingPolicy(resident_requests_max=1))
    world.attach("w1")
    world.submit("low")
    world.submit("high", priority=5)
    world.lose("w1")
    world.attach("w2")
    assert [a.loop.request_id for a in world.made(AssignLoop) if a.worker_id == "w2"] == ["low"]


def test_a_request_that_ran_in_part_twice_says_nothing_of_what_one_costs():
    world = World(policy=SchedulingPolicy(resident_requests_max=1))
    world.attach("w1")
    world.submit("r1", steps=8)
    while not denoising(world, 4):
        world.step()
    world.lose("w1")
    world.attach("w2")
    world.run()
    phases = {entry.phase for entry in world.core.cost_entries()}
    assert not any(phase.startswith("request/") for phase in phases), phases
    world.submit("r2", steps=8)
    world.run()
    assert any(entry.phase.startswith("request/") for entry in world.core.cost_entries())


def test_too_many_losses_fail_the_request():
    world = World(policy=SchedulingPolicy(attempts_max=2))
    world.attach("w1")
    world.submit("r1")
    world.lose("w1")
    world.attach("w2")
    world.lose("w2")
    failed = world.terminal("r1")
    assert isinstance(failed, FailRequest)
    assert failed.error.reason == "WORKER_LOST"
    assert failed.metrics.attempts == 2


def test_a_request_that_gets_further_from_loss_to_loss_is_not_suspected():
    world = World(policy=SchedulingPolicy(attempts_max=2))
    for n in range(1, 5):
        world.attach(f"w{n}")
        if n == 1:
            world.submit("r1", steps=12)
        while not denoising(world, 2 * n):
            world.step()
        world.lose(f"w{n}")
    world.attach("w9")
    world.run()
    done = world.terminal("r1")
    assert isinstance(done, CompleteRequest)
    assert done.metrics.attempts == 5


def test_a_request_that_only_waited_on_lost_workers_is_not_suspected():
    world = World(policy=SchedulingPolicy(attempts_max=1))
    world.attach("w1")
    world.submit("r1", steps=4)
    while not denoising(world, 2):
        world.step()
    world.submit("r2", steps=4)
    world.prepare()
    world.lose("w1")
    assert isinstance(world.terminal("r1"), FailRequest), "it ran"
    world.attach("w2")
    world.run()
    assert isinstance(world.terminal("r2"), CompleteRequest)


def test_requests_that_ran_together_share_the_suspicion():
    world = World(policy=SchedulingPolicy(attempts_max=2))
    requests = [f"r{n}" for n in range(4)]
    for loss in range(1, 5):
        world.attach(f"w{loss}")
        if loss == 1:
            for request_id in requests:
                world.submit(request_id)
        world.lose(f"w{loss}")
    assert not world.made(FailRequest), "four losses, a quarter of each"
    world.attach("w9")
    world.run()
    assert all(isinstance(world.terminal(r), CompleteRequest) for r in requests)


def test_a_cancel_that_races_the_loss_of_the_worker_cancels():
    world = World()
    world.attach("w1")
    world.submit("r1", steps=8)
    while not denoising(world, 4):
        world.step()
    world.cancel("r1")
    world.lose("w1")
    assert world.terminal("r1").boundary == "denoise 3/8"


def test_a_draining_worker_ends_what_it_has_and_takes_nothing_new():
    world = World()
    world.attach("w1")
    world.submit("r1")
    world.tell(WorkerDraining(worker_id="w1"))
    world.submit("r2")
    assert "draining" in world.made(QueueRequest)[-1].reason
    world.run()
    assert isinstance(world.terminal("r1"), CompleteRequest)
    world.attach("w2")
    world.run()
    assert isinstance(world.terminal("r2"), CompleteRequest)


@pytest.mark.parametrize("reason", ["DRAINING", "WEIGHTS_ASLEEP"])
def test_a_request_that_a_draining_or_sleeping_worker_refuses_goes_elsewhere(reason: str):
    world = World()
    world.attach("w1")
    world.submit("r1")
    world.attach("w2")
    loop = world.workers["w1"].preparing.pop().loop
    world.tell(LoopFailed(worker_id="w1", loop=loop, error=ErrorDetail(reason=reason)))
    world.run()
    assert isinstance(world.terminal("r1"), CompleteRequest)
    assert {d.worker_id for d in world.made(DispatchBatch)} == {"w2"}
    assert world.reserved() == {}


def test_a_snapshot_that_comes_after_the_loss_is_used_when_there_is_no_other():
    world = Moving(policy=SchedulingPolicy(snapshot_overhead_max=0.0))
    world.attach("w1")
    world.submit("r1", steps=8)
    while not denoising(world, 5):
        world.step()
    loop = LoopRef(request_id="r1", node_id="denoise", attempt=1)
    late = LoopSnapshot(loop=loop, loop_id="denoise", state_version=4, steps_done=4, steps=8)
    world.lose("w1")
    for steps_done in (4, 2):
        snapshot = replace(late, state_version=steps_done, steps_done=steps_done)
        world.tell(
            RequestSnapshotted(
                worker_id="w1", request_id="r1", attempt=1, snapshots=(snapshot,), seconds=0.01
            )
        )
    world.attach("w2")
    again = {d.loop.node_id: d.restore for d in world.made(AssignLoop) if d.loop.attempt == 2}
    # The first of them: who knows whether another is older.
    assert again["denoise"] == late
