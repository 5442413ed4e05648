"""Figures over time: how busy a pool was, how long the queue."""

from collections.abc import Sequence
from math import ceil
from typing import Final

_BINS: Final = 240


class Samples:
    """The queue at moments."""

    def __init__(self, duration_s: float) -> None:
        self.duration_s = duration_s
        self.moments_s: list[float] = []
        self.queued: list[int] = []
        self.live: list[int] = []

    def add(self, now_s: float, queued: int, live: int) -> None:
        """Take a sample."""
        self.moments_s.append(now_s)
        self.queued.append(queued)
        self.live.append(live)

    @property
    def queue_mean(self) -> float:
        """Over the time in which requests come."""
        early = [
            queued
            for moment, queued in zip(self.moments_s, self.queued, strict=True)
            if moment <= self.duration_s
        ]
        return sum(early) / len(early) if early else 0.0

    @property
    def queue_max(self) -> int:
        """At any moment that was looked at."""
        return max(self.queued, default=0)


class PoolSeries:
    """How busy the compute slots of a pool's workers were."""

    def __init__(self, name: str, slots: int, duration_s: float) -> None:
        self.name = name
        self._slots = slots
        self._duration_s = duration_s
        self._bin_s = duration_s / _BINS
        self._busy: dict[int, float] = {}
        self._here: dict[int, float] = {}
        # Worker to its busy seconds, and those that it was there, while requests came.
        self._worker_busy: dict[str, float] = {}
        self._worker_here: dict[str, float] = {}
        self._since: dict[str, float] = {}
        self._forwards = self._rows = 0

    def joined(self, worker_id: str, now_s: float) -> None:
        """A worker is there."""
        self._since[worker_id] = now_s
        self._worker_busy.setdefault(worker_id, 0.0)

    def left(self, worker_id: str, now_s: float) -> None:
        """It is not."""
        since_s = self._since.pop(worker_id, None)
        if since_s is not None:
            self._spread(self._here, since_s, now_s)
            there_s = max(0.0, min(now_s, self._duration_s) - since_s)
            self._worker_here[worker_id] = self._worker_here.get(worker_id, 0.0) + there_s

    def finish(self, now_s: float) -> None:
        """Nothing comes after."""
        for worker_id in list(self._since):
            self.left(worker_id, now_s)

    def worked(self, worker_id: str, from_s: float, to_s: float, rows: int) -> None:
        """A slot was busy; `rows` units shared it, 0 where none may share."""
        self._spread(self._busy, from_s, to_s)
        inside_s = min(to_s, self._duration_s) - min(from_s, self._duration_s)
        self._worker_busy[worker_id] = self._worker_busy.get(worker_id, 0.0) + inside_s
        if rows:
            self._forwards += 1
            self._rows += rows

    @property
    def batch_size(self) -> float:
        """Units in an average forward that may be shared."""
        return self._rows / self._forwards if self._forwards else 0.0

    def utilisations(self) -> list[float]:
        """The share of each worker's time in which its slots were busy."""
        return [
            busy_s / (self._worker_here[worker_id] * self._slots)
            for worker_id, busy_s in sorted(self._worker_busy.items())
            if self._worker_here.get(worker_id, 0.0) > 0
        ]

    def over_time(self) -> tuple[list[float], list[float]]:
        """Moments, and the share of the slots that were busy then."""
        bins = range(max(self._busy, default=0) + 1)
        moments = [(index + 0.5) * self._bin_s for index in bins]
        shares = []
        for index in bins:
            here_s = self._here.get(index, 0.0) * self._slots
            shares.append(min(1.0, self._busy.get(index, 0.0) / here_s) if here_s else 0.0)
        return moments, shares

    def _spread(self, bins: dict[int, float], from_s: float, to_s: float) -> None:
        first, last = int(from_s / self._bin_s), int(to_s / self._bin_s)
        for index in range(first, last + 1):
            inside_s = min(to_s, (index + 1) * self._bin_s) - max(from_s, index * self._bin_s)
            if inside_s > 0:
                bins[index] = bins.get(index, 0.0) + inside_s


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below or at which that share of the values lies; 0 without values."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else 0.0
