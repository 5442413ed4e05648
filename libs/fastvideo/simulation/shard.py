"""A shard over all its leaders: the log of what was accepted and decided, and who leads."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.core import SchedulerCore
from fastvideo.scheduling.events import LeaderElected
from fastvideo.scheduling.inputs import CancelRequested, RequestSubmitted
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.snapshot import SchedulerSnapshot
from fastvideo.scheduling.work import CancelScope, CancelScopeKind
from fastvideo.simulation.agenda import Agenda, microseconds
from fastvideo.simulation.leader import Entry, Leader, Note, WallClock
from fastvideo.simulation.models import SimulatedModels
from fastvideo.simulation.trace import FaultsTrace, NetworkTrace
from fastvideo.simulation.witness import InvariantBroken

_FIRST_EPOCH: Final = 1
# Of so many terms one is replayed from its beginning, since that takes time.
_REPLAYED_EVERY: Final = 3
# Entries between two snapshots of the core.
_SAVED_EVERY: Final = 1_500


class Shard:
    """Accepts requests always; decides while somebody leads."""

    def __init__(
        self,
        *,
        models: SimulatedModels,
        policy: SchedulingPolicy,
        agenda: Agenda,
        network: NetworkTrace,
        faults: FaultsTrace,
        random: Random,
        note: Note,
        rewind: Callable[[Sequence[Entry]], None],
    ) -> None:
        self.clock = WallClock(agenda)
        self.epoch = 0
        self.leader: Leader | None = None
        self._models = models
        self._policy = policy
        self._agenda = agenda
        self._network = network
        self._faults = faults
        self._random = random
        self._note = note
        self._rewind = rewind
        # The log: accepted requests and cancels, and, where leaders change, all entries.
        self._accepted: dict[str, RequestSubmitted] = {}
        self._cancelled: dict[str, CancelRequested] = {}
        self._journal: list[Entry] = []
        # How many entries the latest snapshot of the core holds, and its bytes.
        self._saved: tuple[int, bytes] | None = None
        self._keeps_journal = faults.scheduler_switch is not None

    @property
    def core(self) -> SchedulerCore | None:
        """The core of who leads."""
        return self.leader.core if self.leader is not None else None

    # -- requests ------------------------------------------------------------------------

    def submit(self, spec: RequestSpec) -> None:
        """A request was accepted."""
        event = RequestSubmitted(
            spec=spec, offset=len(self._accepted) + 1, accepted_at=self.clock.now()
        )
        if self._keeps_journal:
            self._accepted[spec.request_id] = event
        if self.leader is not None:
            self.leader.take(event)

    def cancel(self, request_id: str) -> None:
        """A user cancels a request."""
        scope = CancelScope(kind=CancelScopeKind.REQUEST, target_id=request_id)
        event = CancelRequested(scope=scope, reason="user")
        if self._keeps_journal:
            self._cancelled[request_id] = event
        if self.leader is not None:
            self.leader.take(event)

    # -- leaders -------------------------------------------------------------------------

    def fail(self) -> None:
        """The leader dies; what it had not committed is lost.

        Raises InvariantBroken when its state is not what its history gives.
        """
        if self.leader is None:
            return
        if self.epoch % _REPLAYED_EVERY == 0 and (
            self._replayed().digest() != self.leader.core.digest()
        ):
            raise InvariantBroken("a replay of the history gives another state than the leader's")
        self.leader.end()
        self.leader = None
        committed_us = self._agenda.now_us - microseconds(self._network.commit_s)
        while self._journal and self._journal[-1].at_us > committed_us:
            self._journal.pop()
        if self._saved is not None and self._saved[0] > len(self._journal):
            self._saved = None

    def lead(self) -> None:
        """Begin a term over the log."""
        self.epoch += 1
        self._rewind(self._journal)
        self.leader = Leader(
            self._rebuilt(),
            agenda=self._agenda,
            clock=self.clock,
            network=self._network,
            faults=self._faults,
            random=self._random,
            note=self._take_note,
        )
        if self.epoch > _FIRST_EPOCH:
            self.leader.take(LeaderElected(scheduler_id=f"s{self.epoch}", epoch=self.epoch))
            self.leader.await_known()
        self._catch_up(self.leader)

    def _rebuilt(self) -> SchedulerCore:
        """A core from the latest snapshot and what came after it."""
        if self._saved is None:
            return self._replayed()
        taken, saved = self._saved
        snapshot = SchedulerSnapshot.decode(saved)
        core = SchedulerCore.restore(self._models, self._policy, snapshot)
        for entry in self._journal[taken:]:
            core.replay(entry.event, entry.decisions, entry.now)
        return core

    def _replayed(self) -> SchedulerCore:
        """A core from the whole log."""
        core = SchedulerCore(self._models, policy=self._policy, epoch=_FIRST_EPOCH)
        for entry in self._journal:
            core.replay(entry.event, entry.decisions, entry.now)
        return core

    def _catch_up(self, leader: Leader) -> None:
        """Read on where the log's entries end."""
        taken = {
            entry.event.spec.request_id
            for entry in self._journal
            if isinstance(entry.event, RequestSubmitted)
        }
        cancelled = {
            entry.event.scope.target_id
            for entry in self._journal
            if isinstance(entry.event, CancelRequested)
        }
        for request_id, submitted in self._accepted.items():
            if request_id not in taken:
                leader.take(submitted)
        for request_id, cancel in self._cancelled.items():
            if request_id not in cancelled:
                leader.take(cancel)

    def _take_note(self, entry: Entry) -> None:
        if self._keeps_journal:
            self._journal.append(entry)
            if len(self._journal) % _SAVED_EVERY == 0 and self.core is not None:
                self._saved = (len(self._journal), self.core.snapshot().encode())
        self._note(entry)
