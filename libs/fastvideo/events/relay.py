"""From the log to the bus: the log is the outbox.

One relay a partition, under a lease, publishes in order and saves its cursor, a moment after the
bus has acknowledged. A relay that dies in between publishes some events again: the bus drops what
it remembers by message id, consumers drop the rest. What the bus lost is published again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from fastvideo.bus import Bus, BusMessage
from fastvideo.clock import Clock, SystemClock
from fastvideo.errors import Unavailable
from fastvideo.events.leadership import lead
from fastvideo.events.records import Lease, StoredEvent
from fastvideo.events.store import EventStore, PartitionReads
from fastvideo.events.subscription import LogSubscription, PollLimits
from fastvideo.events.wakeups import Wakeups
from fastvideo.telemetry.logging import get_logger

EVENT_SUBJECT = "fastvideo.events"
EVENT_ID_HEADER = "Fastvideo-Event-Id"
CHECKPOINT = "relay"

_LOG: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class BusPosition:
    """The place of an event, as its message id tells it."""

    log_epoch: int
    partition: int
    offset: int

    @classmethod
    def parse(cls, message_id: str) -> "BusPosition | None":
        """The position in a message id; None when it is none of ours."""
        parts = message_id.split(":")
        if len(parts) != 3 or not all(part.isdecimal() for part in parts):
            return None
        return cls(*map(int, parts))

    @property
    def message_id(self) -> str:
        """The id under which the bus deduplicates."""
        return f"{self.log_epoch}:{self.partition}:{self.offset}"


def bus_message(event: StoredEvent, encode: Callable[[StoredEvent], bytes]) -> BusMessage:
    """An event as the bus carries it."""
    position = BusPosition(event.log_epoch, event.partition, event.offset)
    return BusMessage(
        subject=f"{EVENT_SUBJECT}.{event.partition}.{event.type}",
        data=encode(event),
        message_id=position.message_id,
        headers={EVENT_ID_HEADER: event.event_id},
    )


async def offset_before(store: PartitionReads, partition: int, moment: datetime) -> int:
    """The offset of the last event recorded before a moment; 0 when there is none.

    Times rise with offsets in a partition, so a binary search finds it.
    """
    low, high = 0, await store.head(partition)
    while low < high:
        middle = (low + high + 1) // 2
        (event,) = await store.read_partition(partition, middle - 1, 1)
        if event.recorded_at < moment:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(frozen=True, slots=True)
class RelayLimits:
    """The bounds of a relay."""

    # Messages published without waiting for one another.
    in_flight_max: int = 128
    # How long events gather for the next round, which costs as much for one as for many.
    gather_s: float = 0.02
    # How often the cursor is saved; what was published since is published again by the next
    # relay, and dropped by the bus.
    save_every_s: float = 0.25
    # How often an idle relay looks whether the bus still has what it was given.
    verify_s: float = 10.0
    retry_s: float = 0.25
    lease_ttl_s: float = 5.0


@dataclass(frozen=True, slots=True)
class RelayParts:
    """What a relay works with. `encode` gives the bytes of a message."""

    store: EventStore
    bus: Bus
    encode: Callable[[StoredEvent], bytes]
    wakeups: Wakeups | None = None
    polling: PollLimits | None = None
    limits: RelayLimits = field(default_factory=RelayLimits)
    clock: Clock = field(default_factory=SystemClock)


async def run_relay(
    parts: RelayParts, holder: str, partitions: Sequence[int] | None = None
) -> None:
    """Relay every partition (None: all) whose lease `holder` wins.

    Endless; ends by cancellation.
    """
    chosen = range(parts.store.partition_count) if partitions is None else partitions

    def work(partition: int) -> Callable[[Lease], Awaitable[None]]:
        return lambda lease: PartitionRelay(parts, partition, lease).run()

    async with asyncio.TaskGroup() as group:
        for partition in chosen:
            name = f"{CHECKPOINT}-{partition}"
            term = lead(parts.store, name, holder, work(partition), ttl_s=parts.limits.lease_ttl_s)
            group.create_task(term, name=name)


class PartitionRelay:
    """One term of one partition's relay, under a lease."""

    def __init__(self, parts: RelayParts, partition: int, lease: Lease) -> None:
        self._store, self._bus = parts.store, parts.bus
        self._parts = parts
        self._partition = partition
        self._lease = lease
        # Up to which offset the bus was given the partition, and what is saved of that.
        self._cursor = self._saved = 0
        self._save_due_s = 0.0
        self._incarnation: str | None = None

    async def run(self) -> None:
        """Publish for ever. Raises Fenced when another relay has taken over."""
        checkpoint = await self._store.load_checkpoint(CHECKPOINT)
        self._cursor = self._saved = checkpoint.get(self._partition, 0)
        waiting = False
        while True:
            connections = self._bus.connections
            try:
                await self._reconcile()
                waiting = False
                await self._publish_until_doubtful(connections)
            except Unavailable as error:
                if not waiting:
                    _LOG.warning("relay waits", partition=self._partition, error=str(error))
                waiting = True
                await asyncio.sleep(self._parts.limits.retry_s)

    async def _reconcile(self) -> None:
        """Move the cursor back to what the bus really has."""
        incarnation = await self._bus.incarnation()
        made_anew = self._incarnation not in (None, incarnation)
        kept = 0 if made_anew else await self._kept()
        # What the bus would have dropped for its age is not published again.
        has = kept or await self._expired()
        if has < self._cursor:
            _LOG.warning(
                "the bus lost events; publishing them again",
                partition=self._partition,
                first=has + 1,
                last=self._cursor,
            )
            await self._move(has)
        self._incarnation = incarnation

    async def _kept(self) -> int:
        """The offset of the last event that the bus has; 0 when it has none of this log."""
        pattern = f"{EVENT_SUBJECT}.{self._partition}.>"
        kept = BusPosition.parse(await self._bus.last_message_id(pattern) or "")
        # A log restored from a backup has another epoch: what the bus has is of another history.
        if kept is None or kept.log_epoch != await self._store.log_epoch():
            return 0
        return kept.offset

    async def _expired(self) -> int:
        oldest = self._parts.clock.now() - timedelta(seconds=self._bus.retention_s)
        return await offset_before(self._store, self._partition, oldest)

    async def _publish_until_doubtful(self, connections: int) -> None:
        """Publish what comes, until the bus reconnected or it is time to look again."""
        limits = self._parts.limits
        cursors = {self._partition: self._cursor}
        subscription = LogSubscription(
            self._store, cursors, self._parts.wakeups, self._parts.polling
        )
        reading: asyncio.Task[tuple[StoredEvent, ...]] | None = None
        try:
            while True:
                reading = reading or asyncio.create_task(subscription.next_batch(), name="relayed")
                is_saved = self._saved == self._cursor
                timeout_s = limits.verify_s if is_saved else limits.save_every_s
                done, _ = await asyncio.wait({reading}, timeout=timeout_s)
                if done:
                    events, reading = reading.result(), None
                    if self._bus.connections != connections:
                        return
                    await self._publish(events)
                    self._cursor = events[-1].offset
                elif is_saved:
                    return
                if not done or self._parts.clock.monotonic_s() >= self._save_due_s:
                    await self._save()
                if done and not subscription.has_more:
                    await asyncio.sleep(limits.gather_s)
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _publish(self, events: Sequence[StoredEvent]) -> None:
        """Publish in order and wait until the bus has them all."""
        step = self._parts.limits.in_flight_max
        for start in range(0, len(events), step):
            some = events[start : start + step]
            await self._bus.publish(*(bus_message(event, self._parts.encode) for event in some))

    async def _move(self, cursor: int) -> None:
        self._cursor = cursor
        await self._save()

    async def _save(self) -> None:
        cursor = self._cursor
        await self._store.save_checkpoint(CHECKPOINT, self._partition, cursor, self._lease.fence)
        self._saved = cursor
        self._save_due_s = self._parts.clock.monotonic_s() + self._parts.limits.save_every_s
