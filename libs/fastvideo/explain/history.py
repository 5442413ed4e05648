"""The fold: what a shard's stream says of one request, and of the workers that it was on.

Events of other requests matter only where they had a worker that this one waited for. What is
late, doubled or of an attempt that is over is kept as dropped: the scheduler did not take it.
"""

from datetime import datetime

from fastvideo.events.types import EventPayload
from fastvideo.explain.course import Course
from fastvideo.explain.records import LoopRecord, place_of
from fastvideo.explain.types import WaitCause
from fastvideo.explain.work import Work
from fastvideo.explain.workers import Workers, rounds_of
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


class History:
    """What is known of a request up to the last event that was taken."""

    def __init__(self, request_id: str, accepted_at: datetime) -> None:
        self.request_id = request_id
        self.course = Course(accepted_at)
        self.work = Work(request_id)
        self.workers = Workers()
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
                self.work.prepared(payload, at)
            case LoopFailed(loop=loop, error=error) if loop.request_id == self.request_id:
                self.course.mark(at, "loop_failed", f"{loop.node_id}: {error.message}")
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

    # -- decisions -----------------------------------------------------------------------

    def _decided(self, decision: Decision, at: datetime) -> None:
        match decision:
            case DispatchBatch():
                self.work.dispatched(decision, self.workers.dispatched(decision, at))
            case AssignLoop(loop=loop) if loop.request_id == self.request_id:
                self._assigned(decision, at)
            case DeferLoop(loop=loop, reason=reason) if loop.request_id == self.request_id:
                self.work.deferred(loop, reason, at)
            case YieldBatch():
                self.workers.yields(decision.batch_id, decision.reason)
            case QueueRequest() | StartRequest() | RestartRequest() | PreemptRequest():
                if decision.request_id == self.request_id:
                    self._moved(decision, at)
            case CancelLoop(loop=loop) if loop.request_id == self.request_id:
                self._loop_cancelled(decision, at)
            case CancelStream() if decision.request_id == self.request_id:
                self.course.mark(at, "stream_cancelled", f"{decision.name}: {decision.reason}")
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
                if self.course.pause is not None:
                    self.course.pause.told.append((at, position, reason))
                self.course.mark(at, "queued", f"position {position}: {reason}")
            case StartRequest():
                self.course.mark(at, "started", f"attempt {decision.attempt}")
            case RestartRequest(attempt=attempt, reason=reason):
                pause = self.course.pause
                aside = pause is not None and pause.cause is WaitCause.PREEMPTION
                self._leave(at, reason, WaitCause.LOSS)
                self.course.attempt = attempt
                name = "set_aside" if aside else "restarted"
                self.course.mark(at, name, f"attempt {attempt}: {reason}")
            case PreemptRequest(reason=reason):
                # Its units run on to their boundary; what they give counts.
                self.course.begin_pause(at, WaitCause.PREEMPTION, reason)
                self.course.close_attempt(at, f"preempted: {reason}")
                self.course.mark(at, "preempted", reason)

    def _assigned(self, decision: AssignLoop, at: datetime) -> None:
        ref, course = decision.loop, self.course
        if course.attempts and ref.attempt > course.attempt:
            # A scheduler that knew of nothing but the request began it again.
            self._leave(self._elected_at or at, "another scheduler took over", WaitCause.LOSS)
        attempt = course.place(at, ref.attempt, decision.worker_id, decision.model_instance_id)
        restored = place_of(decision.restore)
        if decision.restore is not None and (not attempt.resumed_from or not restored[1]):
            attempt.resumed_from = restored[0]
        self.work.assigned(LoopRecord(ref, decision.loop_id, decision.worker_id, at, restored[0]))
        self.workers.watch(decision.worker_id)

    def _loop_cancelled(self, decision: CancelLoop, at: datetime) -> None:
        self.work.cancelled(decision.loop, at)
        self.course.mark(at, "loop_cancelled", f"{decision.loop.node_id}: {decision.reason}")

    def _ended(self, decision: CancelRequest | CompleteRequest | FailRequest, at: datetime) -> None:
        match decision:
            case CompleteRequest():
                end = "completed"
            case FailRequest(error=error):
                end = f"failed: {error.message}"
            case CancelRequest(reason=reason, boundary=boundary):
                end = "cancelled" + (f": {reason}" if reason else "")
                end += f", at {boundary}" if boundary else ""
        self.work.drop(at)
        self.course.finish(at, end)
        self.course.mark(at, "ended", end)

    # -- reports -------------------------------------------------------------------------

    def _executed(self, event: BatchExecuted, at: datetime) -> None:
        rounds = rounds_of(event.results)
        batch = self.workers.executed(event, len(rounds), at)
        if self.request_id in batch.request_ids:
            course = self.course
            attempt = course.attempt if course.ended_at is None else None
            counted = self.work.ran(batch, rounds, at, attempt)
            if course.attempts:
                course.attempts[-1].units += counted

    def _snapshotted(self, event: RequestSnapshotted, at: datetime) -> None:
        if event.error is not None:
            self.course.mark(at, "snapshot_failed", event.error.message)
            return
        places = ", ".join(place_of(snapshot)[0] for snapshot in event.snapshots)
        self.course.mark(at, "snapshotted", f"{places} in {event.seconds * 1000:.0f} ms")

    # -- losses --------------------------------------------------------------------------

    def _lost(self, event: WorkerLost, at: datetime) -> None:
        known = self._incarnations.get(event.worker_id, "")
        if known and event.incarnation not in ("", known):
            return
        self.workers.lost(event.worker_id, at)
        if self.course.is_on(event.worker_id):
            reason = f"worker {event.worker_id} was lost: {event.reason}"
            self._leave(at, reason, WaitCause.LOSS)
            self.course.mark(at, "worker_lost", reason)

    def _detached(self, event: WorkerDetached, at: datetime) -> None:
        if self.course.is_on(event.worker_id):
            reason = f"the stream to worker {event.worker_id} broke: {event.reason}"
            self.course.begin_absence(at, reason)
            self.course.mark(at, "worker_detached", reason)
        self.workers.held_up(at, event.worker_id)

    def _reattached(self, event: WorkerReattached, at: datetime) -> None:
        self._incarnations[event.worker_id] = event.incarnation
        self.workers.kept(event.worker_id, event.batch_ids, at)
        if self.course.is_on(event.worker_id):
            self.course.end_absence(at)
            back = f"worker {event.worker_id} is back with its loops"
            self.course.mark(at, "worker_reattached", back)

    def _elected(self, event: LeaderElected, at: datetime) -> None:
        self._elected_at = at
        self.workers.held_up(at)
        if self.course.attempts and self.course.is_on(self.course.attempts[-1].worker_id):
            # The one before was last heard of by what it wrote last.
            reason = f"scheduler {event.scheduler_id} took over"
            self.course.begin_absence(min(at, self._seen_at), reason)
        if self.course.ended_at is None:
            leads = f"scheduler {event.scheduler_id} leads, epoch {event.epoch}"
            self.course.mark(at, "elected", leads)

    def _leave(self, at: datetime, reason: str, cause: WaitCause) -> None:
        """The placement is over, with all that it had not finished."""
        self.course.end_absence(at)
        self.work.drop(at)
        self.course.close_attempt(at, reason)
        self.course.begin_pause(at, cause, reason)
