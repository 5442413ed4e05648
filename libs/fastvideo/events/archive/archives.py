"""Reading what was archived: which archive holds an offset or a stream, and its events.

An archive is an object of a blob store, named by its SHA-256, which every read checks. The last
few are kept in memory.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final

from fastvideo.blobs import BlobStore, CorruptBlob
from fastvideo.errors import CorruptLog, FailedPrecondition, NotFound
from fastvideo.events.archive.format import BLOCK_EVENTS, Archive, corrupt
from fastvideo.events.postgres_pool import PostgresPool
from fastvideo.events.records import StoredEvent

ARCHIVES_KEPT: Final = 4
"""How many archives a reader has in memory, each of at most `archiver.ARCHIVE_BYTES_MAX`."""


@dataclass(frozen=True, slots=True)
class ArchiveRecord:
    """An archive as the database knows it."""

    partition: int
    first_offset: int
    last_offset: int
    # Its name in the blob store.
    object: str
    sha256: bytes
    previous_sha256: bytes
    events: int
    bytes: int
    archived_at: datetime

    @property
    def name(self) -> str:
        """How errors and people call it."""
        return f"{self.partition}:{self.first_offset}-{self.last_offset} ({self.object[:12]})"


_FIELDS = (
    "a.partition, a.first_offset, a.last_offset, a.object, a.sha256, a.previous_sha256, "
    "a.events, a.bytes, a.archived_at"
)

_OF_PARTITION = f"""
SELECT {_FIELDS} FROM archives a WHERE partition = $1 AND last_offset > $2
ORDER BY first_offset LIMIT $3
"""

_OF_STREAM = f"""
SELECT {_FIELDS} FROM archived_streams s
JOIN archives a ON a.partition = s.partition AND a.first_offset = s.archive
WHERE s.stream_id = $1 AND s.last_version > $2 ORDER BY s.first_version LIMIT 1
"""

_EPOCH = "SELECT log_epoch FROM partitions WHERE partition = $1"


class ArchiveReader:
    """Reads archives for a store. Raises CorruptLog for one that is missing or altered.

    Without `blobs` it raises FailedPrecondition, reason ARCHIVE_STORE, once an archive is needed.
    """

    def __init__(self, pool: PostgresPool, blobs: BlobStore | None) -> None:
        self._pool = pool
        self.blobs = blobs
        self._kept: OrderedDict[str, Archive] = OrderedDict()
        self._fetching = asyncio.Lock()

    async def records(
        self, partition: int, after_offset: int = 0, limit: int = 1000
    ) -> tuple[ArchiveRecord, ...]:
        """The archives of a partition that end after an offset, oldest first."""
        async with self._pool.connection() as connection:
            rows = await connection.fetch(_OF_PARTITION, partition, after_offset, limit)
        return tuple(ArchiveRecord(*row) for row in rows)

    async def read_partition(
        self, partition: int, after_offset: int, limit: int
    ) -> list[StoredEvent]:
        """The archived events of a partition after an offset, oldest first, at most `limit`."""
        found: list[StoredEvent] = []
        while len(found) < limit:
            records = await self.records(partition, after_offset, 1)
            if not records or (records[0].first_offset > after_offset + 1):
                break
            wanted = min(records[0].last_offset, after_offset + limit - len(found))
            archive = await self.open(records[0])
            epoch = await self._epoch(partition)
            async for some in in_blocks(archive.events(after_offset + 1, wanted, epoch)):
                found.extend(some)
            after_offset = wanted
        return found

    async def read_stream(
        self, stream_id: str, after_version: int, limit: int
    ) -> list[StoredEvent]:
        """The archived events of a stream after a version, oldest first, at most `limit`."""
        found: list[StoredEvent] = []
        while len(found) < limit:
            async with self._pool.connection() as connection:
                row = await connection.fetchrow(_OF_STREAM, stream_id, after_version)
            if row is None:
                break
            record = ArchiveRecord(*row)
            archive = await self.open(record)
            epoch = await self._epoch(record.partition)
            events = archive.stream_events(stream_id, after_version, epoch)
            of_stream: list[StoredEvent] = []
            async for some in in_blocks(islice(events, limit - len(found))):
                of_stream.extend(some)
            if not of_stream:
                raise corrupt(record.name, f"holds nothing of stream {stream_id}")
            found.extend(of_stream)
            after_version = of_stream[-1].stream_version
        return found

    async def read_event(self, partition: int, offset: int) -> StoredEvent | None:
        """The archived event at an offset; None when it is in no archive."""
        events = await self.read_partition(partition, offset - 1, 1)
        return events[0] if events and events[0].offset == offset else None

    async def open(self, record: ArchiveRecord) -> Archive:
        """An archive's events, checked against its digest."""
        async with self._fetching:
            if record.object in self._kept:
                self._kept.move_to_end(record.object)
                return self._kept[record.object]
            archive = await self._fetch(record)
            self._kept[record.object] = archive
            while len(self._kept) > ARCHIVES_KEPT:
                self._kept.popitem(last=False)
            return archive

    async def _fetch(self, record: ArchiveRecord) -> Archive:
        if self.blobs is None:
            raise FailedPrecondition(
                f"events up to offset {record.last_offset} of partition {record.partition} are in "
                "an archive, and this program was not told where archives are",
                reason="ARCHIVE_STORE",
                subject=record.name,
            )
        try:
            data = b"".join([chunk async for chunk in self.blobs.read(record.object)])
        except NotFound as error:
            raise corrupt(record.name, "is missing") from error
        except CorruptBlob as error:
            raise corrupt(record.name, "was altered: it does not have its digest") from error
        archive = await asyncio.to_thread(Archive, data, record.name)
        check_manifest(archive, record)
        return archive

    async def _epoch(self, partition: int) -> int:
        async with self._pool.connection() as connection:
            epoch: int = await connection.fetchval(_EPOCH, partition)
        return epoch


async def in_blocks(events: Iterator[StoredEvent]) -> AsyncIterator[list[StoredEvent]]:
    """What an archive gives, about a block at a time.

    Each is inflated and checked in a thread: whoever else is served here is answered meanwhile.
    """
    while some := await asyncio.to_thread(list, islice(events, BLOCK_EVENTS)):
        yield some


def check_manifest(archive: Archive, record: ArchiveRecord) -> None:
    """Raise CorruptLog unless the archive says of itself what the database says."""
    manifest = archive.manifest
    if (
        manifest.partition,
        manifest.first_offset,
        manifest.last_offset,
        manifest.previous_sha256,
    ) != (record.partition, record.first_offset, record.last_offset, record.previous_sha256):
        raise corrupt(record.name, "is another than the database says")


def check_chain(records: Sequence[ArchiveRecord]) -> None:
    """Raise CorruptLog unless each names the one before it and begins behind it.

    `records` are all of a partition, oldest first.
    """
    previous, expected = b"", 1
    for record in records:
        if record.previous_sha256 != previous:
            raise corrupt(record.name, "does not name the archive before it")
        if record.first_offset != expected:
            raise CorruptLog(
                f"archive {record.name} does not begin at offset {expected}",
                reason="ARCHIVE",
                subject=record.name,
            )
        previous, expected = record.sha256, record.last_offset + 1
