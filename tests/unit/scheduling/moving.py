"""A world whose workers save loops and go on with saved ones."""

from dataclasses import replace

from fastvideo.requests.types import ErrorDetail
from fastvideo.scheduling.effects import worker_command
from fastvideo.scheduling.events import (
    AssignLoop,
    Decision,
    LoopFailed,
    LoopPrepared,
    PreemptRequest,
    ReleaseRequest,
    RequestSnapshotted,
    SnapshotRequest,
    WorkerAttached,
    WorkerDraining,
)
from fastvideo.scheduling.inputs import SchedulerInput
from fastvideo.scheduling.work import LoopRef, LoopResult, LoopSnapshot, WorkPlan
from tests.unit.scheduling.world import FakeWorker, World

Scope = tuple[str, int]


class Moving(World):
    """Workers take commands to save; a test says when they have done so."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        # What each worker is asked to save, and the reason for which it cannot.
        self.saving: dict[str, list[SnapshotRequest | PreemptRequest]] = {}
        self.cannot_save = ""
        self.cannot_restore = ""
        self.save_seconds = 0.01

    def tell(self, event: SchedulerInput, *, after_s: float = 0.0) -> tuple[Decision, ...]:
        if isinstance(event, WorkerAttached):
            event = replace(event, snapshots=True)
            self.saving[event.worker_id] = []
        return super().tell(event, after_s=after_s)

    def _carry_out(self, decision: Decision) -> None:
        if isinstance(decision, SnapshotRequest | PreemptRequest):
            assert worker_command(decision) is not None
            self.saving[decision.worker_id].append(decision)
        elif isinstance(decision, ReleaseRequest):
            asked = self.saving[decision.worker_id]
            asked[:] = [other for other in asked if other.request_id != decision.request_id]
            super()._carry_out(decision)
        else:
            super()._carry_out(decision)

    def lose(self, worker_id: str = "w1") -> tuple[Decision, ...]:
        self.saving.pop(worker_id)
        return super().lose(worker_id)

    def drain(self, worker_id: str = "w1") -> tuple[Decision, ...]:
        return self.tell(WorkerDraining(worker_id=worker_id, reason="SIGTERM"))

    def save(self, worker_id: str = "w1") -> tuple[Decision, ...]:
        """The worker saves what it was asked for first, between two steps."""
        worker, asked = self.workers[worker_id], self.saving[worker_id].pop(0)
        scope = (asked.request_id, asked.attempt)
        releases = isinstance(asked, PreemptRequest) and not self.cannot_save
        event = RequestSnapshotted(
            worker_id=worker_id,
            request_id=asked.request_id,
            attempt=asked.attempt,
            snapshots=() if self.cannot_save else self._snapshots(worker, scope),
            seconds=self.save_seconds,
            released=releases,
            error=ErrorDetail(reason=self.cannot_save) if self.cannot_save else None,
        )
        if releases:
            worker.held.pop(scope, None)
            worker.preparing = [
                told
                for told in worker.preparing
                if (told.loop.request_id, told.loop.attempt) != scope
            ]
        return self.tell(event, after_s=self.save_seconds)

    def _snapshots(self, worker: FakeWorker, scope: Scope) -> tuple[LoopSnapshot, ...]:
        return tuple(
            LoopSnapshot(
                loop=LoopRef(request_id=scope[0], node_id=node_id, attempt=scope[1]),
                loop_id=node_id,
                ended=position == len(units),
                state_version=position,
                steps_done=position,
                steps=len(units),
                digest=f"{scope[0]}/{node_id}@{position}",
                loop_result=LoopResult(
                    loop=LoopRef(request_id=scope[0], node_id=node_id, attempt=scope[1]),
                    value_names=("x",),
                )
                if position == len(units)
                else None,
            )
            for node_id, (units, position) in worker.held.get(scope, {}).items()
            # What a write leaves behind is not on the worker.
            if node_id != "write" or position < len(units)
        )

    def prepare(self, worker_id: str = "w1") -> tuple[Decision, ...]:
        worker = self.workers[worker_id]
        told = worker.preparing[0]
        if told.restore is None:
            return super().prepare(worker_id)
        worker.preparing.pop(0)
        if self.cannot_restore:
            error = ErrorDetail(reason=self.cannot_restore)
            return self.tell(LoopFailed(worker_id=worker_id, loop=told.loop, error=error))
        return self._restore(worker, told)

    def _restore(self, worker: FakeWorker, told: AssignLoop) -> tuple[Decision, ...]:
        saved = told.restore
        assert saved is not None
        units = self.plan(self.specs[told.loop.request_id], told.loop, told.model_instance_id)
        key = (told.loop.request_id, told.loop.attempt)
        worker.held.setdefault(key, {})[told.loop.node_id] = (units, saved.state_version)
        plan = WorkPlan(
            loop=told.loop,
            state_version=saved.state_version,
            units=tuple(units[saved.state_version : saved.state_version + 1]),
        )
        return self.tell(LoopPrepared(worker_id=worker.worker_id, plan=plan, seconds=0.001))

    def _may_save(self, worker_id: str) -> bool:
        """Whether what is asked for first has reached its boundary.

        What shall be freed must not be about to run; what goes on may be.
        """
        asked = self.saving[worker_id]
        if asked and isinstance(asked[0], SnapshotRequest):
            return True
        return bool(asked) and not any(
            ref.request_id == asked[0].request_id
            for batch in self.workers[worker_id].batches.values()
            for ref in batch.loops
        )

    def step(self) -> bool:
        for worker_id in list(self.workers):
            if self._may_save(worker_id):
                self.save(worker_id)
                return True
        return super().step()
