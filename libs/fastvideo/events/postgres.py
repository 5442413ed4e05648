"""The event log in Postgres: the authority of a deployment.

One call of the database's `append_events` checks the fences, takes the keys, marks and offsets,
compares and sets the streams, and inserts; it commits on its own. The partition's counter row is
held until then, which makes the order of offsets the order of commits.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastvideo.blobs import BlobStore
from fastvideo.errors import Conflict, CorruptLog, FailedPrecondition, InvalidField
from fastvideo.events.archive.archives import ArchiveReader
from fastvideo.events.batch import REPEATED, Batch
from fastvideo.events.postgres_coordination import PostgresCoordination
from fastvideo.events.postgres_pool import PostgresPool
from fastvideo.events.records import (
    AppendCommand,
    AppendResult,
    DamagedEvent,
    EventPosition,
    LogLimits,
    StoredEvent,
    payload_digest,
)
from fastvideo.events.store import partition_of

SCHEMA_REVISION = "0006"
"""The migration that this store is written for."""

_ARGUMENTS = ", ".join(f"${i}" for i in range(1, 24))
_APPEND = f"SELECT offset_bases, version_bases FROM append_events({_ARGUMENTS})"

# The fields of a StoredEvent in their order. All events of one read share a partition, $1.
EVENTS = """
SELECT partition, "offset", stream_id, stream_version, event_id, type, schema_version,
    payload, payload_sha256, metadata, fence_epoch, recorded_at,
    (SELECT p.log_epoch FROM partitions p WHERE p.partition = $1)
FROM events WHERE partition = $1
"""

# The stream's version comes with its events, so that one answer tells whether some are archived.
_READ_STREAM = f"""
SELECT s.version, e.* FROM streams s LEFT JOIN LATERAL (
    {EVENTS} AND stream_id = $2 AND stream_version > $3 ORDER BY stream_version LIMIT $4
) e ON true WHERE s.stream_id = $2 ORDER BY e.stream_version
"""

_READ_PARTITION = f"""
{EVENTS} AND "offset" > $2 ORDER BY "offset" LIMIT $3
"""

# No text of ours goes on with the last of all characters: it bounds what begins with a prefix.
_LAST = "\U0010ffff"
_STREAM_IDS = """
SELECT stream_id FROM streams WHERE stream_id >= $1 AND stream_id < $2 AND stream_id > $3
ORDER BY stream_id LIMIT $4
"""

_POSITION = """
SELECT i.partition, i."offset", e.stream_id, e.stream_version
FROM event_ids i LEFT JOIN events e ON e.partition = i.partition AND e."offset" = i."offset"
WHERE i.event_id = $1
"""


class PostgresEventStore(PostgresCoordination):
    """An `EventStore` over a migrated database; see `fastvideo.events.migrate`."""

    def __init__(
        self,
        pool: PostgresPool,
        partition_count: int,
        limits: LogLimits,
        archive: BlobStore | None = None,
    ) -> None:
        super().__init__(pool)
        self._partition_count = partition_count
        self._limits = limits
        self.archives = ArchiveReader(pool, archive)

    @classmethod
    async def open(
        cls,
        dsn: str,
        *,
        connections_max: int = 8,
        limits: LogLimits | None = None,
        archive: BlobStore | None = None,
    ) -> "PostgresEventStore":
        """Connect to a migrated database; `archive` is where its archived events are.

        Raises Unavailable when it does not answer, FailedPrecondition when its schema is
        another than this program's.
        """
        pool = await PostgresPool.open(dsn, connections_max=connections_max)
        try:
            await _check_schema(pool)
            async with pool.connection() as connection:
                count = await connection.fetchval("SELECT count(*) FROM partitions")
        except BaseException:
            await pool.close()
            raise
        return cls(pool, count, limits or LogLimits(), archive)

    @property
    def partition_count(self) -> int:
        return self._partition_count

    async def append(self, command: AppendCommand) -> AppendResult:
        try:
            return (await self.append_many((command,)))[0]
        except Conflict as error:
            if error.reason != REPEATED:
                raise
            return AppendResult((), True, await self._result_of(command))

    async def append_many(self, commands: Sequence[AppendCommand]) -> tuple[AppendResult, ...]:
        if not commands:
            return ()
        batch = Batch(commands, self._partition_count, self._limits)
        async with self._pool.connection() as connection:
            row = await connection.fetchrow(_APPEND, *_arguments(batch))
        if row is None:
            raise CorruptLog("append_events gave no row")
        return batch.results(row["offset_bases"] or (), row["version_bases"] or ())

    async def _result_of(self, command: AppendCommand) -> bytes:
        async with self._pool.connection() as connection:
            result = await connection.fetchval(
                "SELECT result FROM commands WHERE idempotency_key = $1", command.idempotency_key
            )
        return bytes(result or b"")

    async def read_stream(
        self, stream_id: str, after_version: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        partition = partition_of(stream_id, self._partition_count)
        limit = min(limit, self._limits.events_per_read_max)
        async with self._pool.connection() as connection:
            rows = await connection.fetch(_READ_STREAM, partition, stream_id, after_version, limit)
        live = tuple(_stored(row[1:]) for row in rows if row["event_id"] is not None)
        first = live[0].stream_version if live else rows[0]["version"] + 1 if rows else 0
        if first <= after_version + 1:
            return live
        archived = await self.archives.read_stream(stream_id, after_version, limit)
        return _joined([e for e in archived if e.stream_version < first], live, limit)

    async def read_partition(
        self, partition: int, after_offset: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        self._check_partition(partition)
        limit = min(limit, self._limits.events_per_read_max)
        async with self._pool.connection() as connection:
            rows = await connection.fetch(_READ_PARTITION, partition, after_offset, limit)
        live = tuple(_stored(row) for row in rows)
        # The newest events are never archived: a gap in front of some is the one sign.
        if not live or live[0].offset == after_offset + 1:
            return live
        archived = await self.archives.read_partition(partition, after_offset, limit)
        return _joined([e for e in archived if e.offset < live[0].offset], live, limit)

    async def stream_version(self, stream_id: str) -> int:
        async with self._pool.connection() as connection:
            version = await connection.fetchval(
                "SELECT version FROM streams WHERE stream_id = $1", stream_id
            )
        return version or 0

    async def stream_ids(self, prefix: str, after: str = "", limit: int = 1000) -> tuple[str, ...]:
        async with self._pool.connection() as connection:
            rows = await connection.fetch(_STREAM_IDS, prefix, f"{prefix}{_LAST}", after, limit)
        return tuple(row["stream_id"] for row in rows)

    async def head(self, partition: int) -> int:
        self._check_partition(partition)
        async with self._pool.connection() as connection:
            head: int = await connection.fetchval(
                "SELECT next_offset - 1 FROM partitions WHERE partition = $1", partition
            )
        return head

    async def heads(self) -> Mapping[int, int]:
        async with self._pool.connection() as connection:
            rows = await connection.fetch("SELECT partition, next_offset - 1 FROM partitions")
        return {row[0]: row[1] for row in rows}

    async def log_epoch(self) -> int:
        async with self._pool.connection() as connection:
            epoch: int = await connection.fetchval("SELECT max(log_epoch) FROM partitions")
        return epoch

    async def position_of(self, event_id: str) -> EventPosition | None:
        async with self._pool.connection() as connection:
            row = await connection.fetchrow(_POSITION, event_id)
        if row is None:
            return None
        if row["stream_id"] is not None:
            return EventPosition(*row)
        event = await self.archives.read_event(row["partition"], row["offset"])
        return None if event is None else event.position

    async def close(self) -> None:
        await self._pool.close()

    def _check_partition(self, partition: int) -> None:
        if not 0 <= partition < self._partition_count:
            raise InvalidField("partition", partition, f"0 to {self._partition_count - 1}")


async def _check_schema(pool: PostgresPool) -> None:
    async with pool.connection() as connection:
        revision = await connection.fetchval("SELECT version_num FROM event_log_schema")
    if revision != SCHEMA_REVISION:
        raise other_schema(revision)


def other_schema(found: str) -> FailedPrecondition:
    """The error of a log with the schema of another release: what it has, what is needed, and
    what to do."""
    if found > SCHEMA_REVISION:
        made, instead = "newer", "run that release: a schema is not taken back"
    else:
        made, instead = "older", "migrate it first, with `fastvideo up` or migrate.yaml"
    return FailedPrecondition(
        f"the event log's schema is {found}, of a release {made} than this program, which needs "
        f"{SCHEMA_REVISION}; {instead}",
        reason="SCHEMA",
        attributes={"found": found, "needed": SCHEMA_REVISION},
    )


def _arguments(batch: Batch) -> tuple[object, ...]:
    """The parameters of `append_events`, in its order."""
    streams, runs, events = batch.streams.values(), batch.runs, batch.events
    return (
        [lease for lease, _ in batch.fences],
        [epoch for _, epoch in batch.fences],
        [key for key, _ in batch.keys],
        [result for _, result in batch.keys],
        [mark.consumer for mark in batch.inbox],
        [mark.event_id for mark in batch.inbox],
        batch.partitions,
        batch.partition_counts,
        list(batch.streams),
        [stream.expected_version for stream in streams],
        [stream.count for stream in streams],
        [run.stream_index for run in runs],
        [run.partition_index for run in runs],
        # An event's place in the columns counts from 1, versions from 1, offset bases from 1.
        [run.stream_place - run.place for run in runs],
        [run.partition_place - run.place - 1 for run in runs],
        [run.fence_epoch for run in runs],
        [index for index, run in enumerate(runs, start=1) for _ in range(run.count)],
        [event.event_id for event in events],
        [event.type for event in events],
        [event.schema_version for event in events],
        [event.payload for event in events],
        [payload_digest(event.payload) for event in events],
        [event.metadata for event in events],
    )


def _joined(
    archived: Sequence[StoredEvent], live: Sequence[StoredEvent], limit: int
) -> tuple[StoredEvent, ...]:
    return (*archived, *live)[:limit]


def _stored(row: Iterable[Any]) -> StoredEvent:
    stored = StoredEvent(*row)
    if not stored.is_whole:
        raise DamagedEvent(stored)
    return stored
