"""The event store as services see it: what tenants wrote is sealed on its way in, opened on its
way out. Whoever hands events on (the relay) or checks them (verify) uses the store below."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from fastvideo.events.records import (
    AppendCommand,
    AppendResult,
    EventPosition,
    Fence,
    Lease,
    QuarantinedEvent,
    Snapshot,
    StoredEvent,
    StreamAppend,
)
from fastvideo.events.sealing.seal import Seals
from fastvideo.events.store import EventStore


class SealedEventStore:
    """An `EventStore` over another, which keeps sealed events."""

    def __init__(self, store: EventStore, seals: Seals) -> None:
        self._store = store
        self._seals = seals

    @property
    def partition_count(self) -> int:
        return self._store.partition_count

    async def append(self, command: AppendCommand) -> AppendResult:
        return await self._store.append(await self._sealed(command))

    async def append_many(self, commands: Sequence[AppendCommand]) -> tuple[AppendResult, ...]:
        return await self._store.append_many([await self._sealed(c) for c in commands])

    async def read_stream(
        self, stream_id: str, after_version: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        return await self._opened(await self._store.read_stream(stream_id, after_version, limit))

    async def read_partition(
        self, partition: int, after_offset: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        return await self._opened(await self._store.read_partition(partition, after_offset, limit))

    async def _sealed(self, command: AppendCommand) -> AppendCommand:
        if not command.streams:
            return command
        streams = []
        for append in command.streams:
            events = [await self._seals.seal(append.stream_id, event) for event in append.events]
            streams.append(StreamAppend(append.stream_id, tuple(events), append.expected_version))
        return replace(command, streams=tuple(streams))

    async def _opened(self, events: Sequence[StoredEvent]) -> tuple[StoredEvent, ...]:
        return tuple([await self._seals.open(event) for event in events])

    async def stream_version(self, stream_id: str) -> int:
        return await self._store.stream_version(stream_id)

    async def stream_ids(self, prefix: str, after: str = "", limit: int = 1000) -> tuple[str, ...]:
        return await self._store.stream_ids(prefix, after, limit)

    async def head(self, partition: int) -> int:
        return await self._store.head(partition)

    async def heads(self) -> Mapping[int, int]:
        return await self._store.heads()

    async def log_epoch(self) -> int:
        return await self._store.log_epoch()

    async def position_of(self, event_id: str) -> EventPosition | None:
        return await self._store.position_of(event_id)

    async def acquire_lease(self, name: str, holder: str, ttl_s: float) -> Lease | None:
        return await self._store.acquire_lease(name, holder, ttl_s)

    async def renew_lease(self, lease: Lease, ttl_s: float) -> Lease:
        return await self._store.renew_lease(lease, ttl_s)

    async def release_lease(self, lease: Lease) -> None:
        await self._store.release_lease(lease)

    async def read_lease(self, name: str) -> Lease | None:
        return await self._store.read_lease(name)

    async def load_checkpoint(self, name: str) -> Mapping[int, int]:
        return await self._store.load_checkpoint(name)

    async def save_checkpoint(
        self, name: str, partition: int, offset: int, fence: Fence | None = None
    ) -> None:
        await self._store.save_checkpoint(name, partition, offset, fence)

    async def save_snapshot(
        self, name: str, snapshot: Snapshot, fence: Fence | None = None
    ) -> None:
        await self._store.save_snapshot(name, snapshot, fence)

    async def load_snapshots(self, name: str) -> tuple[Snapshot, ...]:
        return await self._store.load_snapshots(name)

    async def inbox_seen(self, consumer: str, event_id: str) -> bool:
        return await self._store.inbox_seen(consumer, event_id)

    async def forget_inbox(self, consumer: str, before: datetime) -> int:
        return await self._store.forget_inbox(consumer, before)

    async def quarantine(self, event: QuarantinedEvent) -> None:
        await self._store.quarantine(event)

    async def list_quarantined(
        self, consumer: str | None = None, limit: int = 100
    ) -> tuple[QuarantinedEvent, ...]:
        return await self._store.list_quarantined(consumer, limit)

    async def close(self) -> None:
        await self._store.close()
