"""Decision replay: does the scheduler, told what it was told, decide what it decided?

The inputs of a shard's stream, in its order and with their logged times, go to a `SchedulerCore`
under the policy that was in force. Every decision is compared with the logged one. After one that
differs the core goes on from the log's own state, so that each is judged on its own.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from time import perf_counter
from typing import Final

from fastvideo.errors import FailedPrecondition, NotFound
from fastvideo.events.catalog import metadata_of
from fastvideo.events.records import StoredEvent
from fastvideo.events.seeking import pages_after, version_before
from fastvideo.events.spans import LEAD_IN
from fastvideo.events.store import EventLog
from fastvideo.replay.decision_fold import DecisionFold
from fastvideo.replay.differences import differences, words
from fastvideo.replay.gently import gently
from fastvideo.replay.log_inputs import LogInputs
from fastvideo.replay.rules import Rules
from fastvideo.replay.shard_entries import EntryReader, ShardEntry
from fastvideo.replay.tally import Tally, Tell
from fastvideo.replay.terms import begun_anew
from fastvideo.replay.types import (
    Comparison,
    ReplayProgress,
    ReplayReport,
    ReplayRequest,
)
from fastvideo.requests.state import stream_of
from fastvideo.scheduling.effects import TERMINAL
from fastvideo.scheduling.events import Decision, LeaderElected
from fastvideo.scheduling.inputs import RequestSubmitted
from fastvideo.scheduling.request_scheduler import ModelCatalog
from fastvideo.scheduling.stream import shard_stream
from fastvideo.scheduling.subjects import requests_of_decision

WHOLE_SHARD: Final = frozenset({"", "scheduler"})
"""Subjects that mean every decision of the shard."""

DIVERGENCES_MAX: Final = 100
"""After so many nothing is learned from more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSource:
    """Where decisions are read, and what they are made with here."""

    log: EventLog
    shard: str
    models: ModelCatalog
    # Model id to the content digest of the card that is installed.
    cards: Mapping[str, str]

    @property
    def stream(self) -> str:
        """The shard's stream."""
        return shard_stream(self.shard)


async def replay_decisions(
    source: DecisionSource, request: ReplayRequest, tell: Tell
) -> ReplayReport:
    """Replay the decisions about one request, or of the whole shard.

    Raises NotFound for an unknown request, CorruptLog for what this program cannot read, and
    FailedPrecondition when the shard has decided nothing yet.
    """
    begun_s = perf_counter()
    span = await _span(source, request.subject_id)
    run = _Run(source, request, Tally(tell, request), span)
    inputs = LogInputs(source.log)
    total = await source.log.stream_version(source.stream)
    async for page in pages_after(source.log, source.stream, span.fold_from):
        # In threads, since others want to be answered meanwhile.
        entries = await asyncio.to_thread(run.entries, page)
        entries = await inputs.complete(entries)
        await asyncio.to_thread(run.take, entries)
        done = page[-1].stream_version
        tell(ReplayProgress(done=done, total=total, message=f"decision {run.number}"))
        if run.over:
            break
    return run.report(perf_counter() - begun_s)


@dataclass(frozen=True, slots=True)
class _Span:
    """What of the shard's stream is replayed."""

    # Empty is every request.
    request_id: str = ""
    # Fold after this version; compare after that one.
    fold_from: int = 0
    compare_from: int = 0
    traceparent: str = ""


async def _span(source: DecisionSource, subject_id: str) -> _Span:
    if subject_id in WHOLE_SHARD:
        return _Span()
    accepted = await source.log.read_stream(stream_of(subject_id), 0, 1)
    if not accepted:
        raise NotFound(f"request {subject_id} does not exist", subject="request_id")
    begin = await version_before(source.log, source.stream, accepted[0].recorded_at - LEAD_IN)
    term = await begun_anew(source.log, source.stream, begin)
    return _Span(
        request_id=subject_id,
        fold_from=term.version if term is not None else 0,
        compare_from=begin,
        traceparent=metadata_of(accepted[0]).traceparent,
    )


class _Run:
    """One replay: the fold, and what was compared."""

    def __init__(
        self, source: DecisionSource, request: ReplayRequest, tally: Tally, span: _Span
    ) -> None:
        self._fold = DecisionFold(source.models)
        self._rules = Rules(source.cards)
        self._reader = EntryReader()
        self._request = request
        self._tally = tally
        self._span = span
        self._first_at: datetime | None = None
        self._last_at: datetime | None = None
        # Entries that were taken in.
        self.number = 0
        self.over = False

    def entries(self, page: Sequence[StoredEvent]) -> tuple[ShardEntry, ...]:
        """What a page of the stream holds."""
        return tuple(gently(self._reader.read(page)))

    def take(self, entries: Sequence[ShardEntry]) -> None:
        """Replay some entries, up to the end of the request or of patience."""
        for entry in gently(entries):
            if self.over:
                return
            self.number += 1
            if isinstance(entry.event, LeaderElected):
                self._rules.elected(entry.event)
            if entry.version <= self._span.compare_from:
                self._fold.follow(entry)
            else:
                self._compare(entry)

    def _compare(self, entry: ShardEntry) -> None:
        at = entry.decided.at
        self._first_at, self._last_at = self._first_at or at, at
        if isinstance(entry.event, RequestSubmitted):
            self._rules.submitted(entry.event.spec)
        found = self._fold.decide(entry)
        logged = entry.decided.decisions
        equal = found == logged
        if not equal or self._concerns(entry, logged):
            self._tally.add(self._comparison(entry, found, equal=equal))
        ends = any(isinstance(one, TERMINAL) and self._is_mine(one) for one in logged)
        self.over = (ends and bool(self._span.request_id)) or (
            self._tally.differing >= DIVERGENCES_MAX
        )

    def _concerns(self, entry: ShardEntry, logged: Sequence[Decision]) -> bool:
        if not self._span.request_id:
            return True
        mine = isinstance(entry.event, RequestSubmitted) and (
            entry.event.spec.request_id == self._span.request_id
        )
        return mine or any(map(self._is_mine, logged))

    def _is_mine(self, decision: Decision) -> bool:
        return self._span.request_id in requests_of_decision(decision)

    def _comparison(
        self, entry: ShardEntry, found: Sequence[Decision], *, equal: bool
    ) -> Comparison:
        logged = entry.decided.decisions
        detail = ""
        if not equal:
            detail = f"upon {words(entry.event)} at {entry.decided.at.isoformat()}: "
            detail += _what_differs(logged, found)
        return Comparison(
            subject=f"decision {self.number}",
            equal=equal,
            expected=_summary(logged) if equal else words(tuple(logged)),
            found=_summary(found) if equal else words(tuple(found)),
            event_id=entry.event_id,
            detail=detail,
        )

    def report(self, seconds: float) -> ReplayReport:
        """What came of it. Raises FailedPrecondition when nothing was there to be compared."""
        tally = self._tally
        if not tally.compared:
            raise FailedPrecondition(
                "the scheduler has decided nothing of it yet", subject=self._request.subject_id
            )
        equal = tally.differing == 0
        original_s = (
            (self._last_at - self._first_at).total_seconds()
            if self._first_at is not None and self._last_at is not None
            else 0.0
        )
        return tally.report(
            promise=self._rules.promise,
            equal=equal,
            headline=self._headline(),
            seconds=seconds,
            original_seconds=original_s,
            original_traceparent=self._span.traceparent,
        )

    def _headline(self) -> str:
        tally = self._tally
        whose = f"of request {self._span.request_id}" if self._span.request_id else "of the shard"
        if tally.differing == 0:
            return f"the scheduler decides the same: all {tally.compared} decisions {whose} agree"
        assert tally.first is not None
        more = "at least " if tally.differing >= DIVERGENCES_MAX else ""
        return (
            f"the scheduler decides otherwise: {more}{tally.differing} of {tally.compared} "
            f"decisions {whose} differ, first {tally.first.subject}"
        )


def _summary(decisions: Sequence[Decision]) -> str:
    return ", ".join(type(one).__name__ for one in decisions) or "nothing"


def _what_differs(logged: Sequence[Decision], found: Sequence[Decision]) -> str:
    first = next(iter(differences(tuple(logged), tuple(found), "decisions")), None)
    if first is None:
        return "they differ"
    return f"{first.path} was {first.expected}, and is {first.found} now"
