"""Puts closed ranges of the log away: into archives first, out of the database then.

For each piece of a range: its archive is written to the blob store, read back and compared, and
recorded in the database. Once all of a range is recorded, its table is dropped. Whoever dies in
between leaves a range that is whole in the database, and the next run goes on where it was: the
same events give the same object, and what is recorded is not written again.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fastvideo.blobs import BlobStore
from fastvideo.errors import Conflict, CorruptLog, FailedPrecondition
from fastvideo.events.archive.archives import ArchiveRecord
from fastvideo.events.archive.format import Archive, corrupt, write_archive
from fastvideo.events.low_water import check_read
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.postgres_pool import PostgresPool
from fastvideo.events.records import StoredEvent
from fastvideo.events.relay import offset_before
from fastvideo.events.subscription import check_next

ARCHIVE_EVENTS_MAX: Final = 20_000
ARCHIVE_BYTES_MAX: Final = 16 << 20
"""Of payloads and metadata in one archive; one event more may pass it."""

EVENTS_PER_READ: Final = 1_000

_RANGES: Final = """
SELECT first_offset, end_offset FROM event_ranges r
JOIN partitions p ON p.partition = r.partition
WHERE r.partition = $1 AND r.end_offset <= $2 AND p.next_offset > r.end_offset
ORDER BY first_offset
"""

_RECORD: Final = """
INSERT INTO archives
    (partition, first_offset, last_offset, object, sha256, previous_sha256, events, bytes)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING RETURNING archived_at
"""

_RECORD_STREAMS: Final = """
INSERT INTO archived_streams (stream_id, first_version, last_version, partition, archive)
SELECT s.id, s.first, s.last, $4, $5 FROM unnest($1::text[], $2::bigint[], $3::bigint[])
    AS s (id, first, last)
"""


@dataclass(frozen=True, slots=True)
class EventRange:
    """Offsets that share a table; `end_offset` is the first behind it."""

    partition: int
    first_offset: int
    end_offset: int


class Archiver:
    """Archives the ranges of a log. One at a time: a second one fails with Conflict."""

    def __init__(self, store: PostgresEventStore, pool: PostgresPool, blobs: BlobStore) -> None:
        self._store = store
        self._pool = pool
        self._blobs = blobs

    async def closed_ranges(self, partition: int, before_offset: int) -> tuple[EventRange, ...]:
        """The ranges in the database that lie below an offset and are full, oldest first."""
        async with self._pool.connection() as connection:
            rows = await connection.fetch(_RANGES, partition, before_offset)
        return tuple(EventRange(partition, *row) for row in rows)

    async def offset_at(self, partition: int, moment: datetime) -> int:
        """The offset of the first event that was recorded at or after a moment."""
        return await offset_before(self._store, partition, moment) + 1

    async def archive(
        self, closed: EventRange, without: Collection[str] = ()
    ) -> AsyncIterator[ArchiveRecord]:
        """Put a range away, archive by archive; its table is dropped at the end.

        Raises FailedPrecondition, RANGE_IN_USE, while a reader is behind, unless it is one of
        `without`; CorruptLog when what is in the database or in the blob store is not whole.
        """
        await check_read(self._pool, closed.partition, closed.end_offset - 1, without)
        last = await self._last_record(closed)
        offset = max(closed.first_offset - 1, last.last_offset if last is not None else 0)
        while offset < closed.end_offset - 1:
            events = await self._piece(closed, offset)
            last = await self._put_away(events, last)
            yield last
            offset = last.last_offset
        await self._drop(closed)

    async def _last_record(self, closed: EventRange) -> ArchiveRecord | None:
        """The newest archive of the partition, which must reach to the range or into it."""
        last: ArchiveRecord | None = None
        after = max(0, closed.first_offset - 2)
        while records := await self._store.archives.records(closed.partition, after):
            last, after = records[-1], records[-1].last_offset
        if last is None and closed.first_offset > 1:
            raise FailedPrecondition(
                f"the range before offset {closed.first_offset} is not archived yet",
                reason="ARCHIVE_ORDER",
                subject=str(closed.first_offset),
            )
        return last

    async def _piece(self, closed: EventRange, offset: int) -> list[StoredEvent]:
        """The events of the next archive, behind an offset."""
        events: list[StoredEvent] = []
        size = 0
        while len(events) < ARCHIVE_EVENTS_MAX and size < ARCHIVE_BYTES_MAX:
            room = min(EVENTS_PER_READ, ARCHIVE_EVENTS_MAX - len(events))
            limit = min(room, closed.end_offset - 1 - offset)
            page = (
                await self._store.read_partition(closed.partition, offset, limit) if limit else ()
            )
            for event in page:
                check_next(event, offset)
                offset = event.offset
                events.append(event)
                size += len(event.payload) + len(event.metadata)
                if size >= ARCHIVE_BYTES_MAX:
                    break
            if not page:
                break
        if not events:
            raise CorruptLog(
                f"partition {closed.partition} has no event behind offset {offset}",
                reason="OFFSET_GAP",
                subject=str(closed.partition),
            )
        return events

    async def _put_away(
        self, events: Sequence[StoredEvent], previous: ArchiveRecord | None
    ) -> ArchiveRecord:
        previous_sha256 = previous.sha256 if previous is not None else b""
        data = write_archive(events, previous_sha256)
        blob = await self._blobs.put(_chunks(data))
        await self._read_back(blob.digest, events)
        return await self._record(events, blob.digest, len(data), previous_sha256)

    async def _read_back(self, name: str, events: Sequence[StoredEvent]) -> None:
        """Raise CorruptLog unless the blob store gives exactly these events."""
        data = b"".join([chunk async for chunk in self._blobs.read(name)])
        first, last = events[0], events[-1]
        found = Archive(data, name).events(first.offset, last.offset, first.log_epoch)
        if list(found) != list(events):
            raise corrupt(name, "does not read back as it was written")

    async def _record(
        self, events: Sequence[StoredEvent], name: str, size: int, previous_sha256: bytes
    ) -> ArchiveRecord:
        first, last = events[0], events[-1]
        versions: dict[str, tuple[int, int]] = {}
        for event in events:
            begin, _ = versions.get(event.stream_id, (event.stream_version, 0))
            versions[event.stream_id] = (begin, event.stream_version)
        values = (first.partition, first.offset, last.offset, name, bytes.fromhex(name))
        async with self._pool.connection() as connection, connection.transaction():
            at = await connection.fetchval(_RECORD, *values, previous_sha256, len(events), size)
            if at is None:
                raise Conflict(
                    f"offset {first.offset} of partition {first.partition} was archived meanwhile",
                    subject=str(first.offset),
                )
            await connection.execute(
                _RECORD_STREAMS,
                list(versions),
                [begin for begin, _ in versions.values()],
                [end for _, end in versions.values()],
                first.partition,
                first.offset,
            )
        return ArchiveRecord(*values, previous_sha256, len(events), size, at)

    async def _drop(self, closed: EventRange) -> None:
        """Drop the range's table. Raises Unavailable while a long read keeps it."""
        async with self._pool.connection() as connection:
            await connection.execute(
                "SELECT drop_archived_events($1, $2)", closed.partition, closed.first_offset
            )


async def _chunks(data: bytes) -> AsyncIterator[bytes]:
    step = 1 << 20
    for start in range(0, len(data), step):
        yield data[start : start + step]
