"""What a simulated worker's process holds, and what dies with it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fastvideo.scheduling.events import AssignLoop, ResidentLoop, WorkerReattached
from fastvideo.scheduling.work import LoopRef
from fastvideo.simulation.batches import BatchRun
from fastvideo.simulation.lane import Lane
from fastvideo.simulation.loops import SimulatedLoop
from fastvideo.simulation.snapshots import Saving

Scope = tuple[str, int]
"""A request's id and the attempt."""


@dataclass(slots=True)
class Process:
    """Loops, batches, and reports that nobody has acknowledged."""

    incarnation: str
    compute: Lane
    io: Lane
    # An attempt's loops by node.
    scopes: dict[Scope, dict[str, SimulatedLoop]] = field(default_factory=dict)
    # Loops that are being made; one that was released meanwhile is not here any more.
    preparing: dict[LoopRef, AssignLoop] = field(default_factory=dict)
    # Batches that were given and not reported.
    batches: dict[str, BatchRun] = field(default_factory=dict)
    yields: set[str] = field(default_factory=set)
    saving: list[Saving] = field(default_factory=list)
    reports: dict[int, Any] = field(default_factory=dict)
    reported: int = 0
    draining: bool = False
    # How many streams it has had.
    streams: int = 0
    # Since when it has no leader; None while it has one.
    alone_since_us: int | None = None

    def start_over(self) -> None:
        """Free everything, under a new stream."""
        self.alone_since_us = None
        self.streams += 1
        for scope in list(self.scopes):
            self.free(scope)
        self.preparing.clear()
        self.batches.clear()
        self.saving.clear()
        self.reports.clear()

    def resume(self, worker_id: str, after: int) -> tuple[Any, ...]:
        """Go on under a new stream: the reports after one, and then what is here."""
        self.alone_since_us = None
        self.streams += 1
        self.acknowledge(after)
        made = (
            ResidentLoop(
                loop=loop.ref,
                loop_id=loop.run.loop_id,
                model_instance_id=loop.instance,
                state_version=loop.position,
            )
            for scope in self.scopes.values()
            for loop in scope.values()
        )
        preparing = (
            ResidentLoop(
                loop=ref,
                loop_id=command.loop_id,
                model_instance_id=command.model_instance_id,
                preparing=True,
            )
            for ref, command in self.preparing.items()
        )
        reattached = WorkerReattached(
            worker_id=worker_id,
            incarnation=self.incarnation,
            loops=(*made, *preparing),
            batch_ids=tuple(self.batches),
            scopes=tuple(f"{request_id}/{attempt}" for request_id, attempt in self.scopes),
            report=self.reported,
        )
        return (*self.reports.values(), reattached)

    def acknowledge(self, report: int) -> None:
        """Reports up to this one are in the log."""
        while self.reports and next(iter(self.reports)) <= report:
            del self.reports[next(iter(self.reports))]

    def batches_of(self, scope: Scope) -> list[BatchRun]:
        """The batches, queued or running, that units of an attempt are in."""
        return [
            run
            for run in self.batches.values()
            if any((ref.request_id, ref.attempt) == scope for ref in run.command.loops)
        ]

    def free(self, scope: Scope, node_ids: Sequence[str] = ()) -> None:
        """Free an attempt's loops, or those of some nodes, also such as are being made."""
        for ref in list(self.preparing):
            if (ref.request_id, ref.attempt) == scope and (not node_ids or ref.node_id in node_ids):
                del self.preparing[ref]
        loops = self.scopes.get(scope, {})
        for node_id in tuple(node_ids or loops):
            loop = loops.pop(node_id, None)
            if loop is not None:
                loop.released = True
        if not loops:
            self.scopes.pop(scope, None)

    def held(self) -> tuple[str, ...]:
        """The attempts that are here, and what is on its way."""
        scopes = (f"{request_id}/{attempt}" for request_id, attempt in self.scopes)
        making = (f"{ref.request_id}/{ref.attempt}/{ref.node_id}" for ref in self.preparing)
        saving = (f"snapshot of {saving.request_id}" for saving in self.saving)
        return (*scopes, *making, *self.batches, *saving)
