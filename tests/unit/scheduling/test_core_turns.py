"""A budget of device-seconds: how many units run at once, and who goes first."""

import pytest

from fastvideo.scheduling.events import (
    CompleteRequest,
    DispatchBatch,
    ResidentLoop,
    WorkerDetached,
    WorkerReattached,
)
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.work import ResourceRequest, UnitKind
from tests.unit.scheduling.timed import ONLY, Timed, steps_of, tenant_of
from tests.unit.scheduling.world import World, unit

KIND = UnitKind.DIFFUSION_STEP.value


@pytest.mark.row("SCH-05")
def test_a_budget_of_one_unit_makes_64_requests_take_turns():
    world = Timed(
        policy=SchedulingPolicy(
            resident_requests_max=64, worker_budget={"compute_seconds": 0.01}, window_steps_max=1
        ),
        catalog=ONLY,
        plan=steps_of(max_batch=64, steps=6),
    )
    # Without the budget 64 units could run at once, alone or together.
    world.attach(compute_slots=64)
    for n in range(64):
        world.submit(f"r-{n}")
    together = 0
    while world.core.live_requests:
        world.advance(world.clock_s + 0.005)
        if world.core.predictions > 64:
            together = max(together, sum(len(run.units) for run in world.running.values()))
            assert world.core.reserved["compute_seconds"] <= 0.01
    assert together == 1
    assert len(world.made(CompleteRequest)) == 64
    assert world.reserved() == {}
    # They took turns: all were half done before the first ended.
    first_end = min(world.ended_at.values())
    halves = [
        event
        for event in world.executed
        if event.results[0].step_range.start == 2 and event.results
    ]
    assert len(halves) == 64
    assert first_end > 64 * 3 * 0.01


def test_a_budget_of_seconds_bounds_how_many_units_share_a_forward():
    def seconds(batch, units):
        return 0.004 + 0.002 * units

    world = Timed(
        policy=SchedulingPolicy(worker_budget={"compute_seconds": 0.0125}, window_steps_max=1),
        catalog=ONLY,
        plan=steps_of(max_batch=16),
        seconds=seconds,
    )
    world.attach()
    for n in range(12):
        world.submit(f"r-{n}", steps=100)
    world.advance(2.0)
    late = [event for event in world.executed if event.measured_seconds][-50:]
    # A forward of four takes 12 ms; one of five would take 14.
    assert max(len(event.results) for event in late) == 4


def test_a_unit_that_is_predicted_beyond_the_budget_runs_alone():
    world = Timed(
        policy=SchedulingPolicy(worker_budget={"compute_seconds": 0.001}),
        catalog=ONLY,
        plan=steps_of(),
    )
    world.attach(compute_slots=4)
    for n in range(3):
        world.submit(f"r-{n}", steps=3)
    world.finish()
    assert len(world.made(CompleteRequest)) == 3


@pytest.mark.row("SCH-09")
def test_running_loops_go_before_new_requests_for_their_time():
    world = Timed(
        policy=SchedulingPolicy(fresh_wait_seconds_max=0.2), catalog=ONLY, plan=steps_of()
    )
    world.attach()
    world.submit("old-0", steps=200)
    world.submit("old-1", steps=200)
    world.advance(0.3)
    world.submit("new-0", steps=5)
    world.advance(0.48)
    assert world.device_seconds(tenant_of).get("new", 0.0) == 0.0
    world.advance(0.6)
    assert world.device_seconds(tenant_of)["new"] > 0.0


def test_units_off_the_step_path_need_no_seconds():
    def plan(spec, loop, instance):
        return [
            unit(loop, max_batch=1, resources=ResourceRequest(staging_bytes=1), instance=instance)
        ]

    world = Timed(
        policy=SchedulingPolicy(worker_budget={"compute_seconds": 0.01}), catalog=ONLY, plan=plan
    )
    world.attach(io_slots=8)
    for n in range(8):
        world.submit(f"r-{n}")
    world.advance(0.005)
    assert len(world.running) == 8


def test_a_batch_that_never_arrived_is_charged_to_nobody():
    kinds = {UnitKind.DIFFUSION_STEP: 1.0}
    world = World(policy=SchedulingPolicy(kind_shares=kinds), catalog=ONLY, plan=steps_of())
    world.attach()
    world.submit(tenant="t")
    world.prepare()
    ready = world.core._state.workers["w1"].compute

    def charged() -> tuple[float, float]:
        return ready.tenants.classes[0].charged["t"], ready.kinds.classes[0].charged[KIND]

    before = charged()
    (lost,) = world.made(DispatchBatch)
    incarnation = world.workers["w1"].incarnation
    world.tell(WorkerDetached(worker_id="w1", incarnation=incarnation))
    loops = tuple(ResidentLoop(loop=loop) for loop in lost.loops)
    world.tell(WorkerReattached(worker_id="w1", incarnation=incarnation, loops=loops))
    assert [d.unit_ids for d in world.made(DispatchBatch)] == [lost.unit_ids] * 2
    assert charged() == before
