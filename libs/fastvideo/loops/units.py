"""The plan of a loop in sequence: one unit at a time, with everything declared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fastvideo.errors import ContractViolation
from fastvideo.loops.contract import PlanContext, StateBase
from fastvideo.model.specs import CostPrior, LoopSpec
from fastvideo.scheduling.work import (
    CachePlan,
    LoopRef,
    OutputSink,
    PlacementHint,
    ResourceRequest,
    StepRange,
    UnitKind,
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
    # Of a loop of several kinds; None is its main one.
    kind: UnitKind | None = None
    # How many of the loop's steps the unit covers. Inside of a unit there is no boundary, unlike
    # in the window of a dispatch, which runs several units.
    steps: int = 1
    # False for a unit off the step path.
    compute: bool = True
    # Blocks of a paged cache; None counts what the unit writes to caches.
    cache_blocks: int | None = None
    staging_bytes: int = 0
    transfer_bytes: int = 0
    # The graph shape that the unit captures.
    capture_shape: str = ""
    # Units after this one that are certain to follow; None is all that are left.
    unconditional_next: int | None = None


def next_unit_plan(
    spec: LoopSpec, state: StateBase, context: PlanContext, index: int, total: int, shape: UnitShape
) -> WorkPlan | None:
    """The plan for the unit that begins at step `index` of `total`, or None when all are done.

    Every later unit is certain to follow, unless the shape says otherwise.
    """
    if index >= total:
        return None
    kind = shape.kind or spec.unit_kind
    stop = min(total, index + shape.steps)
    certain = total - stop if shape.unconditional_next is None else shape.unconditional_next
    unit = WorkUnit(
        unit_id=unit_id(state.loop, index),
        loop=state.loop,
        session_id=context.session_id,
        program_id=context.program_id,
        loop_id=spec.loop_id,
        model_instance_id=context.model_instance_id,
        kind=kind,
        step_range=StepRange(start=index, stop=stop, total=total),
        batch_key=shape.batch_key,
        max_batch=shape.max_batch,
        cost_phase=cost_of(spec, kind).phase,
        cost_shape=shape.cost_shape,
        resources=_resources(shape),
        cache_plan=shape.cache_plan,
        placement_hint=PlacementHint(sticky=True),
        output_sinks=tuple(OutputSink(kind="value", name=name) for name in shape.outputs),
        cancel_boundary=spec.preemption_policy == "every_step",
        unconditional_next=certain,
    )
    return WorkPlan(loop=state.loop, state_version=state.version, units=(unit,))


def cost_of(spec: LoopSpec, kind: UnitKind) -> CostPrior:
    """The price of one of a loop's kinds of units. Raises ContractViolation for another kind."""
    if kind is spec.unit_kind:
        return spec.cost
    for phase in spec.phases:
        if phase.unit_kind is kind:
            return phase.cost
    raise ContractViolation(f"loop {spec.loop_id} has no units of kind {kind}", subject=kind)


def unit_id(loop: LoopRef, index: int) -> str:
    """A unit's id: the same for the same unit of the same attempt."""
    return f"{loop.request_id}/{loop.node_id}/{loop.attempt}/{index}"


def _resources(shape: UnitShape) -> ResourceRequest:
    memory: Mapping[str, int] = {"activations": shape.activation_bytes}
    blocks = len(shape.cache_plan.writes) if shape.cache_blocks is None else shape.cache_blocks
    return ResourceRequest(
        compute=shape.compute,
        memory_bytes=memory if shape.activation_bytes else {},
        cache_blocks=blocks,
        transfer_bytes=shape.transfer_bytes,
        staging_bytes=shape.staging_bytes,
        capture_shape=shape.capture_shape,
    )
