"""What a worker notes, from where it happens to the report that carries it."""

from collections.abc import Sequence
from dataclasses import replace

from fastvideo.cache.evictable import CacheEntry, Evicted
from fastvideo.cache.features import CACHE_CLASS
from fastvideo.cache.keys import key_digest
from fastvideo.cache.recorded import WORKER_TIER, kept
from fastvideo.engine.memory_watch import MemoryWatch
from fastvideo.engine.notes import NoteBook
from fastvideo.memory.pools import MemoryTag
from fastvideo.scheduling.events import BatchExecuted, LoopPrepared
from fastvideo.scheduling.notes import REPORT_NOTES_MAX, one_access_note
from fastvideo.scheduling.traces import (
    CacheAccess,
    CacheAccessed,
    GraphUsed,
    NonFiniteFound,
    ParityChecked,
    TraceNote,
)
from fastvideo.telemetry import metrics
from fastvideo.telemetry.instruments import CACHE, CACHE_BYTES, CACHE_LOOKUPS, OUTCOME, TIER

_SIGNED = (GraphUsed, NonFiniteFound, ParityChecked)


class Noting:
    """The notes of one worker; safe to use from any thread."""

    def __init__(self, worker_id: str, book: NoteBook, memory: MemoryWatch) -> None:
        self._worker_id = worker_id
        # What happens outside of a step; anybody may add to it.
        self.book = book
        self.memory = memory
        self._lookups = metrics.counter(CACHE_LOOKUPS)
        self._bytes = metrics.counter(CACHE_BYTES)

    def of_window(
        self, notes: Sequence[TraceNote], accesses: Sequence[CacheAccess]
    ) -> tuple[TraceNote, ...]:
        """The notes of a batch's steps, its looks into caches as one."""
        signed = tuple(map(self._signed, notes))
        return (self._accessed(accesses), *signed) if accesses else signed

    def with_notes(self, report: BatchExecuted | LoopPrepared) -> BatchExecuted | LoopPrepared:
        """The report with what waits in the book; what is too much waits for the next one."""
        own, more = report.notes[:REPORT_NOTES_MAX], report.notes[REPORT_NOTES_MAX:]
        if more:
            self.book.add(*more)
        waiting = self.book.take(REPORT_NOTES_MAX - len(own))
        if not (waiting or more):
            return report
        signed = map(self._signed, waiting)
        return replace(report, notes=one_access_note((*own, *signed)))

    def evicted(self, gone: Evicted) -> None:
        """A cache let entries go."""
        self.book.add(
            self._accessed(
                [CacheAccess(lookup=lookup, key=key, tier=WORKER_TIER) for key, lookup in gone]
            )
        )
        self.memory.evicted(MemoryTag.CACHES, sum(lookup.size_bytes for _, lookup in gone))

    def published(self, entry: CacheEntry) -> None:
        """A text's features were kept that were computed elsewhere."""
        lookup = kept(CACHE_CLASS, key_digest(entry.key), entry.size_bytes, entry.value_digest)
        self.book.add(self._accessed([CacheAccess(lookup=lookup, key=entry.key, tier=WORKER_TIER)]))

    def _accessed(self, accesses: Sequence[CacheAccess]) -> CacheAccessed:
        for access in accesses:
            lookup = access.lookup
            labels = {
                CACHE: lookup.cache_class.value,
                TIER: access.tier,
                OUTCOME: lookup.outcome.value,
            }
            self._lookups.add(1, labels)
            self._bytes.add(lookup.size_bytes, labels)
        return CacheAccessed(worker_id=self._worker_id, accesses=tuple(accesses))

    def _signed(self, note: TraceNote) -> TraceNote:
        """The note with the worker's id where it has a place for one."""
        if isinstance(note, _SIGNED) and not note.worker_id:
            return replace(note, worker_id=self._worker_id)
        return note
