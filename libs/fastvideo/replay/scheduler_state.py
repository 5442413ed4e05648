"""The scheduler's core as the fold of its shard's stream, against what a leader saved of it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from fastvideo.errors import FastVideoError
from fastvideo.events.records import Snapshot, StoredEvent
from fastvideo.events.seeking import pages_after
from fastvideo.events.store import EventStore
from fastvideo.replay.decision_fold import DecisionFold
from fastvideo.replay.gently import gently
from fastvideo.replay.log_inputs import LogInputs
from fastvideo.replay.saved_term import SavedTerm
from fastvideo.replay.scheduler_view import known_lines
from fastvideo.replay.shard_entries import EntryReader, ShardEntry
from fastvideo.replay.tally import Tell
from fastvideo.replay.terms import begun_anew
from fastvideo.replay.types import Comparison, ReplayProgress
from fastvideo.scheduling.request_scheduler import ModelCatalog
from fastvideo.scheduling.stream import shard_stream

KNOWN_MAX: Final = 10_000
"""Workers and requests of a core that are shown."""


@dataclass(frozen=True, slots=True)
class SchedulerSource:
    """Which shard, and the models that its core schedules."""

    shard: str
    models: ModelCatalog


@dataclass(frozen=True, slots=True)
class SchedulerCompared:
    """The core's digest at the end of the fold, and how it compares where one was saved."""

    digest: str
    headline: str
    comparison: Comparison | None
    # What the core knows at the end of the fold, when it was asked for.
    known: tuple[Comparison, ...] = ()


@dataclass(slots=True)
class _Fold:
    """The fold, its place, and the saved digest that it passes."""

    fold: DecisionFold
    saved: Snapshot | None
    saved_digest: str
    version: int = 0
    event_id: str = ""
    found: str = ""

    def take(self, entries: Sequence[ShardEntry]) -> None:
        """Follow some entries."""
        for entry in gently(entries):
            self.fold.follow(entry)
            self.version, self.event_id = entry.version, entry.event_id
            if self.saved is not None and entry.version == self.saved.version:
                self.found = self.fold.core.digest()


async def compare_scheduler(
    source: SchedulerSource,
    log: EventStore,
    until: Mapping[int, int],
    heads: Mapping[int, int],
    tell: Tell,
    *,
    show: bool = False,
) -> SchedulerCompared | None:
    """Fold the shard's stream up to the offsets, or else to its end; `show` what the core knows.

    None when the shard has decided nothing up to there. Raises CorruptLog for what does not fold.
    """
    stream = shard_stream(source.shard)
    end = await _end(log, stream, until)
    term = await begun_anew(log, stream, end)
    saved, digest = await _saved(log, stream, end, term.version if term is not None else 0)
    state = _Fold(DecisionFold(source.models), saved, digest)
    reader, inputs = EntryReader(), LogInputs(log)
    async for page in pages_after(log, stream, term.version if term is not None else 0):
        wanted = [stored for stored in page if stored.stream_version <= end]
        # In threads, since others want to be answered meanwhile.
        entries = await asyncio.to_thread(_entries, reader, wanted)
        await asyncio.to_thread(state.take, await inputs.complete(entries))
        tell(ReplayProgress(done=state.version, total=end, message="the scheduler"))
        if len(wanted) < len(page):
            break
    if not state.version:
        return None
    core = state.fold.core
    compared = _compared(state, await asyncio.to_thread(core.digest))
    if not show:
        return compared
    lines = islice(gently(known_lines(core)), KNOWN_MAX)
    return replace(compared, known=await asyncio.to_thread(tuple, lines))


def _entries(reader: EntryReader, page: Sequence[StoredEvent]) -> tuple[ShardEntry, ...]:
    return tuple(gently(reader.read(page)))


async def _end(log: EventStore, stream: str, until: Mapping[int, int]) -> int:
    """The stream's version at the offsets."""
    version = await log.stream_version(stream)
    if not until or not version:
        return version
    low, high = 0, version
    while low < high:
        middle = (low + high + 1) // 2
        (stored,) = await log.read_stream(stream, middle - 1, 1)
        if stored.offset <= until.get(stored.partition, stored.offset):
            low = middle
        else:
            high = middle - 1
    return low


async def _saved(log: EventStore, stream: str, end: int, begin: int) -> tuple[Snapshot | None, str]:
    """The newest saved core of the span that this program can read, and its digest."""
    epoch = await log.log_epoch()
    for snapshot in await log.load_snapshots(stream):
        if not begin < snapshot.version <= end:
            continue
        try:
            term = await asyncio.to_thread(SavedTerm.decode, snapshot.body)
        except FastVideoError:
            # Of another program; the log is enough.
            continue
        if term.log_epoch == epoch:
            return snapshot, await asyncio.to_thread(term.core.digest)
    return None, ""


def _compared(state: _Fold, digest: str) -> SchedulerCompared:
    if state.saved is None:
        headline = f"the scheduler's core at version {state.version}; no leader has saved one"
        return SchedulerCompared(digest, headline, None)
    if not state.found:
        headline = f"the scheduler's core at version {state.version}; the saved one is elsewhere"
        return SchedulerCompared(digest, headline, None)
    equal = state.found == state.saved_digest
    comparison = Comparison(
        subject=f"scheduler at version {state.saved.version}",
        equal=equal,
        expected=state.found,
        found=state.saved_digest,
        event_id=state.event_id,
        detail="" if equal else "the core that a leader saved is not the fold of its stream",
    )
    told = "is" if equal else "is not"
    headline = f"the core that a leader saved {told} the fold of the shard's stream"
    return SchedulerCompared(digest, headline, comparison)
