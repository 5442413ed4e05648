"""A log whose newest events one reader keeps in memory, for all in a process who follow it.

A process may have many followers: watches, counters, keys, projections. Each would read every row
from the database and check its digest. Here one reads, and the others find the newest events in
memory. Whoever is behind them reads the database, by itself and at its own pace: nobody waits for
a slow follower, and it misses nothing.
"""

import asyncio
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from fastvideo.clock import Clock, SystemClock
from fastvideo.errors import CorruptLog, Unavailable
from fastvideo.events.records import AppendCommand, AppendResult, EventPosition, StoredEvent
from fastvideo.events.sealing.keys import ERASURE_S_MAX
from fastvideo.events.store import EventLog
from fastvideo.events.subscription import LogSubscription, PollLimits
from fastvideo.events.wakeups import LocalWakeups, Wakeup, Wakeups
from fastvideo.requests.sealing import TenantErased
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)

POLLING: Final = PollLimits(interval_s_min=1.0, interval_s_max=5.0)
"""Of followers: they are told of all that comes, and look only in case that the tail broke."""

RETRY_S: Final = 0.2
# How long followers read for themselves after the tail met what it cannot read.
RETRY_BROKEN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class TailLimits:
    """How much of the log's end is kept, of all partitions together."""

    events_max: int = 2_000
    bytes_max: int = 16 << 20


@dataclass(slots=True)
class _Window:
    """The newest events of a partition, up to and with the offset `end`."""

    end: int
    events: deque[StoredEvent] = field(default_factory=deque)

    def after(self, offset: int, limit: int) -> tuple[StoredEvent, ...]:
        """The first events after an offset; none when the first of them is not here."""
        passed = len(self.events) - (self.end - offset)
        return tuple(islice(self.events, passed, passed + limit)) if passed >= 0 else ()


class TailedLog:
    """An `EventLog` for followers, and the `Wakeups` that tell them; `run` must run beside it.

    Whoever listens is told what has come here, and finds it here. Before `run` and when that
    ends, everybody reads the database.
    """

    def __init__(
        self,
        log: EventLog,
        wakeups: Wakeups | None = None,
        polling: PollLimits | None = None,
        limits: TailLimits | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._log = log
        self._wakeups = wakeups
        self._polling = polling
        self._limits = limits or TailLimits()
        self._clock = clock or SystemClock()
        self._told = LocalWakeups()
        # By partition; empty while nothing is kept.
        self._windows: dict[int, _Window] = {}
        # Of what partition each event is that is kept, the oldest first, and how large they are.
        self._order: deque[int] = deque()
        self._bytes = 0
        # Nothing is kept before this moment.
        self._keeps_from_s = -math.inf

    async def run(self) -> None:
        """Read for ever; ends by cancellation.

        What this cannot read, followers meet themselves: until the next try they read the
        database.
        """
        while True:
            try:
                await self._keep()
            except CorruptLog as error:
                _LOG.error("followers read the log by themselves", error=error.message)
            finally:
                await self._forget()
            await asyncio.sleep(RETRY_BROKEN_S)

    async def _keep(self) -> None:
        heads = await self._heads()
        self._windows = {partition: _Window(head) for partition, head in heads.items()}
        # What was appended between their last look and these heads nobody tells them of later.
        await self._told.notify(heads)
        subscription = LogSubscription(self._log, heads, self._wakeups, self._polling)
        while True:
            batch = await subscription.next_batch()
            self._take(batch)
            await self._told.notify((batch[0].partition,))

    async def _heads(self) -> Mapping[int, int]:
        while True:
            try:
                return await self._log.heads()
            except Unavailable as error:
                _LOG.warning("the tail waits for the database", error=error.message)
                await asyncio.sleep(RETRY_S)

    def _take(self, batch: Sequence[StoredEvent]) -> None:
        now_s = self._clock.monotonic_s()
        if any(stored.type == TenantErased.__name__ for stored in batch):
            # What the tenant wrote is not kept any longer here either, nor is what this process
            # can still open of it.
            self._drop()
            self._keeps_from_s = now_s + ERASURE_S_MAX
        window = self._windows[batch[0].partition]
        window.end = batch[-1].offset
        if now_s < self._keeps_from_s:
            return
        window.events.extend(batch)
        self._order.extend(stored.partition for stored in batch)
        self._bytes += sum(map(_size, batch))
        while len(self._order) > self._limits.events_max or self._bytes > self._limits.bytes_max:
            self._bytes -= _size(self._windows[self._order.popleft()].events.popleft())

    def _drop(self) -> None:
        for window in self._windows.values():
            window.events.clear()
        self._order.clear()
        self._bytes = 0

    async def _forget(self) -> None:
        self._drop()
        partitions, self._windows = tuple(self._windows), {}
        await self._told.notify(partitions)

    # -- wake-ups ------------------------------------------------------------------------

    def listen(self) -> Wakeup:
        """As `Wakeups.listen`: hears of what has come here."""
        return self._told.listen()

    async def notify(self, partitions: Iterable[int]) -> None:
        """As `Wakeups.notify`."""
        if self._wakeups is not None:
            await self._wakeups.notify(partitions)

    # -- the log -------------------------------------------------------------------------

    async def read_partition(
        self, partition: int, after_offset: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        """As `EventLog.read_partition`; what is kept may end before the log does."""
        window = self._windows.get(partition)
        kept = window.after(after_offset, limit) if window is not None else ()
        return kept or await self._log.read_partition(partition, after_offset, limit)

    @property
    def elsewhere(self) -> Wakeups:
        return self

    @property
    def partition_count(self) -> int:
        return self._log.partition_count

    async def append(self, command: AppendCommand) -> AppendResult:
        return await self._log.append(command)

    async def append_many(self, commands: Sequence[AppendCommand]) -> tuple[AppendResult, ...]:
        return await self._log.append_many(commands)

    async def read_stream(
        self, stream_id: str, after_version: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        return await self._log.read_stream(stream_id, after_version, limit)

    async def stream_version(self, stream_id: str) -> int:
        return await self._log.stream_version(stream_id)

    async def stream_ids(self, prefix: str, after: str = "", limit: int = 1000) -> tuple[str, ...]:
        return await self._log.stream_ids(prefix, after, limit)

    async def head(self, partition: int) -> int:
        return await self._log.head(partition)

    async def heads(self) -> Mapping[int, int]:
        return await self._log.heads()

    async def log_epoch(self) -> int:
        return await self._log.log_epoch()

    async def position_of(self, event_id: str) -> EventPosition | None:
        return await self._log.position_of(event_id)


def _size(stored: StoredEvent) -> int:
    return len(stored.payload) + len(stored.metadata)
