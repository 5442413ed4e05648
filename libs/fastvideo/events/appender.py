"""Group commit: many callers' appends in few transactions.

A durable commit costs about the same for one event and for a hundred. While one transaction
runs, commands gather, and go together in the next. Order of arrival is order in the log.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from fastvideo.errors import FastVideoError, ResourceExhausted, Unavailable
from fastvideo.events.records import AppendCommand, AppendResult
from fastvideo.events.recovery import append_surely
from fastvideo.events.store import EventLog
from fastvideo.events.wakeups import Wakeups
from fastvideo.telemetry import metrics, tracing
from fastvideo.telemetry.instruments import APPEND_DURATION, APPENDED


@dataclass(frozen=True, slots=True)
class AppenderLimits:
    """The bounds of an appender."""

    # Commands that wait to be appended; a caller then waits for room.
    queue_commands_max: int = 10_000
    room_timeout_s: float = 30.0
    events_per_commit_max: int = 500
    # How long a command is tried while the store is away.
    retry_for_s: float = 30.0


@dataclass(eq=False, slots=True)
class _Pending:
    command: AppendCommand
    deadline: float
    # None for a command that nobody awaits.
    done: asyncio.Future[AppendResult] | None
    # Called once it is committed.
    committed: Callable[[], None] | None
    events: int = field(init=False)

    def __post_init__(self) -> None:
        self.events = _events(self.command)


class Appender:
    """Appends in batches. Use it as an async context manager; leaving it flushes."""

    def __init__(
        self, store: EventLog, wakeups: Wakeups | None = None, limits: AppenderLimits | None = None
    ) -> None:
        self._store = store
        self._wakeups = wakeups
        self._limits = limits or AppenderLimits()
        self._queue: deque[_Pending] = deque()
        self._committing: list[_Pending] = []
        self._arrived = asyncio.Event()
        # Set while the queue has room, and while nothing is queued or being appended.
        self._room = asyncio.Event()
        self._room.set()
        self._idle = asyncio.Event()
        self._idle.set()
        # The first error of a command that nobody awaited.
        self._failure: FastVideoError | None = None
        self._task: asyncio.Task[None] | None = None
        self._appended = metrics.counter(APPENDED)
        self._append_seconds = metrics.histogram(APPEND_DURATION)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="event-appender")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._settled()
        finally:
            if self._task is not None:
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)
        if error is None:
            self._raise_failure()

    async def append(self, command: AppendCommand) -> AppendResult:
        """Append a command and wait until it is committed.

        Raises as `EventLog.append` does, ResourceExhausted when the queue stays full. A caller
        that is cancelled while it waits does not take the command back.
        """
        done: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        with tracing.span("log.append", {"fastvideo.events": _events(command)}):
            await self._put(command, done)
            return await done

    async def enqueue(
        self, command: AppendCommand, committed: Callable[[], None] | None = None
    ) -> None:
        """Append a command behind the caller's back; `committed` is called when that is done.

        Raises ResourceExhausted when the queue stays full, and the error of an earlier enqueued
        command that failed meanwhile.
        """
        self._raise_failure()
        await self._put(command, None, committed)

    async def flush(self) -> None:
        """Wait until all that was queued is committed. Raises the first error of `enqueue`."""
        await self._settled()
        self._raise_failure()

    async def _put(
        self,
        command: AppendCommand,
        done: asyncio.Future[AppendResult] | None,
        committed: Callable[[], None] | None = None,
    ) -> None:
        if self._task is None or self._task.done():
            raise Unavailable("the appender is not running", subject="event-appender")
        if not self._room.is_set():
            await self._wait_for_room()
        deadline = time.monotonic() + self._limits.retry_for_s
        self._queue.append(_Pending(command, deadline, done, committed))
        if len(self._queue) >= self._limits.queue_commands_max:
            self._room.clear()
        self._idle.clear()
        self._arrived.set()

    async def _wait_for_room(self) -> None:
        try:
            async with asyncio.timeout(self._limits.room_timeout_s):
                # Another waiter may have taken the room that woke this one.
                while len(self._queue) >= self._limits.queue_commands_max:
                    await self._room.wait()
        except TimeoutError as error:
            raise ResourceExhausted(
                f"the appender's queue holds {len(self._queue)} commands",
                subject="event-appender",
            ) from error

    async def _settled(self) -> None:
        """Wait until nothing is queued; raises when the appender died with work left."""
        if self._task is None:
            return
        idle = asyncio.create_task(self._idle.wait())
        await asyncio.wait((idle, self._task), return_when=asyncio.FIRST_COMPLETED)
        if not idle.done():
            idle.cancel()
            await self._task

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def _run(self) -> None:
        try:
            while True:
                if not self._queue:
                    self._idle.set()
                    self._arrived.clear()
                    await self._arrived.wait()
                    # Let callers that became ready in the same moment join the batch.
                    await asyncio.sleep(0)
                self._committing = self._take()
                await self._commit(self._committing)
        finally:
            # Only a forced end leaves something: nobody may wait for it for ever.
            for pending in (*self._committing, *self._queue):
                if pending.done is not None:
                    pending.done.cancel()

    def _take(self) -> list[_Pending]:
        """The commands of the next transaction, oldest first, at least one."""
        taken = [self._queue.popleft()]
        events = taken[0].events
        while self._queue:
            events += self._queue[0].events
            if events > self._limits.events_per_commit_max:
                break
            taken.append(self._queue.popleft())
        self._room.set()
        return taken

    async def _commit(self, batch: list[_Pending]) -> None:
        uncertain = False
        begun_s = time.perf_counter()
        try:
            results = await self._store.append_many([pending.command for pending in batch])
        except FastVideoError as error:
            # One command may have failed all: try each by itself, in order.
            uncertain = isinstance(error, Unavailable)
        else:
            self._append_seconds.record(time.perf_counter() - begun_s)
            for pending, result in zip(batch, results, strict=True):
                self._succeed(pending, result)
            await self._notify(list(results))
            return
        for pending in batch:
            await self._commit_one(pending, uncertain)

    async def _commit_one(self, pending: _Pending, uncertain: bool) -> None:
        try:
            result = await append_surely(
                self._store,
                pending.command,
                retry_for_s=max(0.0, pending.deadline - time.monotonic()),
                uncertain=uncertain,
            )
        except FastVideoError as error:
            if pending.done is None:
                self._failure = self._failure or error
            elif not pending.done.done():
                pending.done.set_exception(error)
        else:
            self._succeed(pending, result)
            await self._notify([result])

    def _succeed(self, pending: _Pending, result: AppendResult) -> None:
        if not result.repeated:
            self._appended.add(pending.events)
        if pending.committed is not None:
            pending.committed()
        if pending.done is not None and not pending.done.done():
            pending.done.set_result(result)

    async def _notify(self, results: list[AppendResult]) -> None:
        if self._wakeups is not None:
            partitions = {p.partition for result in results for p in result.positions}
            await self._wakeups.notify(sorted(partitions))


def _events(command: AppendCommand) -> int:
    return sum(len(append.events) for append in command.streams)
