"""Lanes: threads that work off bounded queues, so that nothing ever blocks the event loop."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
        self._turns = _Turns(threads)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    @property
    def waiting(self) -> int:
        """Calls that have not ended."""
        return self._waiting

    def submit(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Queue a call. Raises ResourceExhausted when the queue is full."""
        self._check_room()
        return self._submit(lambda: self._turns.beside(call))

    async def run(self, call: Callable[[], T]) -> T:
        """Queue a call and wait for it; it runs to its end also when the waiting is given up."""
        return await asyncio.shield(self.submit(call))

    async def run_alone(self, call: Callable[[], T]) -> T:
        """As `run`, for a call beside which no other of the lane may run, nor begin before it."""
        self._check_room()
        return await asyncio.shield(self._submit(lambda: self._turns.alone(call)))

    def close(self) -> None:
        """Take no more calls and drop those that have not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _check_room(self) -> None:
        if self._waiting >= self._queue_max:
            raise ResourceExhausted(
                f"{self._queue_max} calls wait for {self._name}, which is the most",
                subject=self._name,
                attributes={"queue_max": str(self._queue_max)},
            )

    def _submit(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        self._waiting += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, call)
        future.add_done_callback(self._ended)
        return future

    def _ended(self, future: "asyncio.Future[T]") -> None:
        self._waiting -= 1


class _Turns:
    """Calls of several threads side by side, and one that is alone when its turn comes."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._places = threading.Semaphore(threads)
        # Held by whoever takes places, so that nobody overtakes a call that wants all of them.
        self._entrance = threading.Lock()

    def beside(self, call: Callable[[], T]) -> T:
        """Run a call beside others."""
        with self._entrance:
            self._places.acquire()
        try:
            return call()
        finally:
            self._places.release()

    def alone(self, call: Callable[[], T]) -> T:
        """Run a call once all others have ended, and before the next one begins."""
        with self._entrance, self._all_places():
            return call()

    @contextmanager
    def _all_places(self) -> Iterator[None]:
        for _ in range(self._threads):
            self._places.acquire()
        try:
            yield
        finally:
            self._places.release(self._threads)
