"""Reading on past damaged events, whose payloads do not have their digests."""

from collections.abc import Awaitable, Callable, Mapping
from operator import attrgetter

from fastvideo.events.records import DamagedEvent, StoredEvent
from fastvideo.events.store import PartitionReads

Reads = Callable[[int, int], Awaitable[tuple[StoredEvent, ...]]]
"""From a place and a limit to the events after that place, in order."""


async def read_past(
    read: Reads, place_of: Callable[[StoredEvent], int], after: int, limit: int
) -> tuple[StoredEvent | DamagedEvent, ...]:
    """What a read gives, with an error in the place of each damaged event."""
    found: list[StoredEvent | DamagedEvent] = []
    step = limit
    while len(found) < limit:
        events: tuple[StoredEvent | DamagedEvent, ...]
        try:
            events = await read(after, step)
        except DamagedEvent as error:
            if step > 1:
                # Half by half, until it stands alone.
                step //= 2
                continue
            events = (error,)
        found += events
        if len(events) < step:
            break
        after, step = place_of(_stored(events[-1])), limit - len(found)
    return tuple(found)


class PastDamage:
    """A log for followers who must not stand still before one damaged event.

    That comes as it was found, and is not whole: its payload says nothing.
    """

    def __init__(self, log: PartitionReads) -> None:
        self._log = log

    async def read_partition(
        self, partition: int, after_offset: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        """As `EventLog.read_partition`."""

        async def read(after: int, count: int) -> tuple[StoredEvent, ...]:
            return await self._log.read_partition(partition, after, count)

        found = await read_past(read, attrgetter("offset"), after_offset, limit)
        return tuple(map(_stored, found))

    async def head(self, partition: int) -> int:
        """As `EventLog.head`."""
        return await self._log.head(partition)

    async def heads(self) -> Mapping[int, int]:
        """As `EventLog.heads`."""
        return await self._log.heads()


def _stored(found: StoredEvent | DamagedEvent) -> StoredEvent:
    return found.stored if isinstance(found, DamagedEvent) else found
