"""The plan of a loop in sequence: one unit at a time, with everything declared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fastvideo.loops.contract import PlanContext, StateBase
from fastvideo.model.specs import LoopSpec
from fastvideo.scheduling.work import (
    CachePlan,
    LoopRef,
    OutputSink,
    PlacementHint,
    ResourceRequest,
    StepRange,
    WorkPlan,
    WorkUnit,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitShape:
    """What a kernel says of its next unit beside its position."""

    batch_key: str
    cost_shape: str
    # Bytes of activations while the unit runs.
    activation_bytes: int
    # Names of the values that the loop hands on.
    outputs: Sequence[str]
    max_batch: int = 1
    cache_plan: CachePlan = field(default_factory=CachePlan)


def next_unit_plan(
    spec: LoopSpec, state: StateBase, context: PlanContext, index: int, total: int, shape: UnitShape
) -> WorkPlan | None:
    """The plan for unit `index` of `total`, or None when all are done.

    Every later unit is certain to follow: nothing that these loops compute ends them early.
    """
    if index >= total:
        return None
    unit = WorkUnit(
        unit_id=unit_id(state.loop, index),
        loop=state.loop,
        session_id=context.session_id,
        program_id=context.program_id,
        loop_id=spec.loop_id,
        model_instance_id=context.model_instance_id,
        kind=spec.unit_kind,
        step_range=StepRange(start=index, stop=index + 1, total=total),
        batch_key=shape.batch_key,
        max_batch=shape.max_batch,
        cost_phase=spec.cost.phase,
        cost_shape=shape.cost_shape,
        resources=_resources(shape),
        cache_plan=shape.cache_plan,
        placement_hint=PlacementHint(sticky=True),
        output_sinks=tuple(OutputSink(kind="value", name=name) for name in shape.outputs),
        cancel_boundary=spec.preemption_policy == "every_step",
        unconditional_next=total - index - 1,
    )
    return WorkPlan(loop=state.loop, state_version=state.version, units=(unit,))


def unit_id(loop: LoopRef, index: int) -> str:
    """A unit's id: the same for the same unit of the same attempt."""
    return f"{loop.request_id}/{loop.node_id}/{loop.attempt}/{index}"


def _resources(shape: UnitShape) -> ResourceRequest:
    memory: Mapping[str, int] = {"activations": shape.activation_bytes}
    return ResourceRequest(
        compute=True, memory_bytes=memory, cache_blocks=len(shape.cache_plan.writes)
    )
