"""Who gives memory back when a pool is short: caches and idle adapters, never running work."""

from typing import Protocol

from fastvideo.model.caching import CacheLookup

Evictions = tuple[CacheLookup, ...]
"""What was evicted, each with the outcome EVICT and its size."""


class Reclaimer(Protocol):
    """Holds entries that can be made again, and drops them when memory is needed."""

    def reclaimable_bytes(self) -> int:
        """What could be given back now."""
        ...

    def reclaim(self, size_bytes: int) -> Evictions:
        """Drop entries that no running work uses until this much is given back, or none is left.

        Called on the thread that is short of memory, which holds no lock of the pools.
        """
        ...
