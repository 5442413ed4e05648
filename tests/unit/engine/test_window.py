"""Windows: several steps of one batch give what single steps give, and end at a boundary."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastvideo.engine.executor import ExecutorLimits
from fastvideo.loops.contract import PlanContext
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.commands import ExecuteBatch, ReleaseLoops
from fastvideo.scheduling.events import BatchExecuted
from fastvideo.scheduling.work import (
    CancelScope,
    CancelScopeKind,
    StepResult,
    UnitKind,
    WorkPlan,
)

World = Any
MakeRequest = Callable[..., RequestSpec]


def _window(world: World, steps: int, *plans: WorkPlan, batch_id: str = "b") -> BatchExecuted:
    executed: BatchExecuted = world.executor.execute(
        ExecuteBatch(
            batch_id=batch_id,
            kind=UnitKind.DIFFUSION_STEP,
            unit_ids=tuple(unit.unit_id for plan in plans for unit in plan.units),
            window=steps,
        )
    )
    return executed


def _prepared(world: World, make_request: MakeRequest, steps: Mapping[str, int]) -> list[WorkPlan]:
    return [
        world.prepare(make_request(name, steps=count, seed=seed))
        for seed, (name, count) in enumerate(steps.items())
    ]


def _plans(executed: BatchExecuted) -> list[WorkPlan]:
    return [result.next_plan for result in executed.results if result.next_plan is not None]


def _run(world: World, plans: list[WorkPlan], windows: list[int]) -> list[StepResult]:
    """Run loops to their ends, in windows of these many steps, over and over."""
    results: list[StepResult] = []
    turn = 0
    while plans:
        executed = _window(world, windows[turn % len(windows)], *plans)
        results += executed.results
        plans, turn = _plans(executed), turn + 1
    return results


def _facts(results: list[StepResult]) -> dict[str, tuple[Any, ...]]:
    """All that a step gives but its plan and its seconds, by unit."""
    assert len({result.unit_id for result in results}) == len(results)
    return {
        result.unit_id: (
            result.state_version,
            result.state_digest,
            result.step_range,
            result.loop_result,
            result.error,
        )
        for result in results
    }


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    windows=st.lists(st.integers(1, 12), min_size=1, max_size=3),
)
def test_windows_of_any_length_give_the_digests_and_results_of_single_steps(
    make_world: type[World], make_request: MakeRequest, counts: list[int], windows: list[int]
) -> None:
    steps = {f"r{place}": count for place, count in enumerate(counts)}
    single, fused = make_world(), make_world()
    alone = _run(single, _prepared(single, make_request, steps), [1])
    together = _run(fused, _prepared(fused, make_request, steps), windows)
    assert _facts(together) == _facts(alone)
    assert len(together) == sum(counts)
    assert fused.kernel.batches == single.kernel.batches
    for name in steps:
        fused.executor.release(ReleaseLoops(request_id=name, attempt=1))
    assert fused.pools.in_use_bytes() == fused.start_bytes


def test_only_the_last_result_of_a_loop_carries_its_plan_or_its_end(
    world: World, make_request: MakeRequest
) -> None:
    plans = _prepared(world, make_request, {"short": 2, "long": 9})
    executed = _window(world, 4, *plans)
    told = [(result.loop.request_id, result.step_range.start) for result in executed.results]
    assert told == [("short", 0), ("long", 0), ("short", 1), ("long", 1), ("long", 2), ("long", 3)]
    carrying = [
        (result.loop_result is not None, result.next_plan is not None)
        for result in executed.results
    ]
    assert carrying == [(False, False)] * 2 + [(True, False)] + [(False, False)] * 2 + [
        (False, True)
    ]
    assert executed.forwards == 4
    assert not executed.yielded
    [plan] = _plans(executed)
    assert (plan.state_version, plan.units[0].step_range.start) == (4, 4)


def test_each_unit_tells_the_seconds_of_its_own_step(
    world: World, make_request: MakeRequest
) -> None:
    seconds = iter((0.5, 0.25, 1.0))
    world.kernel.during_step = lambda: world.clock.set(
        world.clock.now() + timedelta(seconds=next(seconds))
    )
    [plan] = _prepared(world, make_request, {"r": 3})
    executed = _window(world, 3, plan)
    assert [result.measured_seconds for result in executed.results] == [0.5, 0.25, 1.0]
    assert executed.measured_seconds == 1.75


def test_a_loop_whose_next_unit_may_not_share_the_batch_leaves_and_the_others_go_on(
    world: World, make_request: MakeRequest
) -> None:
    _switching(world, "leaves", at=2)
    plans = _prepared(world, make_request, {"leaves": 6, "stays": 6})
    executed = _window(world, 4, *plans)
    ran = [result.loop.request_id for result in executed.results]
    assert ran == ["leaves", "stays", "leaves", "stays", "stays", "stays"]
    assert [plan.state_version for plan in _plans(executed)] == [2, 4]


def test_a_loop_that_plans_several_units_leaves(world: World, make_request: MakeRequest) -> None:
    plan_step = world.kernel.plan_step

    def two_units(state: Any, context: PlanContext) -> WorkPlan | None:
        plan: WorkPlan | None = plan_step(state, context)
        if plan is None or state.version != 1:
            return plan
        [unit] = plan.units
        return replace(plan, units=(unit, replace(unit, unit_id=f"{unit.unit_id}/again")))

    world.kernel.plan_step = two_units
    [plan] = _prepared(world, make_request, {"r": 4})
    executed = _window(world, 4, plan)
    assert len(executed.results) == 1
    [plan] = _plans(executed)
    assert len(plan.units) == 2


def test_a_batch_that_has_grown_too_large_for_its_next_units_ends(
    world: World, make_request: MakeRequest
) -> None:
    plan_step = world.kernel.plan_step

    def narrow(state: Any, context: PlanContext) -> WorkPlan | None:
        plan: WorkPlan | None = plan_step(state, context)
        if plan is None or state.version == 0:
            return plan
        return replace(plan, units=tuple(replace(unit, max_batch=1) for unit in plan.units))

    world.kernel.plan_step = narrow
    executed = _window(world, 3, *_prepared(world, make_request, {"a": 3, "b": 3}))
    assert len(executed.results) == 2
    assert len(_plans(executed)) == 2


def test_a_unit_that_fails_leaves_alone(world: World, make_request: MakeRequest) -> None:
    bad = world.prepare(make_request("bad", steps=5, prompt="fail at 1"))
    good = world.prepare(make_request("good", steps=5))
    executed = _window(world, 5, bad, good)
    failed = [result for result in executed.results if result.error is not None]
    assert [(result.loop.request_id, result.step_range.start) for result in failed] == [("bad", 1)]
    assert executed.results[-1].loop_result is not None
    assert world.executor.loops == 0


def test_a_yield_lands_at_the_next_boundary(world: World, make_request: MakeRequest) -> None:
    plans = _prepared(world, make_request, {"a": 9, "b": 9})
    running = _Interrupted(world, at=2, act=lambda: world.executor.yield_batch("b"))
    executed = running.window(9, *plans)
    assert len(executed.results) == 2 * 3
    assert executed.yielded
    assert [plan.state_version for plan in _plans(executed)] == [3, 3]
    # The same loops go on, and the word is not remembered for the next batch of that name.
    assert len(_window(world, 9, *_plans(executed)).results) == 2 * 6


def test_a_batch_that_was_told_to_yield_while_it_waited_runs_one_step(
    world: World, make_request: MakeRequest
) -> None:
    [plan] = _prepared(world, make_request, {"r": 9})
    world.executor.yield_batch("b")
    executed = _window(world, 9, plan)
    assert (len(executed.results), executed.yielded) == (1, True)


def test_a_yield_at_the_end_of_the_window_changes_nothing(
    world: World, make_request: MakeRequest
) -> None:
    [plan] = _prepared(world, make_request, {"r": 9})
    running = _Interrupted(world, at=2, act=lambda: world.executor.yield_batch("b"))
    executed = running.window(3, plan)
    assert (len(executed.results), executed.yielded) == (3, False)


@pytest.mark.row("VAL-09")
@pytest.mark.parametrize("kind", [CancelScopeKind.REQUEST, CancelScopeKind.LOOP])
def test_a_cancel_lands_at_the_next_boundary_of_the_window_and_frees_at_once(
    world: World, make_request: MakeRequest, kind: CancelScopeKind
) -> None:
    target = "going" if kind is CancelScopeKind.REQUEST else "going/spin"
    plans = _prepared(world, make_request, {"going": 9, "staying": 9})
    scope = CancelScope(kind=kind, target_id=target)
    running = _Interrupted(world, at=2, act=lambda: world.executor.cancel(scope))
    executed = running.window(9, *plans)
    # The unit that ran is run to its end, its result is dropped, and the window is over.
    assert len(executed.results) == 2 * 3
    *_, going, staying = executed.results
    assert going.error is not None
    assert going.error.reason == "LOOP_RELEASED"
    assert staying.next_plan is not None
    assert world.executor.loops == 1
    assert len(_window(world, 9, staying.next_plan).results) == 6


def test_a_member_that_ends_is_freed_before_the_window_is_over(
    world: World, make_request: MakeRequest
) -> None:
    lived: list[int] = []
    world.kernel.during_step = lambda: lived.append(world.executor.loops)
    _window(world, 4, *_prepared(world, make_request, {"short": 2, "long": 4}))
    assert lived == [2, 2, 1, 1]


def test_the_memory_that_units_declare_is_taken_and_given_back_at_each_step(
    world: World, make_request: MakeRequest
) -> None:
    world.kernel.memory_bytes = {"staging": 1000}
    seen: list[int] = []
    world.kernel.during_step = lambda: seen.append(world.pools.in_use_bytes()["staging"])
    _window(world, 3, *_prepared(world, make_request, {"a": 2, "b": 4}))
    assert seen == [2000, 2000, 1000]
    assert world.pools.in_use_bytes()["staging"] == 0


def test_a_window_is_bounded(make_world: type[World], make_request: MakeRequest) -> None:
    world = make_world(limits=ExecutorLimits(steps_per_batch=3))
    [plan] = _prepared(world, make_request, {"r": 9})
    executed = _window(world, 1_000_000, plan)
    assert len(executed.results) == 3
    assert len(_plans(executed)) == 1


class _Interrupted:
    """Runs a window and acts from another thread while a step of it runs."""

    def __init__(self, world: World, *, at: int, act: Callable[[], Any]) -> None:
        self._world = world
        self._at = at
        self._act = act

    def window(self, steps: int, *plans: WorkPlan) -> BatchExecuted:
        before = len(self._world.kernel.batches)

        def during_step() -> None:
            if len(self._world.kernel.batches) - before - 1 == self._at:
                thread = threading.Thread(target=self._act)
                thread.start()
                thread.join(10)

        self._world.kernel.during_step = during_step
        try:
            return _window(self._world, steps, *plans)
        finally:
            self._world.kernel.during_step = lambda: None


def _switching(world: World, request_id: str, *, at: int) -> None:
    """Give the units of a request another batch key from a step on."""
    plan_step = world.kernel.plan_step

    def switched(state: Any, context: PlanContext) -> WorkPlan | None:
        plan: WorkPlan | None = plan_step(state, context)
        if plan is None or state.request.request_id != request_id or state.version < at:
            return plan
        return replace(plan, units=tuple(replace(unit, batch_key="another") for unit in plan.units))

    world.kernel.plan_step = switched
