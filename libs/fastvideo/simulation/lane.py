"""A worker's lane: what waits for it, and how many run at once."""

from collections import deque
from collections.abc import Callable

Job = Callable[[Callable[[], None]], None]
"""Begins some work and calls what it is given when that has ended."""


class Lane:
    """Jobs in the order in which they came, `slots` of them at a time."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._waiting: deque[Job] = deque()

    @property
    def waiting(self) -> int:
        """Jobs that have not begun."""
        return len(self._waiting)

    def put(self, job: Job) -> None:
        """Run a job when its turn comes."""
        self._waiting.append(job)
        self._run()

    def _run(self) -> None:
        while self._free and self._waiting:
            self._free -= 1
            self._waiting.popleft()(self._ended)

    def _ended(self) -> None:
        self._free += 1
        self._run()
