"""Text encoder outputs, kept by key within a byte budget, least recently used first out.

One owner at a time: the compute thread of the worker that holds it.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from fastvideo.cache.keys import key_digest
from fastvideo.errors import ContractViolation
from fastvideo.loops.contract import StepContext
from fastvideo.model.caching import CacheClass, CacheKey, CacheLookup, CacheOutcome
from fastvideo.scheduling.work import CachePlan, WorkUnit

CACHE_CLASS: Final = CacheClass.TEXT_ENCODER_OUTPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry:
    """One kept value."""

    key: CacheKey
    value: Any
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUsage:
    """What a cache holds now."""

    entries: int
    used_bytes: int
    budget_bytes: int


class TextFeatureCache:
    """The manager of the class text_encoder_output."""

    def __init__(
        self, budget_bytes: int, size_of: Callable[[Any], int] = lambda value: value.nbytes
    ) -> None:
        self._budget_bytes = budget_bytes
        self._size_of = size_of
        self._entries: OrderedDict[str, CacheEntry] = OrderedDict()
        self._used_bytes = 0

    @property
    def usage(self) -> CacheUsage:
        """What the cache holds now."""
        return CacheUsage(
            entries=len(self._entries),
            used_bytes=self._used_bytes,
            budget_bytes=self._budget_bytes,
        )

    def find(self, digest: str) -> CacheEntry | None:
        """The entry of a key digest, now the most recently used."""
        entry = self._entries.get(digest)
        if entry is not None:
            self._entries.move_to_end(digest)
        return entry

    def keep(self, key: CacheKey, value: Any) -> list[CacheLookup]:
        """Keep a value and say what was evicted for it.

        A value larger than the whole budget is not kept.
        """
        digest = key_digest(key)
        entry = CacheEntry(key=key, value=value, size_bytes=self._size_of(value))
        if entry.size_bytes > self._budget_bytes:
            return []
        self._drop(digest)
        self._entries[digest] = entry
        self._used_bytes += entry.size_bytes
        evicted = []
        while self._used_bytes > self._budget_bytes:
            oldest = next(iter(self._entries))
            size = self._drop(oldest)
            evicted.append(_lookup(oldest, CacheOutcome.EVICT, size))
        return evicted

    def invalidate(self, stale: Callable[[CacheKey], bool]) -> int:
        """Drop the entries whose keys are stale and say how many there were."""
        dropped = [digest for digest, entry in self._entries.items() if stale(entry.key)]
        for digest in dropped:
            self._drop(digest)
        return len(dropped)

    @property
    def size_bytes(self) -> int:
        """Bytes of all entries."""
        return self._used_bytes

    def open(self, context: StepContext) -> "RecordedFeatureCache":
        """The cache as the units of one batch may use it; look-ups go into the context."""
        return RecordedFeatureCache(self, context)

    def _drop(self, digest: str) -> int:
        entry = self._entries.pop(digest, None)
        if entry is None:
            return 0
        self._used_bytes -= entry.size_bytes
        return entry.size_bytes


class RecordedFeatureCache:
    """A cache that holds each unit to its plan and reports its look-ups."""

    def __init__(self, cache: TextFeatureCache, context: StepContext) -> None:
        self._cache = cache
        self._context = context

    def get(self, key: CacheKey) -> Any | None:
        """The cached value, or None.

        Raises ContractViolation when the context's unit has not planned to read the key.
        """
        digest = key_digest(key)
        unit = self._planned(digest, "read")
        entry = self._cache.find(digest)
        outcome = CacheOutcome.MISS if entry is None else CacheOutcome.HIT
        self._record(unit, _lookup(digest, outcome, entry.size_bytes if entry else 0))
        return None if entry is None else entry.value

    def put(self, key: CacheKey, value: Any) -> None:
        """Keep a value under its key.

        Raises ContractViolation when the context's unit has not planned to write the key.
        """
        unit = self._planned(key_digest(key), "write")
        for evicted in self._cache.keep(key, value):
            self._record(unit, evicted)

    def _planned(self, digest: str, verb: Literal["read", "write"]) -> WorkUnit:
        unit = self._context.unit
        plan = CachePlan() if unit is None else unit.cache_plan
        if unit is None or digest not in (plan.reads if verb == "read" else plan.writes):
            raise ContractViolation(
                f"{unit.unit_id if unit else 'no unit'} has not planned to {verb} key {digest}",
                reason="UNPLANNED_CACHE_USE",
                subject=digest,
            )
        return unit

    def _record(self, unit: WorkUnit, lookup: CacheLookup) -> None:
        self._context.lookups.setdefault(unit.unit_id, []).append(lookup)


def _lookup(digest: str, outcome: CacheOutcome, size_bytes: int) -> CacheLookup:
    return CacheLookup(
        cache_class=CACHE_CLASS, key_digest=digest, outcome=outcome, size_bytes=size_bytes
    )
