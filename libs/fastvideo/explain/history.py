"""The fold: what a shard's stream says of one request, and of the workers that it was on.

Events of other requests matter only where they had a worker that this one waited for. What is
late, doubled or of an attempt that is over is kept as dropped: the scheduler did not take it.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from fastvideo.events.types import EventPayload
from fastvideo.explain.records import (
    AttemptRecord,
    BatchRecord,
    LoopRecord,
    Pause,
    UnitRecord,
    place_of,
)
from fastvideo.explain.types import ExplainedMark, WaitCause
from fastvideo.explain.workers import Rounds, Workers, once, rounds_of
from fastvideo.scheduling.events import (
    AssignLoop,
    BatchExecuted,
    CancelLoop,
    CancelRequest,
    CancelStream,
    CompleteRequest,
    Decision,
    DeferLoop,
    DispatchBatch,
    FailRequest,
    LeaderElected,
    LoopFailed,
    LoopPrepared,
    PreemptRequest,
    QueueRequest,
    RequestSnapshotted,
    RestartRequest,
    SchedulerDecided,
    StartRequest,
    WorkerAttached,
    WorkerDetached,
    WorkerLost,
    WorkerReattached,
    YieldBatch,
)
from fastvideo.scheduling.work import LoopRef, StepResult, WorkPlan

MARKS_MAX: Final = 200
"""A request that is queued and preempted without end is still explained."""


class History:
    """What is known of a request up to the last event that was taken."""

    def __init__(self, request_id: str, accepted_at: datetime) -> None:
        self.request_id = request_id
        self.attempt = 0
        self.units: dict[str, UnitRecord] = {}
        self.loops: list[LoopRecord] = []
        self.attempts: list[AttemptRecord] = []
        self.pauses = [Pause(WaitCause.PLACE, accepted_at)]
        # Times in which its worker had no stream, and was given nothing.
        self.absences: list[Pause] = []
        self.marks: list[ExplainedMark] = []
        self.ended_at: datetime | None = None
        # How it ended, such as "completed" or "failed: ...".
        self.end = ""
        self.workers = Workers()
        # Offered and not dispatched.
        self._ready: dict[str, UnitRecord] = {}
        self._by_node: dict[str, LoopRecord] = {}
        self._incarnations: dict[str, str] = {}
        self._elected_at: datetime | None = None
        self._seen_at = accepted_at

    def take(self, at: datetime, payload: EventPayload) -> None:
        """Take in one event of the shard's stream, which happened at `at`."""
        if not isinstance(payload, LeaderElected):
            self._seen_at = at
        match payload:
            case SchedulerDecided():
                for decision in payload.decisions:
                    self._decided(decision, at)
            case BatchExecuted():
                self._executed(payload, at)
            case LoopPrepared():
                self._prepared(payload, at)
            case LoopFailed(loop=loop, error=error) if loop.request_id == self.request_id:
                self._mark(at, "loop_failed", f"{loop.node_id}: {error.message}")
            case WorkerAttached():
                self._incarnations[payload.worker_id] = payload.incarnation
            case WorkerDetached():
                self._detached(payload, at)
            case WorkerReattached():
                self._reattached(payload, at)
            case WorkerLost():
                self._lost(payload, at)
            case RequestSnapshotted() if payload.request_id == self.request_id:
                self._snapshotted(payload, at)
            case LeaderElected():
                self._elected(payload, at)

    @property
    def pause(self) -> Pause | None:
        """The pause that the request is in."""
        last = self.pauses[-1]
        return last if last.ended_at is None else None

    # -- decisions -----------------------------------------------------------------------

    def _decided(self, decision: Decision, at: datetime) -> None:
        match decision:
            case DispatchBatch():
                self._dispatched(decision, at)
            case AssignLoop(loop=loop) if loop.request_id == self.request_id:
                self._assigned(decision, at)
            case DeferLoop(loop=loop, reason=reason) if loop.request_id == self.request_id:
                self._deferred(loop, reason, at)
            case YieldBatch():
                self.workers.yields(decision.batch_id, decision.reason)
            case QueueRequest() | StartRequest() | RestartRequest() | PreemptRequest():
                if decision.request_id == self.request_id:
                    self._moved(decision, at)
            case CancelLoop(loop=loop) if loop.request_id == self.request_id:
                self._loop_cancelled(decision, at)
            case CancelStream() if decision.request_id == self.request_id:
                self._mark(at, "stream_cancelled", f"{decision.name}: {decision.reason}")
            case CancelRequest() | CompleteRequest() | FailRequest():
                if decision.request_id == self.request_id:
                    self._ended(decision, at)

    def _moved(
        self,
        decision: QueueRequest | StartRequest | RestartRequest | PreemptRequest,
        at: datetime,
    ) -> None:
        match decision:
            case QueueRequest(position=position, reason=reason):
                if self.pause is not None:
                    self.pause.told.append((at, position, reason))
                self._mark(at, "queued", f"position {position}: {reason}")
            case StartRequest():
                self._mark(at, "started", f"attempt {decision.attempt}")
            case RestartRequest(attempt=attempt, reason=reason):
                aside = self.pause is not None and self.pause.cause is WaitCause.PREEMPTION
                self._leave(at, reason, WaitCause.LOSS)
                self.attempt = attempt
                name = "set_aside" if aside else "restarted"
                self._mark(at, name, f"attempt {attempt}: {reason}")
            case PreemptRequest(reason=reason):
                # Its units run on to their boundary; what they give counts.
                self._pause(at, WaitCause.PREEMPTION, reason)
                self._close_attempt(at, f"preempted: {reason}")
                self._mark(at, "preempted", reason)

    def _assigned(self, decision: AssignLoop, at: datetime) -> None:
        ref = decision.loop
        if self.attempts and ref.attempt > self.attempt:
            # A scheduler that knew of nothing but the request began it again.
            self._leave(self._elected_at or at, "another scheduler took over", WaitCause.LOSS)
        self.attempt = ref.attempt
        pause = self.pause
        if pause is not None or not self.attempts:
            if pause is not None:
                pause.ended_at = at
            self.attempts.append(
                AttemptRecord(ref.attempt, decision.worker_id, decision.model_instance_id, at)
            )
        restored = place_of(decision.restore)
        attempt = self.attempts[-1]
        if decision.restore is not None and (not attempt.resumed_from or not restored[1]):
            attempt.resumed_from = restored[0]
        self._drop_loop(ref.node_id, at)
        loop = LoopRecord(ref, decision.loop_id, decision.worker_id, at, restored[0])
        self._by_node[ref.node_id] = loop
        self.loops.append(loop)
        self.workers.watch(decision.worker_id)

    def _loop_cancelled(self, decision: CancelLoop, at: datetime) -> None:
        """One branch ends; what runs of it is still reported."""
        self._drop_loop(decision.loop.node_id, at)
        for unit_id, unit in list(self._ready.items()):
            if unit.loop.ref == decision.loop:
                unit.dropped_at = at
                del self._ready[unit_id]
        self._mark(at, "loop_cancelled", f"{decision.loop.node_id}: {decision.reason}")

    def _drop_loop(self, node_id: str, at: datetime) -> None:
        """A loop that is still being made will not be, or is made again."""
        loop = self._by_node.get(node_id)
        if loop is not None and loop.prepared_at is None and loop.dropped_at is None:
            loop.dropped_at = at

    def _deferred(self, loop: LoopRef, reason: str, at: datetime) -> None:
        for unit in self._ready.values():
            if unit.loop.ref == loop:
                unit.deferrals.append((at, reason))

    def _dispatched(self, decision: DispatchBatch, at: datetime) -> None:
        batch = self.workers.dispatched(decision, at)
        for unit_id, loop in zip(decision.unit_ids, decision.loops, strict=True):
            unit = self.units.get(unit_id)
            if unit is not None and loop.request_id == self.request_id and not unit.done:
                self._ready.pop(unit_id, None)
                unit.batch = batch
                unit.window_position = 1
                unit.batch_size = batch.units
                unit.mates = tuple(id_ for id_ in batch.request_ids if id_ != self.request_id)

    def _ended(self, decision: CancelRequest | CompleteRequest | FailRequest, at: datetime) -> None:
        match decision:
            case CompleteRequest():
                end = "completed"
            case FailRequest(error=error):
                end = f"failed: {error.message}"
            case CancelRequest(reason=reason, boundary=boundary):
                end = "cancelled" + (f": {reason}" if reason else "")
                end += f", at {boundary}" if boundary else ""
        self._drop(at)
        self._end_absence(at)
        self._close_attempt(at, end)
        if self.pause is not None:
            self.pause.ended_at = at
        self.ended_at, self.end = at, end
        self._mark(at, "ended", end)

    # -- reports -------------------------------------------------------------------------

    def _prepared(self, event: LoopPrepared, at: datetime) -> None:
        ref = event.plan.loop
        loop = self._by_node.get(ref.node_id)
        if loop is None or loop.ref != ref or loop.prepared_at is not None:
            return
        loop.prepared_at = at
        loop.preparation_seconds = event.seconds
        self._offer(loop, event.plan, at)

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

    def _executed(self, event: BatchExecuted, at: datetime) -> None:
        rounds = rounds_of(event.results)
        batch = self.workers.executed(event, len(rounds), at)
        if self.request_id in batch.request_ids:
            self._results(batch, rounds, at)

    def _results(self, batch: BatchRecord, rounds: Rounds, at: datetime) -> None:
        offset = 0.0
        for position, results in enumerate(rounds, start=1):
            seconds = max(result.measured_seconds for result in results)
            seconds = seconds or batch.measured_seconds / len(rounds)
            for result in results:
                if result.loop.request_id == self.request_id:
                    unit = self._unit_of(result, batch, offset)
                    if unit is not None:
                        unit.window_position = position
                        unit.offset_seconds = offset
                        unit.measured_seconds = seconds
                        self._take_result(unit, result, results, at)
            offset += seconds

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
        self, unit: UnitRecord, result: StepResult, together: Sequence[StepResult], at: datetime
    ) -> None:
        unit.batch_size = len(together)
        unit.mates = tuple(
            id_
            for id_ in once(other.loop.request_id for other in together)
            if id_ != self.request_id
        )
        unit.lookups = result.cache_lookups
        unit.error = result.error
        if self.ended_at is not None or result.loop.attempt != self.attempt:
            unit.dropped_at = unit.dropped_at or at
            return
        unit.done = True
        unit.dropped_at = None
        if self.attempts:
            self.attempts[-1].units += 1
        if result.next_plan is not None:
            self._offer(unit.loop, result.next_plan, at)

    def _snapshotted(self, event: RequestSnapshotted, at: datetime) -> None:
        if event.error is not None:
            self._mark(at, "snapshot_failed", event.error.message)
            return
        places = ", ".join(place_of(snapshot)[0] for snapshot in event.snapshots)
        self._mark(at, "snapshotted", f"{places} in {event.seconds * 1000:.0f} ms")

    # -- losses --------------------------------------------------------------------------

    def _lost(self, event: WorkerLost, at: datetime) -> None:
        known = self._incarnations.get(event.worker_id, "")
        if known and event.incarnation not in ("", known):
            return
        self.workers.lost(event.worker_id, at)
        if self._is_here(event.worker_id):
            reason = f"worker {event.worker_id} was lost: {event.reason}"
            self._leave(at, reason, WaitCause.LOSS)
            self._mark(at, "worker_lost", reason)

    def _detached(self, event: WorkerDetached, at: datetime) -> None:
        if self._is_here(event.worker_id):
            reason = f"the stream to worker {event.worker_id} broke: {event.reason}"
            self.absences.append(Pause(WaitCause.LOSS, at, reason))
            self._mark(at, "worker_detached", reason)
        self.workers.held_up(at, event.worker_id)

    def _reattached(self, event: WorkerReattached, at: datetime) -> None:
        self._incarnations[event.worker_id] = event.incarnation
        self.workers.kept(event.worker_id, event.batch_ids, at)
        if self._is_here(event.worker_id):
            self._end_absence(at)
            self._mark(at, "worker_reattached", f"worker {event.worker_id} is back with its loops")

    def _elected(self, event: LeaderElected, at: datetime) -> None:
        self._elected_at = at
        self.workers.held_up(at)
        if self.attempts and self._is_here(self.attempts[-1].worker_id):
            # The one before was last heard of by what it wrote last.
            reason = f"scheduler {event.scheduler_id} took over"
            self.absences.append(Pause(WaitCause.LOSS, min(at, self._seen_at), reason))
        if self.ended_at is None:
            self._mark(at, "elected", f"scheduler {event.scheduler_id} leads, epoch {event.epoch}")

    def _leave(self, at: datetime, reason: str, cause: WaitCause) -> None:
        """The placement is over, with all that it had not finished."""
        self._end_absence(at)
        self._drop(at)
        self._close_attempt(at, reason)
        self._pause(at, cause, reason)

    def _is_here(self, worker_id: str) -> bool:
        """Whether the request is on a worker now."""
        placed = self.attempts and self.attempts[-1].worker_id == worker_id
        return bool(placed) and self.ended_at is None and self.pause is None

    def _end_absence(self, at: datetime) -> None:
        for absence in self.absences:
            absence.ended_at = absence.ended_at or at

    def _close_attempt(self, at: datetime, end: str) -> None:
        if self.attempts and self.attempts[-1].ended_at is None:
            self.attempts[-1].ended_at = at
            self.attempts[-1].end = end

    def _pause(self, at: datetime, cause: WaitCause, reason: str) -> None:
        if self.pause is None:
            self.pauses.append(Pause(cause, at, reason))

    def _drop(self, at: datetime) -> None:
        self._ready.clear()
        for unit in self.units.values():
            if not unit.done and unit.dropped_at is None:
                unit.dropped_at = at
        for node_id in self._by_node:
            self._drop_loop(node_id, at)

    def _mark(self, at: datetime, name: str, text: str) -> None:
        if len(self.marks) < MARKS_MAX:
            self.marks.append(ExplainedMark(at=at, name=name, text=text))
