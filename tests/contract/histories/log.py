"""A history as a log that can be read: what a reader of the log needs, and no more."""

from collections.abc import Mapping, Sequence

from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.records import EventPosition, StoredEvent


class HistoryLog(MemoryEventStore):
    """Reads events as they were stored; nothing can be appended."""

    def __init__(self, events: Sequence[StoredEvent]) -> None:
        super().__init__(partition_count=1 + max(event.partition for event in events))
        for event in events:
            self._partitions[event.partition].append(event)
            self._streams[event.stream_id].append(event)
            self._positions[event.event_id] = EventPosition(
                event.partition, event.offset, event.stream_id, event.stream_version
            )

    async def heads(self) -> Mapping[int, int]:
        return {number: len(events) for number, events in enumerate(self._partitions)}
