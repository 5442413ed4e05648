"""LoopScheduler: which loops can be prepared, and what each offers to run.

It holds what is known of the loops of one request: prepared or not, at which version, which
units wait, which are in flight.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fastvideo.errors import ContractViolation
from fastvideo.scheduling.request_scheduler import ProgramGraph
from fastvideo.scheduling.work import (
    LoopRef,
    LoopResult,
    LoopSnapshot,
    ResourceRequest,
    WorkPlan,
    WorkUnit,
)


class LoopPhase(StrEnum):
    """Where a loop stands."""

    PREPARING = "preparing"
    ACTIVE = "active"
    ENDED = "ended"


@dataclass(slots=True)
class LoopRun:
    """One loop of one try of a request."""

    ref: LoopRef
    loop_id: str
    phase: LoopPhase = LoopPhase.PREPARING
    state_version: int = 0
    # Offered units that do not run yet, and those that do.
    waiting: dict[str, WorkUnit] = field(default_factory=dict)
    in_flight: dict[str, WorkUnit] = field(default_factory=dict)
    steps_done: int = 0
    steps: int = 0
    result: LoopResult | None = None
    # The snapshot that it was made from.
    restore: LoopSnapshot | None = None
    # What its last unit declared, and as amounts.
    declared: ResourceRequest | None = None
    amounts: dict[str, float] = field(default_factory=dict)
    # What stays reserved on its worker until it ends.
    kept: dict[str, float] = field(default_factory=dict)

    @property
    def fraction(self) -> float:
        """How far it is, from 0 to 1."""
        if self.phase is LoopPhase.ENDED:
            return 1.0
        return min(1.0, self.steps_done / self.steps) if self.steps else 0.0


class LoopScheduler:
    """Rules over loops; the loops themselves belong to the state."""

    def preparable(self, graph: ProgramGraph, loops: Mapping[str, LoopRun]) -> tuple[str, ...]:
        """The nodes whose inputs are there and whose loops have not begun."""
        ended = {node_id for node_id, run in loops.items() if run.phase is LoopPhase.ENDED}
        return graph.startable(loops.keys(), ended)

    def offered(self, run: LoopRun, plan: WorkPlan) -> tuple[WorkUnit, ...]:
        """The units of a plan that are new; none when the plan is older than the loop.

        Raises ContractViolation when a unit lacks what a plan must declare.
        """
        if plan.state_version < run.state_version:
            return ()
        known = run.waiting.keys() | run.in_flight.keys()
        new = tuple(unit for unit in plan.units if unit.unit_id not in known)
        for unit in new:
            _check_unit(run, unit)
        return new

    def fraction(
        self, graph: ProgramGraph, loops: Mapping[str, LoopRun], done: Collection[str] = ()
    ) -> float:
        """How far the request is, from 0 to 1; `done` are nodes of earlier tries."""
        now = sum(graph.weights[node_id] * run.fraction for node_id, run in loops.items())
        return now + sum(graph.weights[node_id] for node_id in done if node_id not in loops)

    def boundary(self, loops: Mapping[str, LoopRun]) -> str:
        """Where the loops stand, such as "denoise 7/20"; "queued" before any has begun."""
        active = [
            f"{node_id} {run.steps_done}/{run.steps}" if run.steps else node_id
            for node_id, run in loops.items()
            if run.phase is not LoopPhase.ENDED
        ]
        if active:
            return ", ".join(active)
        ended = list(loops)
        return f"after {ended[-1]}" if ended else "queued"


def _check_unit(run: LoopRun, unit: WorkUnit) -> None:
    problem = ""
    if not unit.unit_id:
        problem = "it has no id"
    elif unit.loop != run.ref:
        problem = f"it belongs to {unit.loop}"
    elif unit.max_batch < 1:
        problem = "its max_batch is 0"
    elif not unit.step_range.start < unit.step_range.stop <= unit.step_range.total:
        problem = f"its steps are {unit.step_range}"
    if problem:
        raise ContractViolation(
            f"unit {unit.unit_id!r} of loop {run.loop_id} is not schedulable: {problem}",
            reason="PLAN_INVALID",
            subject=unit.unit_id,
        )
