"""Hints that the log has grown, so that readers need not poll fast.

A hint may be lost and may come for nothing: readers poll as well.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol
from weakref import WeakSet

from fastvideo.bus import Bus

HINT_SUBJECT = "fastvideo.hints"


def _not_deaf() -> bool:
    return False


class Wakeup:
    """One listener's ear."""

    def __init__(self, deaf: Callable[[], bool] = _not_deaf) -> None:
        self._deaf = deaf
        self._partitions: set[int] = set()
        self._event = asyncio.Event()

    @property
    def is_deaf(self) -> bool:
        """Whether what other processes tell cannot be heard now."""
        return self._deaf()

    def set(self, partitions: Iterable[int]) -> None:
        """Say that these partitions have grown."""
        self._partitions.update(partitions)
        self._event.set()

    async def wait(self, timeout_s: float) -> frozenset[int]:
        """The partitions said to have grown since the last wait; none after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return frozenset()
        partitions = frozenset(self._partitions)
        self._partitions.clear()
        self._event.clear()
        return partitions


class Wakeups(Protocol):
    """Where writers tell and readers listen."""

    def listen(self) -> Wakeup:
        """An ear that hears what is told from now on, for as long as it is kept."""
        ...

    async def notify(self, partitions: Iterable[int]) -> None:
        """Tell that partitions have grown. Never raises, never waits."""
        ...

    @property
    def elsewhere(self) -> "Wakeups":
        """What other processes tell, for who need not hear of what this one appends.

        Where that cannot be told apart, it is all.
        """
        ...


class LocalWakeups:
    """Wake-ups inside this process."""

    def __init__(self, deaf: Callable[[], bool] = _not_deaf) -> None:
        self._deaf = deaf
        self._listeners: WeakSet[Wakeup] = WeakSet()

    def listen(self) -> Wakeup:
        wakeup = Wakeup(self._deaf)
        self._listeners.add(wakeup)
        return wakeup

    def tell(self, partitions: Iterable[int]) -> None:
        """Wake whoever listens here."""
        told = tuple(partitions)
        for listener in self._listeners:
            listener.set(told)

    async def notify(self, partitions: Iterable[int]) -> None:
        self.tell(partitions)

    @property
    def elsewhere(self) -> Wakeups:
        return self


class BusWakeups(LocalWakeups):
    """Wake-ups between processes, over the bus's lossy hints; and inside this one at once."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(self._is_away)
        self._bus = bus
        self._elsewhere = LocalWakeups(self._is_away)

    @classmethod
    async def open(cls, bus: Bus) -> "BusWakeups":
        """Listen on the bus, now or when it connects."""
        wakeups = cls(bus)
        await bus.listen(f"{HINT_SUBJECT}.*", wakeups._on_hint)
        return wakeups

    async def notify(self, partitions: Iterable[int]) -> None:
        told = tuple(partitions)
        self.tell(told)
        for partition in told:
            await self._bus.hint(f"{HINT_SUBJECT}.{partition}")

    @property
    def elsewhere(self) -> Wakeups:
        return self._elsewhere

    def _is_away(self) -> bool:
        return not self._bus.connected

    def _on_hint(self, subject: str) -> None:
        token = subject.rsplit(".", 1)[-1]
        if token.isdecimal():
            self.tell((int(token),))
            self._elsewhere.tell((int(token),))
