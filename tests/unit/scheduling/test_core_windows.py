"""Windows: several steps while nobody waits; whoever begins to wait ends them."""

from dataclasses import replace

import pytest

from fastvideo.requests.types import ErrorDetail
from fastvideo.scheduling.events import (
    BatchExecuted,
    CancelRequest,
    CompleteRequest,
    DispatchBatch,
    YieldBatch,
)
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.work import LoopResult, StepRange, StepResult, WorkPlan
from tests.unit.scheduling.timed import Timed
from tests.unit.scheduling.world import MODEL, Catalog, World, node, program, unit

ONLY = Catalog(programs={MODEL: program(node("only"))})


def unconditional(spec, loop, instance):
    """As many steps as the request has; each says how many are certain to follow."""
    steps = spec.sampling.steps
    return [
        replace(unit(loop, n, steps, instance=instance), unconditional_next=steps - n - 1)
        for n in range(steps)
    ]


def timed(**policy):
    world = Timed(
        policy=SchedulingPolicy(**{"window_steps_max": 8, "window_seconds_max": 0.1} | policy),
        catalog=ONLY,
        plan=unconditional,
    )
    world.attach()
    return world


def windows(world):
    return [batch.window for batch in world.made(DispatchBatch)]


def learned(world):
    """The world after a request has taught what a step costs."""
    world.submit("first", steps=2)
    world.finish()
    world.history.clear()
    return world


def test_a_lone_loop_runs_in_windows_once_its_cost_is_known():
    world = timed()
    world.submit("r1", steps=20)
    world.finish()
    assert windows(world) == [1, 8, 8, 3]
    assert not world.made(YieldBatch)
    done = world.terminal("r1")
    assert isinstance(done, CompleteRequest)
    assert done.metrics.units == 20
    assert done.metrics.device_seconds == pytest.approx(0.2)
    assert world.reserved() == {}


def test_the_prediction_of_a_window_is_that_of_its_steps():
    world = learned(timed())
    world.submit("r1", steps=8)
    world.finish()
    (batch,) = world.made(DispatchBatch)
    assert batch.predicted_seconds == pytest.approx(0.08)


def test_a_window_is_no_longer_than_its_seconds():
    world = learned(timed(window_seconds_max=0.045))
    world.submit("r1", steps=8)
    world.finish()
    assert windows(world) == [4, 4]


def test_a_window_fits_into_the_budget_of_seconds():
    world = learned(timed(worker_budget={"compute_seconds": 0.03}))
    world.submit("r1", steps=6)
    world.finish()
    assert windows(world) == [3, 3]


def test_without_windows_every_step_is_asked_for():
    world = learned(timed(window_steps_max=1))
    world.submit("r1", steps=6)
    world.finish()
    assert windows(world) == [1] * 6


def test_a_batch_goes_no_further_together_than_its_shortest_member():
    world = timed()
    world.submit("long", steps=40)
    world.submit("short", steps=10)
    world.finish()
    for batch in world.made(DispatchBatch):
        left = {"long": 40, "short": 10}
        for unit_id in batch.unit_ids:
            name, step = unit_id.split("/")[0], int(unit_id.rsplit("/", 1)[1])
            assert step + batch.window <= left[name]
    assert max(windows(world)) == 8
    assert len(world.ended_at) == 2


def test_a_newcomer_ends_the_window_at_its_next_boundary():
    world = learned(timed(window_steps_max=16, window_seconds_max=10.0, fresh_wait_seconds_max=0))
    world.submit("old", steps=16)
    world.advance(world.clock_s + 0.055)
    assert world.running
    began = world.clock_s
    world.submit("new", steps=2)
    world.advance(began + 0.012)
    (told,) = world.made(YieldBatch)
    # Before it is prepared: a worker makes a loop between batches.
    assert told.reason == "a loop waits to be made"
    world.finish()
    first_of_new = next(
        now
        for _, now, decisions in world.history
        for d in decisions
        if isinstance(d, DispatchBatch) and any(r.request_id == "new" for r in d.loops)
    )
    # It is prepared, waits for the step that runs, and is in.
    assert (first_of_new - world.history[0][1]).total_seconds() - began < 0.012 + 0.01


def test_a_cancel_lands_at_the_next_step_of_a_window_and_gives_what_single_steps_give():
    boundaries = []
    for steps_max in (16, 1):
        world = learned(timed(window_steps_max=steps_max, window_seconds_max=10.0))
        world.submit("r1", steps=16)
        begun = world.clock_s
        world.advance(begun + 0.0555)
        world.cancel("r1")
        world.advance(begun + 0.07)
        ended = world.terminal("r1")
        assert isinstance(ended, CancelRequest)
        assert ended.metrics.units == 6
        boundaries.append(ended.boundary)
        assert world.reserved() == {}
    assert boundaries == ["only 6/16"] * 2


def test_the_cancel_of_one_member_lets_the_others_go_on():
    world = learned(timed(window_steps_max=16, window_seconds_max=10.0))
    world.submit("r1", steps=16)
    world.submit("r2", steps=16)
    world.advance(world.clock_s + 0.08)
    world.cancel("r1")
    world.finish()
    assert isinstance(world.terminal("r1"), CancelRequest)
    assert isinstance(world.terminal("r2"), CompleteRequest)
    assert world.terminal("r2").metrics.units == 16


def test_no_window_while_another_loop_is_being_prepared():
    world = learned(timed())
    world.submit("r1", steps=8)
    world.prepare()
    assert windows(world) == [8]
    world.history.clear()
    other = learned(timed())
    other.submit("r1", steps=8)
    other.submit("r2", steps=8)
    other.prepare()
    assert windows(other) == [1]


def test_a_deadline_ends_a_window():
    world = learned(timed(window_steps_max=16, window_seconds_max=10.0))
    world.submit("r1", steps=16, deadline_s=world.clock_s + 0.05)
    world.advance(world.clock_s + 0.06)
    world.tick(0.0)
    world.finish()
    assert world.terminal("r1").error.reason == "DEADLINE_EXCEEDED"
    assert world.terminal("r1").metrics.units < 10


# -- reports -----------------------------------------------------------------------------


def report(world, results, measured=0.0):
    (batch,) = world.workers["w1"].batches.values()
    return world.tell(
        BatchExecuted(
            worker_id="w1",
            batch_id=batch.batch_id,
            kind=batch.kind,
            results=tuple(results),
            measured_seconds=measured,
        )
    )


def in_window(steps=8):
    world = World(policy=SchedulingPolicy(window_steps_max=steps), catalog=ONLY, plan=unconditional)
    world.attach()
    world.core._state.costs.measure(MODEL, "only", "16x3x6x6", 1, 0.01)
    world.core._state.costs.measure(MODEL, "only", "16x3x6x6", 2, 0.012)
    return world


def step(ref, n, steps, seconds=0.01, **fields):
    return StepResult(
        unit_id=f"{ref.request_id}/only/1/{n}",
        loop=ref,
        state_version=n + 1,
        step_range=StepRange(start=n, stop=n + 1, total=steps),
        measured_seconds=seconds,
        **fields,
    )


def test_each_step_of_a_window_is_charged_and_learned_by_itself():
    world = in_window()
    world.submit("r1", steps=3)
    world.prepare()
    ref = world.made(DispatchBatch)[0].loops[0]
    seconds = (0.01, 0.03, 0.02)
    last = LoopResult(loop=ref)
    report(
        world,
        [step(ref, n, 3, s, loop_result=last if n == 2 else None) for n, s in enumerate(seconds)],
        measured=0.07,
    )
    metrics = world.terminal("r1").metrics
    assert metrics.units == 3
    assert metrics.device_seconds == pytest.approx(0.06)
    (entry, *_) = [e for e in world.core.cost_model.entries if e.phase == "only"]
    assert entry.samples == 2 + 3


def test_a_window_that_stopped_early_goes_on_from_where_it_is():
    world = in_window()
    world.submit("r1", steps=8)
    world.prepare()
    ref = world.made(DispatchBatch)[0].loops[0]
    units = unconditional(world.specs["r1"], ref, "w1/tiny")
    plan = WorkPlan(loop=ref, state_version=3, units=(units[3],))
    report(world, [step(ref, n, 8, next_plan=plan if n == 2 else None) for n in range(3)])
    following = world.made(DispatchBatch)[-1]
    assert following.unit_ids == (units[3].unit_id,)
    assert following.window == 5


def test_a_loop_that_fails_in_a_window_fails_alone():
    world = in_window()
    world.submit("bad", steps=4)
    world.submit("good", steps=4)
    world.prepare()
    world.prepare()
    world.execute()
    batch = next(iter(world.workers["w1"].batches.values()))
    refs = {ref.request_id: ref for ref in batch.loops}
    start = {u.split("/")[0]: int(u.rsplit("/", 1)[1]) for u in batch.unit_ids}
    results = []
    for name, ref in refs.items():
        count = batch.window if name == "good" else 1
        for n in range(start[name], start[name] + count):
            results.append(step(ref, n, 4))
    results = [
        replace(r, error=ErrorDetail(reason="NAN_LATENTS")) if r.loop == refs["bad"] else r
        for r in results
    ]
    good = [r for r in results if r.loop == refs["good"]]
    ends = replace(good[-1], loop_result=LoopResult(loop=refs["good"]))
    report(world, [ends if r is good[-1] else r for r in results])
    assert world.terminal("bad").error.reason == "NAN_LATENTS"
    assert isinstance(world.terminal("good"), CompleteRequest)
    assert world.reserved() == {}


def test_results_that_come_twice_in_a_report_count_once():
    world = in_window()
    world.submit("r1", steps=2)
    world.prepare()
    ref = world.made(DispatchBatch)[0].loops[0]
    steps = [step(ref, 0, 2), step(ref, 0, 2), step(ref, 1, 2, loop_result=LoopResult(loop=ref))]
    report(world, steps)
    assert world.terminal("r1").metrics.units == 2
