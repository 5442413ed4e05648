"""What a plan must declare before the runtime takes it."""

from collections.abc import Iterator
from typing import Final

from fastvideo.errors import ContractViolation
from fastvideo.loops.contract import StateBase
from fastvideo.memory.pools import MemoryTag
from fastvideo.model.specs import LoopSpec
from fastvideo.scheduling.work import OFF_STEP_PATH, UnitKind, WorkPlan, WorkUnit

UNITS_MAX: Final = 64
"""The most units that a loop may offer at once."""


def check_plan(plan: WorkPlan, state: StateBase, spec: LoopSpec) -> None:
    """Check that a plan is for this state and that its units declare everything.

    Raises ContractViolation naming the loop and what is missing.
    """
    problems = list(_plan_problems(plan, state))
    for unit in plan.units:
        faults = _unit_problems(unit, state, spec)
        problems += [f"unit {unit.unit_id or '?'} {fault}" for fault in faults]
    if problems:
        raise ContractViolation(
            f"plan of loop {spec.loop_id}: {'; '.join(problems)}",
            reason="INCOMPLETE_PLAN",
            subject=spec.loop_id,
        )


def unit_kinds(spec: LoopSpec) -> tuple[UnitKind, ...]:
    """The kinds of units that a loop may plan, its main one first."""
    return (spec.unit_kind, *(phase.unit_kind for phase in spec.phases))


def _plan_problems(plan: WorkPlan, state: StateBase) -> Iterator[str]:
    if plan.loop != state.loop:
        yield "is for another loop"
    if plan.state_version != state.version:
        yield f"is for version {plan.state_version}, the state has {state.version}"
    if not plan.units:
        yield "has no units; a loop with nothing left to run plans None"
    if len(plan.units) > UNITS_MAX:
        yield f"has {len(plan.units)} units; the most is {UNITS_MAX}"
    ids = [unit.unit_id for unit in plan.units]
    if len(set(ids)) != len(ids):
        yield "names a unit twice"


def _unit_problems(unit: WorkUnit, state: StateBase, spec: LoopSpec) -> Iterator[str]:
    yield from _identity_problems(unit, state, spec)
    yield from _resource_problems(unit, spec)
    if not unit.output_sinks:
        yield "declares no output sinks"
    if not (unit.placement_hint.sticky or unit.placement_hint.role):
        yield "declares no placement"
    if spec.preemption_policy == "every_step" and not unit.cancel_boundary:
        yield "is no cancel boundary on a loop that may stop at every step"
    if not 0 <= unit.unconditional_next <= unit.step_range.total - unit.step_range.stop:
        yield f"is followed by {unit.unconditional_next} units that cannot be"


def _identity_problems(unit: WorkUnit, state: StateBase, spec: LoopSpec) -> Iterator[str]:
    if not unit.unit_id:
        yield "has no id"
    if unit.loop != state.loop:
        yield "is of another loop"
    kinds = unit_kinds(spec)
    if unit.loop_id != spec.loop_id or unit.kind not in kinds:
        yield f"is {unit.kind.value} of {unit.loop_id!r}, not {' or '.join(kinds)}"
    if not 0 <= unit.step_range.start < unit.step_range.stop <= unit.step_range.total:
        yield f"covers no steps: {unit.step_range}"
    for name in ("model_instance_id", "batch_key", "cost_phase", "cost_shape"):
        if not getattr(unit, name):
            yield f"declares no {name}"


def _resource_problems(unit: WorkUnit, spec: LoopSpec) -> Iterator[str]:
    if not 1 <= unit.max_batch <= spec.step_policy.max_batch:
        yield f"declares max_batch {unit.max_batch}; the card allows {spec.step_policy.max_batch}"
    if unit.resources.compute and unit.kind in OFF_STEP_PATH:
        yield "takes a compute window off the step path"
    if not (unit.resources.compute or unit.kind in OFF_STEP_PATH):
        yield "takes no compute window"
    if not (unit.resources.memory_bytes or unit.resources.staging_bytes):
        yield "declares no memory"
    if unknown := sorted(set(unit.resources.memory_bytes) - set(MemoryTag)):
        yield f"declares unknown memory pools {unknown}"
    if spec.cache_contracts and not (unit.cache_plan.reads or unit.cache_plan.writes):
        yield "declares no cache reads on a loop that has caches"
    if not spec.cache_contracts and (unit.cache_plan.reads or unit.cache_plan.writes):
        yield "uses a cache on a loop that declares none"
    if _captures(unit, spec) and not unit.resources.capture_shape:
        yield "declares no capture shape"


def _captures(unit: WorkUnit, spec: LoopSpec) -> bool:
    """A loop that captures in units of their own captures in no other."""
    if UnitKind.GRAPH_CAPTURE in unit_kinds(spec):
        return unit.kind is UnitKind.GRAPH_CAPTURE
    return spec.graph_capture_policy != "none"
