"""A world whose messages can be lost: workers with inboxes and numbered reports, a leader that
can die with the end of what it decided."""

import random
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from fastvideo.scheduling.core import SchedulerCore
from fastvideo.scheduling.events import (
    AssignLoop,
    BatchExecuted,
    Decision,
    DispatchBatch,
    LeaderElected,
    LoopPrepared,
    ReleaseRequest,
    RequestSnapshotted,
    ResidentLoop,
    WorkerDetached,
    WorkerLost,
    WorkerReattached,
)
from fastvideo.scheduling.inputs import CancelRequested, RequestSubmitted, SchedulerInput
from fastvideo.scheduling.snapshot import SchedulerSnapshot
from fastvideo.scheduling.work import WorkPlan
from tests.unit.scheduling.world import Catalog, FakeWorker, World

Report = LoopPrepared | BatchExecuted | RequestSnapshotted


@dataclass
class Desk:
    """What lies between a core and one worker."""

    # Decisions on their way to the worker, and its reports in order.
    inbox: list[Decision] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    # How many of the reports the core was told; the stream is up.
    told: int = 0
    attached: bool = True


class Fleet(World):
    """Commands and reports travel; a seed decides how fast."""

    def __init__(self, seed: int = 0, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.random = random.Random(seed)
        self.desks: dict[str, Desk] = defaultdict(Desk)
        self.epoch = 1
        self.policy: Any = options.get("policy")
        self.submitted = 0
        # Histories of dead leaders, as far as they are in the log.
        self.log: list[tuple[SchedulerInput, object, tuple[Decision, ...]]] = []

    # -- what travels --------------------------------------------------------------------

    def _carry_out(self, decision: Decision) -> None:
        worker_id = getattr(decision, "worker_id", "")
        if worker_id and self.desks[worker_id].attached:
            self.desks[worker_id].inbox.append(decision)

    def attach(self, worker_id: str = "w1", **options: object):
        self.desks[worker_id] = Desk()
        return super().attach(worker_id, **options)  # type: ignore[arg-type]

    def arrive(self, worker_id: str) -> bool:
        """The worker takes the next command."""
        desk, worker = self.desks[worker_id], self.workers[worker_id]
        if not desk.inbox:
            return False
        self.take_command(worker, desk.inbox.pop(0))
        return True

    def take_command(self, worker: FakeWorker, command: Decision) -> None:
        """The worker takes in a command."""
        if isinstance(command, ReleaseRequest):
            self._free(worker, command)
        elif isinstance(command, AssignLoop | DispatchBatch):
            super()._carry_out(command)

    def _free(self, worker: FakeWorker, command: ReleaseRequest) -> None:
        key = (command.request_id, command.attempt)
        nodes = command.node_ids or tuple(worker.held.get(key, ()))
        for node_id in nodes:
            worker.held.get(key, {}).pop(node_id, None)
        if not worker.held.get(key):
            worker.held.pop(key, None)
        worker.preparing = [
            told
            for told in worker.preparing
            if (told.loop.request_id, told.loop.attempt) != key
            or (command.node_ids and told.loop.node_id not in command.node_ids)
        ]

    def make(self, worker_id: str) -> bool:
        """The worker prepares a loop or runs a batch; the report waits to be sent."""
        worker = self.workers[worker_id]
        being_made = {told.loop for told in worker.preparing}
        batch = next(iter(worker.batches.values()), None)
        # A worker runs a loop's commands in order.
        runs = batch is not None and being_made.isdisjoint(batch.loops)
        able = [self._prepared] * bool(worker.preparing) + [self._executed] * runs
        if not able:
            return False
        self._report(worker_id, self.random.choice(able)(worker))
        return True

    def _prepared(self, worker: FakeWorker) -> LoopPrepared:
        told = worker.preparing.pop(0)
        spec = self.specs[told.loop.request_id]
        units = self.plan(spec, told.loop, told.model_instance_id)
        key = (told.loop.request_id, told.loop.attempt)
        worker.held.setdefault(key, {})[told.loop.node_id] = (units, 0)
        plan = WorkPlan(loop=told.loop, state_version=0, units=tuple(units[:1]))
        return LoopPrepared(worker_id=worker.worker_id, plan=plan, seconds=0.001)

    def _executed(self, worker: FakeWorker) -> BatchExecuted:
        return self.execution(worker.worker_id)

    def result(self, worker, ref, unit_id):
        if ref.node_id not in worker.held.get((ref.request_id, ref.attempt), {}):
            return self.released(ref, unit_id)
        return super().result(worker, ref, unit_id)

    def released(self, ref, unit_id):
        from fastvideo.requests.types import ErrorDetail
        from fastvideo.scheduling.work import StepResult

        return StepResult(unit_id=unit_id, loop=ref, error=ErrorDetail(reason="LOOP_RELEASED"))

    def _report(self, worker_id: str, event: Report) -> None:
        desk = self.desks[worker_id]
        desk.reports.append(replace(event, report=len(desk.reports) + 1))

    def hear(self, worker_id: str) -> bool:
        """The core takes in the next report."""
        desk = self.desks[worker_id]
        if not desk.attached or desk.told >= len(desk.reports):
            return False
        report = desk.reports[desk.told]
        desk.told += 1
        self.tell(report, after_s=self.batch_seconds)
        return True

    # -- breaks --------------------------------------------------------------------------

    def detach(self, worker_id: str) -> None:
        """The stream breaks: what was on its way is gone."""
        self._cut(worker_id)
        incarnation = self.workers[worker_id].incarnation
        self.tell(WorkerDetached(worker_id=worker_id, incarnation=incarnation, reason="broken"))

    def _cut(self, worker_id: str) -> None:
        desk = self.desks[worker_id]
        desk.attached = False
        desk.inbox.clear()

    def reattach(self, worker_id: str) -> None:
        """The worker comes back: what was not told, then what it holds."""
        desk, worker = self.desks[worker_id], self.workers[worker_id]
        desk.told = self.core.reported(worker_id)
        for report in desk.reports[desk.told :]:
            desk.told += 1
            self.tell(report)
        desk.attached = True
        self.tell(self.inventory(worker, desk))

    def inventory(self, worker: FakeWorker, desk: Desk) -> WorkerReattached:
        loops = [
            ResidentLoop(loop=replace_ref(key, node_id), state_version=position)
            for key, nodes in worker.held.items()
            for node_id, (units, position) in nodes.items()
            if position < len(units)
        ]
        loops += [ResidentLoop(loop=told.loop, preparing=True) for told in worker.preparing]
        return WorkerReattached(
            worker_id=worker.worker_id,
            incarnation=worker.incarnation,
            loops=tuple(loops),
            batch_ids=tuple(worker.batches),
            scopes=tuple(f"{request_id}/{attempt}" for request_id, attempt in worker.held),
            report=len(desk.reports),
        )

    def fail_over(self, written: int, *, folded_from: int = 0) -> None:
        """The leader dies with only so many of its inputs written; another takes over.

        The workers are detached afterwards, and come back when they are told to.
        """
        kept, lost = self.history[:written], self.history[written:]
        self.core = self._fold(kept, folded_from)
        self.history = []
        self.log += kept
        self.epoch += 1
        for worker_id in self.workers:
            self._cut(worker_id)
        self.tell(LeaderElected(scheduler_id=f"s{self.epoch}", epoch=self.epoch))
        for event, _, _ in lost:
            # These are in the log by themselves.
            if isinstance(event, RequestSubmitted | CancelRequested):
                self.tell(event)
        for view in self.core.workers:
            if self._incarnation(view.worker_id) != self.core.incarnation(view.worker_id):
                self.tell(WorkerLost(worker_id=view.worker_id, reason="it did not come back"))

    def _incarnation(self, worker_id: str) -> str:
        worker = self.workers.get(worker_id)
        return worker.incarnation if worker is not None else ""

    def _fold(self, kept, folded_from: int) -> SchedulerCore:
        """A snapshot at some point, and what was written after it."""
        core = self._first_core()
        for number, (event, now, decisions) in enumerate([*self.log, *kept]):
            if number == folded_from:
                data = SchedulerSnapshot.decode(core.snapshot().encode())
                core = SchedulerCore.restore(Catalog(), self.policy, data)
            core.replay(event, decisions, now)
        return core

    def _first_core(self) -> SchedulerCore:
        return SchedulerCore(Catalog(), policy=self.policy, epoch=1)

    def come_back(self) -> None:
        """Every worker reattaches; one that the leader does not know begins from nothing."""
        for worker_id in list(self.workers):
            if self.desks[worker_id].attached:
                continue
            if self.core.incarnation(worker_id):
                self.reattach(worker_id)
            else:
                self.attach(worker_id)

    # -- going on ------------------------------------------------------------------------

    def step(self) -> bool:
        done = False
        for worker_id in list(self.workers):
            for act in (self.arrive, self.make, self.hear):
                done = act(worker_id) or done
        return done


def replace_ref(key: tuple[str, int], node_id: str):
    from fastvideo.scheduling.work import LoopRef

    return LoopRef(request_id=key[0], node_id=node_id, attempt=key[1])
