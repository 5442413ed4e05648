"""A request's loops and units: offered, dispatched, run, or dropped."""

from collections.abc import Sequence
from datetime import datetime

from fastvideo.explain.records import BatchRecord, LoopRecord, UnitRecord
from fastvideo.explain.workers import Rounds, once
from fastvideo.scheduling.events import DispatchBatch, LoopPrepared
from fastvideo.scheduling.work import LoopRef, StepResult, WorkPlan


class Work:
    """What there was to do for a request. What is done stays done, whatever comes later."""

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self.units: dict[str, UnitRecord] = {}
        self.loops: list[LoopRecord] = []
        # Offered and not dispatched.
        self._ready: dict[str, UnitRecord] = {}
        self._by_node: dict[str, LoopRecord] = {}

    def assigned(self, loop: LoopRecord) -> None:
        """A loop is to be made on a worker."""
        self._drop_loop(loop.ref.node_id, loop.assigned_at)
        self._by_node[loop.ref.node_id] = loop
        self.loops.append(loop)

    def cancelled(self, ref: LoopRef, at: datetime) -> None:
        """One branch ends; what runs of it is still reported."""
        self._drop_loop(ref.node_id, at)
        for unit_id, unit in list(self._ready.items()):
            if unit.loop.ref == ref:
                unit.dropped_at = at
                del self._ready[unit_id]

    def deferred(self, loop: LoopRef, reason: str, at: datetime) -> None:
        """What a loop offers was not admitted."""
        for unit in self._ready.values():
            if unit.loop.ref == loop:
                unit.deferrals.append((at, reason))

    def dispatched(self, decision: DispatchBatch, batch: BatchRecord) -> None:
        """Some of its units may be in a batch."""
        for unit_id, loop in zip(decision.unit_ids, decision.loops, strict=True):
            unit = self.units.get(unit_id)
            if unit is not None and loop.request_id == self._request_id and not unit.done:
                self._ready.pop(unit_id, None)
                unit.batch = batch
                unit.window_position = 1
                unit.batch_size = batch.units
                unit.mates = self._mates(batch.request_ids)

    def prepared(self, event: LoopPrepared, at: datetime) -> None:
        """A loop was made, and offers its first units."""
        ref = event.plan.loop
        loop = self._by_node.get(ref.node_id)
        if loop is None or loop.ref != ref or loop.prepared_at is not None:
            return
        loop.prepared_at = at
        loop.preparation_seconds = event.seconds
        self._offer(loop, event.plan, at)

    def ran(self, batch: BatchRecord, rounds: Rounds, at: datetime, attempt: int | None) -> int:
        """Take the results of a batch; how many count, which are those of the attempt."""
        counted = 0
        offset = 0.0
        for position, results in enumerate(rounds, start=1):
            seconds = max(result.measured_seconds for result in results)
            seconds = seconds or batch.measured_seconds / len(rounds)
            for result in results:
                if result.loop.request_id != self._request_id:
                    continue
                unit = self._unit_of(result, batch, offset)
                if unit is not None:
                    unit.window_position = position
                    unit.offset_seconds = offset
                    unit.measured_seconds = seconds
                    counted += self._take_result(unit, result, results, at, attempt)
            offset += seconds
        return counted

    def drop(self, at: datetime) -> None:
        """What has not run will not."""
        self._ready.clear()
        for unit in self.units.values():
            if not unit.done and unit.dropped_at is None:
                unit.dropped_at = at
        for node_id in self._by_node:
            self._drop_loop(node_id, at)

    def _drop_loop(self, node_id: str, at: datetime) -> None:
        """A loop that is still being made will not be, or is made again."""
        loop = self._by_node.get(node_id)
        if loop is not None and loop.prepared_at is None and loop.dropped_at is None:
            loop.dropped_at = at

    def _offer(self, loop: LoopRecord, plan: WorkPlan, at: datetime) -> None:
        for unit in plan.units:
            known = self.units.get(unit.unit_id)
            if known is not None and not known.done:
                # Offered again after a pause: it waits since it was first ready.
                known.loop, known.dropped_at, known.batch = loop, None, None
                self._ready[unit.unit_id] = known
            elif known is None:
                loop.compute = unit.resources.compute
                self.units[unit.unit_id] = self._ready[unit.unit_id] = UnitRecord(
                    unit_id=unit.unit_id,
                    loop=loop,
                    kind=unit.kind,
                    step_range=unit.step_range,
                    compute=unit.resources.compute,
                    ready_at=at,
                )

    def _unit_of(self, result: StepResult, batch: BatchRecord, offset: float) -> UnitRecord | None:
        """The record of a unit that ran; None when it is done already."""
        unit = self.units.get(result.unit_id)
        if unit is None:
            loop = self._by_node.get(result.loop.node_id)
            if loop is None or loop.ref != result.loop:
                return None
            unit = UnitRecord(
                unit_id=result.unit_id,
                loop=loop,
                kind=batch.kind,
                step_range=result.step_range,
                compute=batch.on_compute if loop.compute is None else loop.compute,
                ready_at=None,
            )
            self.units[unit.unit_id] = unit
        elif unit.done:
            return None
        self._ready.pop(unit.unit_id, None)
        unit.batch = batch
        if offset > 0 and batch.started_at is not None:
            # A later step of a window was never offered: the one before it made it ready.
            unit.offset_seconds = offset
            unit.ready_at = unit.started_at
        return unit

    def _take_result(
        self,
        unit: UnitRecord,
        result: StepResult,
        together: Sequence[StepResult],
        at: datetime,
        attempt: int | None,
    ) -> bool:
        """Whether it counts: the scheduler took it only of the attempt that it was at."""
        unit.batch_size = len(together)
        unit.mates = self._mates(once(other.loop.request_id for other in together))
        unit.lookups = result.cache_lookups
        unit.error = result.error
        if result.loop.attempt != attempt:
            unit.dropped_at = unit.dropped_at or at
            return False
        unit.done = True
        unit.dropped_at = None
        if result.next_plan is not None:
            self._offer(unit.loop, result.next_plan, at)
        return True

    def _mates(self, request_ids: Sequence[str]) -> tuple[str, ...]:
        return tuple(id_ for id_ in request_ids if id_ != self._request_id)
