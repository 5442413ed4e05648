"""A cancellation lands at a boundary that the plan declares, and nowhere else."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fastvideo.errors import ContractViolation
from fastvideo.loops.contract import PlanContext
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.commands import ExecuteBatch, ReleaseLoops
from fastvideo.scheduling.events import BatchExecuted
from fastvideo.scheduling.work import CancelScope, CancelScopeKind, UnitKind, WorkPlan

World = Any
MakeRequest = Callable[..., RequestSpec]

CANCEL = CancelScope(kind=CancelScopeKind.REQUEST, target_id="r")


@pytest.fixture
def sectioned(world: World) -> World:
    """The toy loop in sections of three steps: no boundary inside of one."""
    plan_step = world.kernel.plan_step

    def in_sections(state: Any, context: PlanContext) -> WorkPlan | None:
        plan: WorkPlan | None = plan_step(state, context)
        if plan is None:
            return None
        boundary = state.version % 3 == 0
        units = tuple(replace(unit, cancel_boundary=boundary) for unit in plan.units)
        return replace(plan, units=units)

    world.kernel.plan_step = in_sections
    return world


def step(world: World, plan: WorkPlan) -> BatchExecuted:
    [unit] = plan.units
    executed: BatchExecuted = world.executor.execute(
        ExecuteBatch(batch_id="b", kind=UnitKind.DIFFUSION_STEP, unit_ids=(unit.unit_id,))
    )
    return executed


def after(world: World, plan: WorkPlan, steps: int) -> WorkPlan:
    """The plan after so many steps."""
    for _ in range(steps):
        [result] = step(world, plan).results
        assert result.next_plan is not None
        plan = result.next_plan
    return plan


@pytest.mark.parametrize("steps", [0, 3])
def test_a_loop_at_a_boundary_is_gone_at_once(
    sectioned: World, make_request: MakeRequest, steps: int
) -> None:
    after(sectioned, sectioned.prepare(make_request("r", steps=9)), steps)
    sectioned.executor.cancel(CANCEL)
    assert sectioned.executor.loops == 0
    assert sectioned.pools.in_use_bytes() == sectioned.start_bytes


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_a_loop_inside_of_a_section_runs_on_to_its_boundary(
    sectioned: World, make_request: MakeRequest, steps: int
) -> None:
    plan = after(sectioned, sectioned.prepare(make_request("r", steps=9)), steps)
    [ref] = sectioned.executor.cancel(CANCEL)
    left = -steps % 3
    for index in range(left):
        assert not sectioned.executor.wait_gone([ref], 0.0)
        [result] = step(sectioned, plan).results
        if index < left - 1:
            # Units that must follow run as if nobody had cancelled.
            assert result.error is None
            assert result.next_plan is not None
            plan = result.next_plan
    assert result.error is not None
    assert result.error.reason == "LOOP_RELEASED"
    assert sectioned.executor.wait_gone([ref], 0.0)
    assert sectioned.kernel.batches == [1] * (steps + left)
    assert sectioned.pools.in_use_bytes() == sectioned.start_bytes


def test_a_cancel_while_a_unit_runs_waits_for_the_boundary_too(
    sectioned: World, make_request: MakeRequest
) -> None:
    plan = sectioned.prepare(make_request("r", steps=9))
    sectioned.kernel.during_step = lambda: sectioned.executor.cancel(CANCEL)
    [result] = step(sectioned, plan).results
    # It ran before the first unit of a section: two more must follow.
    sectioned.kernel.during_step = lambda: None
    assert result.error is None
    assert result.next_plan is not None
    plan = after(sectioned, result.next_plan, 1)
    [result] = step(sectioned, plan).results
    assert result.error is not None
    assert sectioned.executor.loops == 0


@pytest.mark.parametrize("how", ["release", "start over", "unload"])
def test_where_nobody_is_left_to_run_it_on_a_loop_goes_wherever_it_stands(
    sectioned: World, make_request: MakeRequest, how: str
) -> None:
    after(sectioned, sectioned.prepare(make_request("r", steps=9)), 1)
    sectioned.executor.cancel(CANCEL)
    assert sectioned.executor.loops == 1
    if how == "release":
        sectioned.executor.release(ReleaseLoops(request_id="r", attempt=1))
    elif how == "start over":
        sectioned.executor.start_over(1.0)
    else:
        sectioned.executor.release_model("mi_toy")
    assert sectioned.executor.loops == 0
    assert sectioned.pools.in_use_bytes() == sectioned.start_bytes


def test_freeing_a_loop_that_runs_is_a_violation(world: World, make_request: MakeRequest) -> None:
    world.prepare(make_request("r"))
    [loop] = world.executor._loops._loops.values()
    loop.busy = True
    with pytest.raises(ContractViolation) as caught:
        world.executor._loops._free(loop)
    assert caught.value.reason == "NOT_AT_BOUNDARY"
