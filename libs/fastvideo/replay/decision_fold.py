"""The scheduler's core, fed with the inputs of a log: what does it decide now?

Pure. Leaders come and go in the log: one that began anew began with an empty core, another with
what its predecessor knew, each under its own policy.
"""

from collections.abc import Sequence
from typing import Final

from fastvideo.deployment.scheduling_policy import logged_policy
from fastvideo.errors import CorruptLog, FastVideoError
from fastvideo.replay.shard_entries import ShardEntry
from fastvideo.scheduling.core import SchedulerCore
from fastvideo.scheduling.events import Decision, LeaderElected
from fastvideo.scheduling.inputs import SchedulerInput
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.request_scheduler import ModelCatalog

CHECKPOINT_ENTRIES: Final = 500
"""How far the fold goes back when the core decided otherwise than the log."""


class DecisionFold:
    """A core that is always where the log is, whatever it would have decided itself."""

    def __init__(self, models: ModelCatalog) -> None:
        self._models = models
        self._policy = SchedulingPolicy()
        self._core = SchedulerCore(models, policy=self._policy)
        self._saved = self._core.snapshot()
        # What was taken in since.
        self._since: list[ShardEntry] = []

    @property
    def core(self) -> SchedulerCore:
        """The core as it is now."""
        return self._core

    def follow(self, entry: ShardEntry) -> None:
        """Take in an entry as the log has it, without choosing again."""
        event = self._begin(entry)
        self._core.replay(event, entry.decided.decisions, entry.decided.at)
        self._kept(entry)

    def decide(self, entry: ShardEntry) -> Sequence[Decision]:
        """What the core decides upon the entry's input; it then goes on as the log did."""
        event = self._begin(entry)
        found = self._core.decide(event, entry.decided.at)
        if found == entry.decided.decisions:
            self._kept(entry)
        else:
            self._return_to(entry)
        return found

    def _begin(self, entry: ShardEntry) -> SchedulerInput:
        event = entry.event
        assert event is not None, "the input was not looked up"
        if isinstance(event, LeaderElected):
            self._elect(event)
        return event

    def _elect(self, event: LeaderElected) -> None:
        """The next term's core, before it takes its election in."""
        if event.policy:
            self._policy = _policy(event)
        if event.anew:
            self._core = SchedulerCore(self._models, policy=self._policy)
        else:
            saved = self._core.snapshot()
            self._core = SchedulerCore.restore(self._models, self._policy, saved)
        self._save()

    def _kept(self, entry: ShardEntry) -> None:
        self._since.append(entry)
        if len(self._since) >= CHECKPOINT_ENTRIES:
            self._save()

    def _save(self) -> None:
        self._saved = self._core.snapshot()
        self._since.clear()

    def _return_to(self, entry: ShardEntry) -> None:
        """Be where the log was after the entry.

        Where the log's decisions make no sense in its own state, the core's own stand.
        """
        core = SchedulerCore.restore(self._models, self._policy, self._saved)
        try:
            for past in (*self._since, entry):
                assert past.event is not None
                core.replay(past.event, past.decided.decisions, past.decided.at)
        except (FastVideoError, LookupError, ValueError, TypeError, AttributeError, AssertionError):
            # What was decided is no part of the log's state, so the fold cannot go through it.
            self._save()
            return
        self._core = core
        self._save()


def _policy(event: LeaderElected) -> SchedulingPolicy:
    try:
        return logged_policy(event.policy, f"the policy of epoch {event.epoch}")
    except FastVideoError as error:
        raise CorruptLog(
            f"this program cannot decide under the policy of epoch {event.epoch}: {error.message}",
            reason="POLICY",
            subject="policy",
        ) from error
