"""What the log is told of memory: pressure, sleep, and new peaks, seldom enough to be cheap."""

import threading
from typing import Final

from fastvideo.clock import Clock
from fastvideo.engine.notes import NoteBook
from fastvideo.memory.pools import MemoryPools, MemoryTag, PoolUsage
from fastvideo.scheduling.traces import MemoryReported

# Between two notes of one pool for the same reason.
INTERVAL_S: Final = 5.0
# A peak is new when it is so much above the one that was told.
_PEAK_GROWTH: Final = 1.05

PRESSURE: Final = "pressure"
RESERVED: Final = "reserved"
SLEPT: Final = "slept"
WOKEN: Final = "woken"


class MemoryWatch:
    """Notes of one worker's pools; safe to use from any thread."""

    def __init__(self, pools: MemoryPools, notes: NoteBook, worker_id: str, clock: Clock) -> None:
        self._pools = pools
        self._notes = notes
        self._worker_id = worker_id
        self._clock = clock
        self._told_s: dict[tuple[MemoryTag, str], float] = {}
        self._peaks: dict[MemoryTag, int] = {}
        # Evicted since pressure was last told of.
        self._evicted_bytes = 0
        self._lock = threading.Lock()

    def evicted(self, tag: MemoryTag, size_bytes: int) -> None:
        """Something was driven out of a pool."""
        with self._lock:
            self._evicted_bytes += size_bytes
            if not self._is_due(tag, PRESSURE):
                return
            total, self._evicted_bytes = self._evicted_bytes, 0
        # Pools are asked under no lock of ours.
        self._note(tag, self._pools.usage()[tag], PRESSURE, total)

    def reserved(self) -> None:
        """A request has given back what it held: tell of pools with a new peak."""
        for tag, usage in self._pools.usage().items():
            with self._lock:
                if usage.high_water <= self._peaks.get(tag, 0) * _PEAK_GROWTH:
                    continue
                if not self._is_due(tag, RESERVED):
                    continue
                self._peaks[tag] = usage.high_water
            self._note(tag, usage, RESERVED, in_use=usage.high_water)

    def changed(self, tags: frozenset[MemoryTag], reason: str) -> None:
        """Pools slept or woke."""
        usage = self._pools.usage()
        for tag in sorted(tags):
            self._note(tag, usage[tag], reason)

    def _is_due(self, tag: MemoryTag, reason: str) -> bool:
        now_s = self._clock.monotonic_s()
        last_s = self._told_s.get((tag, reason))
        if last_s is not None and now_s - last_s < INTERVAL_S:
            return False
        self._told_s[tag, reason] = now_s
        return True

    def _note(
        self,
        tag: MemoryTag,
        usage: PoolUsage,
        reason: str,
        evicted_bytes: int = 0,
        *,
        in_use: int | None = None,
    ) -> None:
        self._notes.add(
            MemoryReported(
                worker_id=self._worker_id,
                pool=tag.value,
                in_use_bytes=usage.in_use if in_use is None else in_use,
                budget_bytes=usage.budget,
                evicted_bytes=evicted_bytes,
                reason=reason,
            )
        )
