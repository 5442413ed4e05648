"""One term of a simulated leader: the real core, the streams to its workers, and what it wrote.

As in the service, commands go out when they are decided and what was decided is committed a
moment later, so that a leader that dies leaves workers with commands that nobody remembers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

from fastvideo.scheduling.core import SchedulerCore
from fastvideo.scheduling.events import (
    AssignLoop,
    CancelLoop,
    CancelStream,
    Decision,
    DispatchBatch,
    PreemptRequest,
    ReleaseRequest,
    SnapshotRequest,
    WorkerAttached,
    WorkerDetached,
    WorkerLost,
    WorkerReattached,
    YieldBatch,
)
from fastvideo.scheduling.inputs import SchedulerInput, Tick
from fastvideo.simulation.agenda import Agenda, microseconds
from fastvideo.simulation.arrivals import START
from fastvideo.simulation.stream import Stream
from fastvideo.simulation.trace import FaultsTrace, NetworkTrace
from fastvideo.simulation.worker import SimulatedWorker

COMMANDS: Final = (
    AssignLoop,
    DispatchBatch,
    ReleaseRequest,
    YieldBatch,
    SnapshotRequest,
    PreemptRequest,
    CancelLoop,
    CancelStream,
)
_MICROSECOND: Final = timedelta(microseconds=1)
# Reports that are acknowledged together.
_ACKNOWLEDGED_TOGETHER: Final = 32


@dataclass(frozen=True, slots=True)
class Entry:
    """An input, when it was taken in, and what it led to."""

    at_us: int
    now: datetime
    event: SchedulerInput
    decisions: tuple[Decision, ...]


@dataclass(slots=True)
class Link:
    """A worker as a leader knows it under one stream."""

    worker: SimulatedWorker
    incarnation: str
    stream: Stream
    attached: bool = False
    acknowledged: int = 0


@dataclass(slots=True)
class WallClock:
    """The leader's clock: virtual time and what it jumped by."""

    agenda: Agenda
    skew_us: int = 0

    def now(self) -> datetime:
        """Wall time."""
        return START + timedelta(microseconds=self.agenda.now_us + self.skew_us)

    def virtual_us(self, moment: datetime) -> int:
        """When the clock will show a moment."""
        return (moment - START) // _MICROSECOND - self.skew_us


Note = Callable[[Entry], None]
"""Gets every entry, before its commands go out."""


class Leader:
    """Leads until `alive` is false."""

    def __init__(
        self,
        core: SchedulerCore,
        *,
        agenda: Agenda,
        clock: WallClock,
        network: NetworkTrace,
        faults: FaultsTrace,
        random: Random,
        note: Note,
    ) -> None:
        self.core = core
        self.alive = True
        self.links: dict[str, Link] = {}
        self._agenda = agenda
        self._clock = clock
        self._network = network
        self._faults = faults
        self._random = random
        self._note = note
        self._tick_us: int | None = None

    def take(self, event: SchedulerInput) -> None:
        """Decide on an input, write it down and send the commands."""
        if not self.alive:
            return
        now = self._clock.now()
        decisions = self.core.decide(event, now)
        self._note(Entry(self._agenda.now_us, now, event, decisions))
        for decision in decisions:
            if isinstance(decision, COMMANDS):
                link = self.links.get(decision.worker_id)
                if link is not None and link.attached:
                    link.stream.to_worker(link.worker.receive, decision)
        self._plan_tick()

    def end(self) -> None:
        """It leads no more, and its streams end."""
        self.alive = False
        for link in self.links.values():
            link.stream.close()

    # -- workers -------------------------------------------------------------------------

    def dial(self, worker: SimulatedWorker) -> Link | None:
        """Open a stream to a worker's process, in place of any older one."""
        process = worker.process
        if process is None or not self.alive:
            return None
        known = self.links.get(worker.worker_id)
        if known is not None:
            if known.incarnation == process.incarnation and known.stream.open:
                return None
            self.lose(known, "another process took its place")
        stream = Stream(self._agenda, self._random, self._network, self._faults)
        link = Link(worker, process.incarnation, stream)
        self.links[worker.worker_id] = link
        stream.to_worker(self._greet, link)
        return link

    def await_known(self) -> None:
        """At the beginning of a term: workers of the last one come back, or are lost."""
        for view in self.core.workers:
            self._await(view.worker_id, self.core.incarnation(view.worker_id))

    def lose(self, link: Link, reason: str) -> None:
        """A stream has ended or fallen silent; its worker may come back with its loops."""
        link.stream.close()
        worker_id = link.worker.worker_id
        if self.links.get(worker_id) is not link:
            return
        del self.links[worker_id]
        if link.attached:
            self.take(
                WorkerDetached(worker_id=worker_id, incarnation=link.incarnation, reason=reason)
            )
            self._await(worker_id, link.incarnation)

    def _await(self, worker_id: str, incarnation: str) -> None:
        self._agenda.after(self._network.grace_s, self._give_up, worker_id, incarnation)

    def _give_up(self, worker_id: str, incarnation: str) -> None:
        """The grace is over; was it the latest one?"""
        link = self.links.get(worker_id)
        back = link is not None and link.attached
        if self.alive and not back and self.core.incarnation(worker_id) == incarnation:
            self.take(
                WorkerLost(worker_id=worker_id, incarnation=incarnation, reason="it stayed away")
            )

    def _greet(self, link: Link) -> None:
        """The worker gets the first message of a stream."""
        worker = link.worker
        if worker.process is None or worker.process.incarnation != link.incarnation:
            return
        if self._agenda.now_us < worker.paused_until_us:
            self._agenda.at(worker.paused_until_us, self._greet, link)
            return
        if not link.stream.open:
            return
        stream, receive = link.stream, self._receiver(link)
        known = self.core.incarnation(worker.worker_id) == link.incarnation
        resumes = known and worker.can_resume(self._network.keep_s)
        worker.send = lambda report: stream.to_leader(receive, report)
        if resumes:
            for report in worker.resume(self.core.reported(worker.worker_id)):
                worker.send(report)
        else:
            worker.start_over()
            stream.to_leader(lambda attached: self._attached(link, attached), worker.attached())

    def _attached(self, link: Link, attached: WorkerAttached) -> None:
        if link.stream.open and not link.attached:
            link.attached = True
            self.take(attached)

    def _receiver(self, link: Link) -> Callable[[Any], None]:
        return lambda report: self._report(link, report)

    def _report(self, link: Link, report: Any) -> None:
        """A report has come, perhaps on a stream that has ended."""
        worker_id = link.worker.worker_id
        if not link.stream.open:
            # The link refuses it. Where the core would see no gap, it must refuse it too.
            latest = self.links.get(worker_id)
            known = self.core.incarnation(worker_id)
            if not known or (known == link.incarnation and latest and latest.attached):
                self.take(report)
            return
        if isinstance(report, WorkerReattached):
            link.attached = True
        self.take(report)
        if report.report >= link.acknowledged + _ACKNOWLEDGED_TOGETHER:
            link.acknowledged = report.report
            commit_us = self._agenda.now_us + microseconds(self._network.commit_s)
            self._agenda.at(commit_us, self._acknowledge, link, report.report)

    def _acknowledge(self, link: Link, report: int) -> None:
        if self.alive and link.stream.open:
            link.stream.to_worker(link.worker.acknowledge, report)

    # -- time ----------------------------------------------------------------------------

    def clock_jumped(self) -> None:
        """What was due by the clock may be due now."""
        self._tick_us = None
        self.take(Tick())

    def _plan_tick(self) -> None:
        due = self.core.next_deadline()
        if due is None:
            return
        due_us = self._clock.virtual_us(due)
        if self._tick_us is None or due_us < self._tick_us:
            self._tick_us = max(due_us, self._agenda.now_us)
            self._agenda.at(self._tick_us, self._tick, self._tick_us)

    def _tick(self, planned_us: int) -> None:
        if self._tick_us == planned_us:
            self._tick_us = None
            self.take(Tick())
