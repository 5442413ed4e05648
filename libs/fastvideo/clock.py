"""Time as a thing that is handed in, so that decisions can be replayed."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A source of wall time and of time for measuring."""

    def now(self) -> datetime:
        """Wall time, UTC."""
        ...

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start, never going back."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that a test or a simulation moves."""

    def __init__(self, start: datetime) -> None:
        self._now = start
        self._start = start

    def now(self) -> datetime:
        return self._now

    def monotonic_s(self) -> float:
        return (self._now - self._start).total_seconds()

    def set(self, now: datetime) -> None:
        """Jump to a wall time, later or earlier."""
        self._now = now


def milliseconds(moment: datetime) -> int:
    """Unix time of a moment in milliseconds."""
    return int(moment.timestamp() * 1000)
