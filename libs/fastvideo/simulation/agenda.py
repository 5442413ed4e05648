"""What will happen, in order: the virtual clock of a simulation."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

MICROSECONDS = 1_000_000
"""In a second. Virtual time is whole microseconds, so that no sum of it depends on its order."""


def microseconds(seconds: float) -> int:
    """Seconds as whole microseconds."""
    return round(seconds * MICROSECONDS)


class Agenda:
    """Calls to be made at moments; those of one moment in the order in which they were put."""

    def __init__(self) -> None:
        self.now_us = 0
        self._entries: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def now_s(self) -> float:
        """Virtual seconds since the start."""
        return self.now_us / MICROSECONDS

    def at(self, moment_us: int, call: Callable[..., None], *arguments: Any) -> None:
        """Call at a moment, or now if that is over."""
        self._count += 1
        heappush(self._entries, (max(moment_us, self.now_us), self._count, call, arguments))

    def after(self, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call after a while."""
        self.at(self.now_us + microseconds(seconds), call, *arguments)

    def next_us(self) -> int | None:
        """When something happens next, if anything does."""
        return self._entries[0][0] if self._entries else None

    def step(self) -> None:
        """Let the next thing happen."""
        self.now_us, _, call, arguments = heappop(self._entries)
        call(*arguments)
