"""Entries by key that can be made again: least recently used first out, never one in use."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fastvideo.cache.keys import key_digest
from fastvideo.cache.values import value_digest
from fastvideo.memory.pools import MemoryPools, MemoryTag, OutOfMemory
from fastvideo.memory.pressure import Evictions
from fastvideo.model.caching import CacheClass, CacheKey, CacheLookup, CacheOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry:
    """One kept value."""

    key: CacheKey
    value: Any
    size_bytes: int
    # As `cache.values` has it.
    value_digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUsage:
    """What a cache holds now."""

    entries: int
    used_bytes: int
    budget_bytes: int


Evicted = tuple[tuple[CacheKey, CacheLookup], ...]
"""What has gone, each with its key."""


class EvictableStore:
    """The entries of one cache class, within a budget of bytes; safe to use from any thread.

    After `join` each entry is counted in a memory pool too, and is given back when the pool is
    short. Entries that are pinned stay.
    """

    def __init__(self, cache_class: CacheClass, budget_bytes: int) -> None:
        self._class = cache_class
        self._budget_bytes = budget_bytes
        self._entries: OrderedDict[str, CacheEntry] = OrderedDict()
        self._pins: dict[str, int] = {}
        self._used_bytes = 0
        self._pools: MemoryPools | None = None
        self._tag = MemoryTag.CACHES
        self._on_evicted: Callable[[Evicted], None] | None = None
        # Never held while a pool is asked for more: it may ask this store to give back.
        self._lock = threading.RLock()

    @property
    def usage(self) -> CacheUsage:
        """What the cache holds now."""
        with self._lock:
            return CacheUsage(
                entries=len(self._entries),
                used_bytes=self._used_bytes,
                budget_bytes=self._budget_bytes,
            )

    def join(self, pools: MemoryPools, tag: MemoryTag) -> None:
        """Count the entries to come in a pool; to be called once, while the store is empty."""
        self._pools, self._tag = pools, tag
        pools.on_pressure(tag, self)

    def watch(self, on_evicted: Callable[[Evicted], None]) -> None:
        """Be told of every entry that goes, on whatever thread it does."""
        self._on_evicted = on_evicted

    def find(self, digest: str) -> CacheEntry | None:
        """The entry of a key digest, now the most recently used."""
        with self._lock:
            entry = self._entries.get(digest)
            if entry is not None:
                self._entries.move_to_end(digest)
            return entry

    def add(self, key: CacheKey, value: Any, size_bytes: int) -> Evictions:
        """Keep a value and say what was evicted for it.

        Raises OutOfMemory when what is in use leaves no room, and then keeps it not.
        """
        digest = key_digest(key)
        entry = CacheEntry(
            key=key, value=value, size_bytes=size_bytes, value_digest=value_digest(value)
        )
        with self._lock:
            self._drop(digest)
            beyond = self._used_bytes + size_bytes - self._budget_bytes
            # What can never fit evicts nothing.
            evicted = self._evict(beyond) if size_bytes <= self._budget_bytes else ()
            free = self._budget_bytes - self._used_bytes
            if size_bytes > free:
                raise OutOfMemory(self._tag, size_bytes, free, owner=self._class)
        if self._pools is not None:
            evicted += self._pools.resize(self._tag, self._owner(digest), size_bytes)
        with self._lock:
            # Somebody else may have kept it meanwhile; the pool counts it once in any case.
            former = self._entries.pop(digest, None)
            self._used_bytes += size_bytes - (former.size_bytes if former else 0)
            self._entries[digest] = entry
        return evicted

    def invalidate(self, stale: Callable[[CacheKey], bool], *, told: bool = True) -> int:
        """Drop the entries whose keys are stale, pinned or not; returns how many there were.

        With `told` False whoever watches hears nothing of it.
        """
        with self._lock:
            dropped = [digest for digest, entry in self._entries.items() if stale(entry.key)]
            gone = tuple(map(self._evict_one, dropped))
        if told:
            self._tell(gone)
        return len(gone)

    def reclaimable_bytes(self) -> int:
        """Bytes of the entries that are not pinned."""
        with self._lock:
            return sum(
                entry.size_bytes
                for digest, entry in self._entries.items()
                if digest not in self._pins
            )

    def reclaim(self, size_bytes: int) -> Evictions:
        """Drop what is not pinned, oldest first, until so much is given back."""
        with self._lock:
            return self._evict(size_bytes)

    @contextmanager
    def pinned(self, digests: Iterable[str]) -> Iterator[None]:
        """Keep these entries, there or to come, from eviction while the block runs."""
        wanted = tuple(digests)
        with self._lock:
            for digest in wanted:
                self._pins[digest] = self._pins.get(digest, 0) + 1
        try:
            yield
        finally:
            with self._lock:
                for digest in wanted:
                    self._pins[digest] -= 1
                    if not self._pins[digest]:
                        del self._pins[digest]

    def lookup(self, digest: str, outcome: CacheOutcome, size_bytes: int) -> CacheLookup:
        """The record of one look into this cache."""
        return CacheLookup(
            cache_class=self._class, key_digest=digest, outcome=outcome, size_bytes=size_bytes
        )

    def _evict(self, size_bytes: int) -> Evictions:
        evicted: list[tuple[CacheKey, CacheLookup]] = []
        missing = size_bytes
        for digest in [digest for digest in self._entries if digest not in self._pins]:
            if missing <= 0:
                break
            evicted.append(self._evict_one(digest))
            missing -= evicted[-1][1].size_bytes
        self._tell(tuple(evicted))
        return tuple(lookup for _, lookup in evicted)

    def _evict_one(self, digest: str) -> tuple[CacheKey, CacheLookup]:
        key = self._entries[digest].key
        return key, self.lookup(digest, CacheOutcome.EVICT, self._drop(digest))

    def _tell(self, gone: Evicted) -> None:
        if gone and self._on_evicted is not None:
            self._on_evicted(gone)

    def _drop(self, digest: str) -> int:
        entry = self._entries.pop(digest, None)
        if entry is None:
            return 0
        self._used_bytes -= entry.size_bytes
        if self._pools is not None:
            self._pools.release(self._owner(digest))
        return entry.size_bytes

    def _owner(self, digest: str) -> str:
        return f"cache:{self._class}:{digest}"
