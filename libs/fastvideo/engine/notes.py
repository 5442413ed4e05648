"""What happened on a worker outside of a step, until the next report carries it away."""

import threading
from collections import deque
from typing import Final

from fastvideo.scheduling.traces import (
    BehaviorRecorded,
    CacheAccessed,
    ComponentsTraced,
    GraphUsed,
    MemoryReported,
    NonFiniteFound,
    ParityChecked,
    TraceNote,
    TransferRecorded,
)
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)

NOTES_MAX: Final = 4_096

# Of most worth first: what can be had again, or says least, goes before what cannot.
_WORTH: Final[tuple[type, ...]] = (
    BehaviorRecorded,
    NonFiniteFound,
    ParityChecked,
    CacheAccessed,
    TransferRecorded,
    GraphUsed,
    MemoryReported,
    ComponentsTraced,
)


class NoteBook:
    """Notes that wait, the oldest of least worth dropped when they are too many.

    Safe to use from any thread.
    """

    def __init__(self, notes_max: int = NOTES_MAX) -> None:
        self._notes_max = notes_max
        self._by_type: dict[type, deque[TraceNote]] = {kind: deque() for kind in _WORTH}
        self._count = 0
        self._dropped = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._count

    @property
    def dropped(self) -> int:
        """Notes that nobody will read, since too many waited."""
        return self._dropped

    def add(self, *notes: TraceNote) -> None:
        """Keep notes for the next report."""
        with self._lock:
            before = self._dropped
            for note in notes:
                self._by_type[type(note)].append(note)
                self._count += 1
                if self._count > self._notes_max:
                    self._drop_one()
            lost = self._dropped - before
        if lost:
            _LOG.warning("notes are dropped", dropped=lost, notes_max=self._notes_max)

    def take(self, most: int) -> tuple[TraceNote, ...]:
        """Up to so many notes, those of most worth first, in order within a type."""
        taken: list[TraceNote] = []
        with self._lock:
            for waiting in self._by_type.values():
                while waiting and len(taken) < most:
                    taken.append(waiting.popleft())
            self._count -= len(taken)
        return tuple(taken)

    def _drop_one(self) -> None:
        for waiting in reversed(self._by_type.values()):
            if waiting:
                waiting.popleft()
                self._count -= 1
                self._dropped += 1
                return
