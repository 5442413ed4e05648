"""Reading the log as it grows: every event once and in order, from given cursors on."""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fastvideo.errors import CorruptLog, Unavailable
from fastvideo.events.records import StoredEvent
from fastvideo.events.store import PartitionReads
from fastvideo.events.wakeups import Wakeup, Wakeups
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PollLimits:
    """How a reader polls: fast after activity, then ever slower."""

    interval_s_min: float = 0.005
    interval_s_max: float = 0.2
    events_per_read_max: int = 500


BESIDE_HINTS: Final = PollLimits(interval_s_min=0.05, interval_s_max=1.0)
"""For who has hints from the other services, and need not look often while they can be heard."""

_ALONE: Final = PollLimits()


def check_next(event: StoredEvent, cursor: int) -> None:
    """Raise CorruptLog unless the event is the one after the cursor."""
    if event.offset != cursor + 1:
        raise CorruptLog(
            f"partition {event.partition} goes from offset {cursor} to {event.offset}",
            reason="OFFSET_GAP",
            subject=str(event.partition),
            attributes={"cursor": str(cursor), "offset": str(event.offset)},
        )


class LogSubscription:
    """An endless async iterator over the events of some partitions.

    `cursors` maps each partition to the offset after which to begin; 0 is the beginning. Within a
    partition events come in order. While the store is away the iterator waits. Raises CorruptLog
    at a gap or a wrong digest, and is of no use from then on.
    """

    def __init__(
        self,
        store: PartitionReads,
        cursors: Mapping[int, int],
        wakeups: Wakeups | None = None,
        limits: PollLimits | None = None,
    ) -> None:
        self._store = store
        self._limits = limits or PollLimits()
        # Offsets handed out, and offsets read.
        self._cursors = dict(cursors)
        self._read = dict(cursors)
        self._buffer: deque[StoredEvent] = deque()
        self._wakeup = wakeups.listen() if wakeups is not None else Wakeup()
        self._interval_s = self._limits.interval_s_min
        self._was_full = False
        # Partitions that may have more to read.
        self._ready = deque(sorted(self._cursors))

    @property
    def cursors(self) -> Mapping[int, int]:
        """By partition, the offset of the last event that was handed out."""
        return dict(self._cursors)

    @property
    def has_more(self) -> bool:
        """Whether the last read ended because it was full: the log surely goes on."""
        return self._was_full

    def __aiter__(self) -> "LogSubscription":
        return self

    async def __anext__(self) -> StoredEvent:
        if not self._buffer:
            await self._fill()
        event = self._buffer.popleft()
        self._cursors[event.partition] = event.offset
        return event

    async def next_batch(self) -> tuple[StoredEvent, ...]:
        """The next events, all of one partition, at least one."""
        if not self._buffer:
            await self._fill()
        batch = tuple(self._buffer)
        self._buffer.clear()
        self._cursors[batch[-1].partition] = batch[-1].offset
        return batch

    async def _fill(self) -> None:
        waiting = False
        while True:
            try:
                if await self._read_some():
                    return
                await self._find_work()
            except Unavailable as error:
                if not waiting:
                    _LOG.warning("the event log is away", error=str(error))
                waiting = True
                self._ready = deque(sorted(self._cursors))
                await asyncio.sleep(self._limits.interval_s_max)

    async def _read_some(self) -> bool:
        """Read from the first partition that has something; whether one had."""
        limit = self._limits.events_per_read_max
        while self._ready:
            partition = self._ready[0]
            cursor = self._read[partition]
            events = await self._store.read_partition(partition, cursor, limit)
            self._ready.popleft()
            if events:
                self._was_full = len(events) == limit
                self._accept(partition, events)
                if self._was_full:
                    # In turn with the others; what comes after a read that was not full is hinted
                    # at, or found by the next poll.
                    self._ready.append(partition)
                self._interval_s = self._limits.interval_s_min
                return True
        return False

    def _accept(self, partition: int, events: tuple[StoredEvent, ...]) -> None:
        cursor = self._read[partition]
        for event in events:
            check_next(event, cursor)
            cursor = event.offset
        self._buffer.extend(events)
        self._read[partition] = cursor

    async def _find_work(self) -> None:
        """Wait for a hint or for the next poll; then say which partitions to read."""
        # Who hears no hints looks as often as who never has any.
        most_s = _ALONE.interval_s_max if self._wakeup.is_deaf else self._interval_s
        hinted = await self._wakeup.wait(min(self._interval_s, most_s))
        if hinted:
            self._interval_s = self._limits.interval_s_min
            self._ready.extend(sorted(hinted & self._cursors.keys()))
            return
        self._interval_s = min(2 * self._interval_s, self._limits.interval_s_max)
        if len(self._cursors) == 1:
            self._ready.extend(self._cursors)
            return
        heads = await self._store.heads()
        self._ready.extend(p for p, read in sorted(self._read.items()) if heads[p] > read)
