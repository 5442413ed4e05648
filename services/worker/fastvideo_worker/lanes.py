"""Lanes: threads that work off bounded queues, so that nothing ever blocks the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fastvideo.errors import ResourceExhausted

T = TypeVar("T")


class Lane:
    """A queue of calls and the threads that run them, in order when there is one thread.

    Used from the event loop's thread only.
    """

    def __init__(self, name: str, *, threads: int, queue_max: int) -> None:
        self._name = name
        self._queue_max = queue_max
        self._waiting = 0
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    @property
    def waiting(self) -> int:
        """Calls that have not ended."""
        return self._waiting

    def submit(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Queue a call. Raises ResourceExhausted when the queue is full."""
        if self._waiting >= self._queue_max:
            raise ResourceExhausted(
                f"{self._queue_max} calls wait for {self._name}, which is the most",
                subject=self._name,
                attributes={"queue_max": str(self._queue_max)},
            )
        self._waiting += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, call)
        future.add_done_callback(self._ended)
        return future

    async def run(self, call: Callable[[], T]) -> T:
        """Queue a call and wait for it; it runs to its end also when the waiting is given up."""
        return await asyncio.shield(self.submit(call))

    def close(self) -> None:
        """Take no more calls and drop those that have not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ended(self, future: "asyncio.Future[T]") -> None:
        self._waiting -= 1
