"""The event log in a dictionary: for unit tests, the simulator and the in-process engine.

It keeps every rule of the port; it forgets everything when the process ends.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from fastvideo.clock import Clock, SystemClock
from fastvideo.errors import AlreadyExists, Conflict, Fenced, InvalidField
from fastvideo.events.batch import REPEATED, Batch
from fastvideo.events.records import (
    SNAPSHOTS_KEPT,
    AppendCommand,
    AppendResult,
    EventPosition,
    Fence,
    InboxMark,
    Lease,
    LogLimits,
    QuarantinedEvent,
    Snapshot,
    StoredEvent,
    check_ttl,
    payload_digest,
)

LOG_EPOCH = 1


class MemoryEventStore:
    """An `EventStore` in this process. Not safe for use from several threads."""

    def __init__(
        self,
        partition_count: int = 1,
        clock: Clock | None = None,
        limits: LogLimits | None = None,
    ) -> None:
        self._partition_count = partition_count
        self._clock = clock or SystemClock()
        self._limits = limits or LogLimits()
        self._partitions: list[list[StoredEvent]] = [[] for _ in range(partition_count)]
        self._streams: defaultdict[str, list[StoredEvent]] = defaultdict(list)
        self._positions: dict[str, EventPosition] = {}
        self._results: dict[str, bytes] = {}
        self._inbox: dict[InboxMark, datetime] = {}
        self._leases: dict[str, Lease] = {}
        self._checkpoints: defaultdict[str, dict[int, int]] = defaultdict(dict)
        self._snapshots: defaultdict[str, dict[int, Snapshot]] = defaultdict(dict)
        self._quarantined: dict[tuple[str, str], QuarantinedEvent] = {}

    @property
    def partition_count(self) -> int:
        return self._partition_count

    async def append(self, command: AppendCommand) -> AppendResult:
        try:
            return (await self.append_many((command,)))[0]
        except Conflict as error:
            if error.reason != REPEATED:
                raise
            key = command.idempotency_key
            return AppendResult((), True, self._results.get(key, b"") if key else b"")

    async def append_many(self, commands: Sequence[AppendCommand]) -> tuple[AppendResult, ...]:
        batch = Batch(commands, self._partition_count, self._limits)
        for name, epoch in batch.fences:
            self._check_fence(Fence(name, epoch))
        if any(key in self._results for key, _ in batch.keys) or any(
            mark in self._inbox for mark in batch.inbox
        ):
            raise Conflict("a command was appended before", reason=REPEATED)
        self._check_streams(batch)
        return self._write(batch)

    def _check_fence(self, fence: Fence) -> None:
        lease = self._leases.get(fence.lease)
        if lease is None or lease.epoch != fence.epoch:
            raise Fenced(f"lease {fence.lease} is not at epoch {fence.epoch}", subject=fence.lease)

    def _check_streams(self, batch: Batch) -> None:
        for stream in batch.streams.values():
            version = len(self._streams.get(stream.stream_id, ()))
            if stream.expected_version not in (None, version):
                raise Conflict(
                    f"stream {stream.stream_id} is at version {version}, "
                    f"expected {stream.expected_version}",
                    subject=stream.stream_id,
                    attributes={"version": str(version)},
                )
        for event in batch.events:
            if event.event_id in self._positions:
                raise AlreadyExists(f"event {event.event_id} is in the log", subject=event.event_id)

    def _write(self, batch: Batch) -> tuple[AppendResult, ...]:
        now = self._now(batch.partitions)
        offset_bases = [len(self._partitions[p]) + 1 for p in batch.partitions]
        version_bases = [len(self._streams.get(stream_id, ())) for stream_id in batch.streams]
        results = batch.results(offset_bases, version_bases)
        positions = [position for result in results for position in result.positions]
        epochs = [run.fence_epoch for run in batch.runs for _ in range(run.count)]
        for event, position, epoch in zip(batch.events, positions, epochs, strict=True):
            stored = StoredEvent(
                partition=position.partition,
                offset=position.offset,
                stream_id=position.stream_id,
                stream_version=position.stream_version,
                event_id=event.event_id,
                type=event.type,
                schema_version=event.schema_version,
                payload=event.payload,
                payload_sha256=payload_digest(event.payload),
                metadata=event.metadata,
                fence_epoch=epoch,
                recorded_at=now,
                log_epoch=LOG_EPOCH,
            )
            self._partitions[position.partition].append(stored)
            self._streams[position.stream_id].append(stored)
            self._positions[stored.event_id] = position
        self._results.update(batch.keys)
        self._inbox.update(dict.fromkeys(batch.inbox, now))
        return results

    def _now(self, partitions: Sequence[int]) -> datetime:
        """The clock's time, and not before what some partitions have."""
        last = (self._partitions[p][-1].recorded_at for p in partitions if self._partitions[p])
        return max((self._clock.now(), *last))

    async def read_stream(
        self, stream_id: str, after_version: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        limit = min(limit, self._limits.events_per_read_max)
        return tuple(self._streams.get(stream_id, ())[after_version : after_version + limit])

    async def read_partition(
        self, partition: int, after_offset: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        self._check_partition(partition)
        limit = min(limit, self._limits.events_per_read_max)
        return tuple(self._partitions[partition][after_offset : after_offset + limit])

    async def stream_version(self, stream_id: str) -> int:
        return len(self._streams.get(stream_id, ()))

    async def stream_ids(self, prefix: str, after: str = "", limit: int = 1000) -> tuple[str, ...]:
        named = (name for name in self._streams if name.startswith(prefix) and name > after)
        return tuple(sorted(named)[:limit])

    async def head(self, partition: int) -> int:
        self._check_partition(partition)
        return len(self._partitions[partition])

    async def heads(self) -> Mapping[int, int]:
        return {partition: len(events) for partition, events in enumerate(self._partitions)}

    async def log_epoch(self) -> int:
        return LOG_EPOCH

    async def position_of(self, event_id: str) -> EventPosition | None:
        return self._positions.get(event_id)

    def _check_partition(self, partition: int) -> None:
        if not 0 <= partition < self._partition_count:
            raise InvalidField("partition", partition, f"0 to {self._partition_count - 1}")

    async def acquire_lease(self, name: str, holder: str, ttl_s: float) -> Lease | None:
        check_ttl(ttl_s)
        now = self._clock.now()
        old = self._leases.get(name)
        running = old is not None and old.runs_at(now)
        if old is not None and running and old.holder != holder:
            return None
        epoch = 1 if old is None else old.epoch if running else old.epoch + 1
        lease = Lease(name, holder, epoch, now + timedelta(seconds=ttl_s))
        self._leases[name] = lease
        return lease

    async def renew_lease(self, lease: Lease, ttl_s: float) -> Lease:
        check_ttl(ttl_s)
        self._check_fence(lease.fence)
        expires_at = self._clock.now() + timedelta(seconds=ttl_s)
        renewed = Lease(lease.name, lease.holder, lease.epoch, expires_at)
        self._leases[lease.name] = renewed
        return renewed

    async def release_lease(self, lease: Lease) -> None:
        current = self._leases.get(lease.name)
        if current is not None and current.epoch == lease.epoch:
            now = self._clock.now()
            self._leases[lease.name] = Lease(lease.name, lease.holder, lease.epoch, now)

    async def read_lease(self, name: str) -> Lease | None:
        return self._leases.get(name)

    async def load_checkpoint(self, name: str) -> Mapping[int, int]:
        return dict(self._checkpoints.get(name, {}))

    async def save_checkpoint(
        self, name: str, partition: int, offset: int, fence: Fence | None = None
    ) -> None:
        self._check_partition(partition)
        if fence is not None:
            self._check_fence(fence)
        self._checkpoints[name][partition] = offset

    async def save_snapshot(
        self, name: str, snapshot: Snapshot, fence: Fence | None = None
    ) -> None:
        if fence is not None:
            self._check_fence(fence)
        self._snapshots[name][snapshot.version] = snapshot
        for version in sorted(self._snapshots[name])[:-SNAPSHOTS_KEPT]:
            del self._snapshots[name][version]

    async def load_snapshots(self, name: str) -> tuple[Snapshot, ...]:
        kept = self._snapshots.get(name, {})
        return tuple(kept[version] for version in sorted(kept, reverse=True))

    async def inbox_seen(self, consumer: str, event_id: str) -> bool:
        return InboxMark(consumer, event_id) in self._inbox

    async def forget_inbox(self, consumer: str, before: datetime) -> int:
        old = [m for m, at in self._inbox.items() if m.consumer == consumer and at < before]
        for mark in old:
            del self._inbox[mark]
        return len(old)

    async def quarantine(self, event: QuarantinedEvent) -> None:
        self._quarantined.setdefault((event.consumer, event.event_id), event)

    async def list_quarantined(
        self, consumer: str | None = None, limit: int = 100
    ) -> tuple[QuarantinedEvent, ...]:
        found = [e for e in self._quarantined.values() if consumer in (None, e.consumer)]
        found.sort(key=lambda event: event.quarantined_at, reverse=True)
        return tuple(found[:limit])

    async def close(self) -> None:
        return None
