"""Text encoder outputs, kept by key within a byte budget, least recently used first out."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Final

from fastvideo.cache.evictable import CacheEntry, CacheUsage, EvictableStore, Evicted
from fastvideo.cache.keys import key_digest
from fastvideo.cache.recorded import kept, look, planned_unit, record, record_kept, record_look
from fastvideo.loops.contract import StepContext
from fastvideo.memory.pools import MemoryPools, MemoryTag, OutOfMemory
from fastvideo.memory.pressure import Evictions
from fastvideo.model.caching import CacheClass, CacheKey

CACHE_CLASS: Final = CacheClass.TEXT_ENCODER_OUTPUT


class TextFeatureCache:
    """The manager of the class text_encoder_output; safe to use from any thread."""

    def __init__(
        self, budget_bytes: int, size_of: Callable[[Any], int] = lambda value: value.nbytes
    ) -> None:
        self._store = EvictableStore(CACHE_CLASS, budget_bytes)
        self._size_of = size_of

    def join(self, pools: MemoryPools) -> None:
        """Count the entries in the caches' pool, and give back when memory is short."""
        self._store.join(pools, MemoryTag.CACHES)

    def watch(self, on_evicted: Callable[[Evicted], None]) -> None:
        """Be told of every entry that goes, on whatever thread it does."""
        self._store.watch(on_evicted)

    @property
    def usage(self) -> CacheUsage:
        """What the cache holds now."""
        return self._store.usage

    @property
    def size_bytes(self) -> int:
        """Bytes of all entries."""
        return self._store.usage.used_bytes

    def find(self, digest: str) -> CacheEntry | None:
        """The entry of a key digest, now the most recently used."""
        return self._store.find(digest)

    def keep(self, key: CacheKey, value: Any) -> Evictions:
        """Keep a value and say what was evicted for it.

        A value is not kept when it is larger than the whole budget, or when what is in use
        leaves no room: it can be computed again.
        """
        try:
            return self._store.add(key, value, self._size_of(value))
        except OutOfMemory:
            return ()

    def invalidate(self, stale: Callable[[CacheKey], bool], *, told: bool = True) -> int:
        """Drop the entries whose keys are stale and say how many there were.

        With `told` False whoever watches hears nothing of it.
        """
        return self._store.invalidate(stale, told=told)

    def pinned(self, digests: Iterable[str]) -> AbstractContextManager[None]:
        """Keep these entries from eviction while the block runs."""
        return self._store.pinned(digests)

    def open(self, context: StepContext) -> "RecordedFeatureCache":
        """The cache as the units of one batch may use it; look-ups go into the context."""
        return RecordedFeatureCache(self, self._store, context)


class RecordedFeatureCache:
    """A cache that holds each unit to its plan and reports its look-ups."""

    def __init__(
        self, cache: TextFeatureCache, store: EvictableStore, context: StepContext
    ) -> None:
        self._cache = cache
        self._store = store
        self._context = context

    def get(self, key: CacheKey) -> Any | None:
        """The cached value, or None.

        Raises ContractViolation when the context's unit has not planned to read the key.
        """
        digest = key_digest(key)
        unit = planned_unit(self._context, digest, "read")
        entry = self._cache.find(digest)
        record_look(self._context, unit, key, look(self._store, digest, entry))
        return None if entry is None else entry.value

    def put(self, key: CacheKey, value: Any) -> None:
        """Keep a value under its key.

        Raises ContractViolation when the context's unit has not planned to write the key.
        """
        digest = key_digest(key)
        unit = planned_unit(self._context, digest, "write")
        record(self._context, unit.unit_id, self._cache.keep(key, value))
        entry = self._cache.find(digest)
        if entry is not None:
            made = kept(CACHE_CLASS, digest, entry.size_bytes, entry.value_digest)
            record_kept(self._context, unit, key, made)
