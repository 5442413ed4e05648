"""The log's rows in Postgres as they are, and what the database says of all of them."""

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from typing import Final

import asyncpg

from fastvideo.events.postgres import EVENTS
from fastvideo.events.postgres_pool import Connection, PostgresPool
from fastvideo.events.reading.stats import LogReaders, LogSizes
from fastvideo.events.reading.verifying import LogFault
from fastvideo.events.records import StoredEvent

CALL_TIMEOUT_S: Final = 600.0
# Of one check of the whole log; one fault often makes many.
FAULTS_MAX: Final = 1_000

_BOUNDS: Final = """
SELECT p.partition,
    coalesce((SELECT max(a.last_offset) FROM archives a
        WHERE a.partition = p.partition AND NOT EXISTS (
            SELECT FROM events e WHERE e.partition = a.partition AND e."offset" = a.last_offset
        )), 0) + 1,
    p.next_offset - 1
FROM partitions p
"""

_READ_RAW: Final = f'{EVENTS} AND "offset" > $2 ORDER BY "offset" LIMIT $3'

# An archived range may still be in the table, until it is dropped.
_ARCHIVED: Final = """
    (SELECT s.stream_id, max(s.last_version) AS version FROM archived_streams s
        WHERE NOT EXISTS (
            SELECT FROM events e WHERE e.partition = s.partition AND e."offset" = s.archive
        ) GROUP BY s.stream_id)
"""

_STREAM_VERSIONS: Final = f"""
SELECT partition, "offset", stream_id, event_id,
    'version ' || stream_version || ' follows ' || before AS message
FROM (
    SELECT e.partition, e."offset", e.stream_id, e.stream_version, e.event_id,
        coalesce(lag(e.stream_version) OVER stream, a.version, 0) AS before,
        coalesce(lag(e."offset") OVER stream, 0) AS offset_before,
        coalesce(lag(e.partition) OVER stream, e.partition) AS partition_before
    FROM events e LEFT JOIN {_ARCHIVED} a ON a.stream_id = e.stream_id
    WINDOW stream AS (PARTITION BY e.stream_id ORDER BY e.stream_version, e."offset")
) versions
WHERE stream_version <> before + 1 OR "offset" <= offset_before OR partition <> partition_before
LIMIT {FAULTS_MAX}
"""

_STREAM_HEADS: Final = f"""
SELECT 0 AS partition, 0 AS "offset", stream_id, '' AS event_id,
    'the stream is said to be at version ' || coalesce(s.version, 0)
        || ', its last event is ' || coalesce(e.version, 0) AS message
FROM streams s FULL JOIN (
    SELECT stream_id, max(version) AS version FROM (
        SELECT stream_id, max(stream_version) AS version FROM events GROUP BY stream_id
        UNION ALL SELECT stream_id, version FROM {_ARCHIVED} archived
    ) known GROUP BY stream_id
) e USING (stream_id)
WHERE s.version IS DISTINCT FROM e.version
LIMIT {FAULTS_MAX}
"""

_IDS: Final = f"""
SELECT e.partition, e."offset", e.stream_id, e.event_id,
    CASE WHEN i.event_id IS NULL THEN 'the id is not among the ids of the log'
        ELSE 'the id is that of offset ' || i."offset" || ' of partition ' || i.partition
    END AS message
FROM events e LEFT JOIN event_ids i ON i.event_id = e.event_id
WHERE i.partition IS DISTINCT FROM e.partition OR i."offset" IS DISTINCT FROM e."offset"
LIMIT {FAULTS_MAX}
"""

_HEADS: Final = """
SELECT p.partition, coalesce(e.head, 0) AS "offset", '' AS stream_id, '' AS event_id,
    'the partition is said to end at ' || p.next_offset - 1
        || ', its last event is ' || coalesce(e.head, 0) AS message
FROM partitions p, LATERAL (
    SELECT greatest(
        (SELECT max("offset") FROM events WHERE partition = p.partition),
        (SELECT max(last_offset) FROM archives WHERE partition = p.partition)
    ) AS head
) e
WHERE p.next_offset - 1 <> coalesce(e.head, 0)
"""

_UNPROTECTED: Final = """
SELECT 0 AS partition, 0 AS "offset", '' AS stream_id, '' AS event_id,
    'nothing keeps the rows of ' || c.relname || ' from being changed' AS message
FROM pg_class c
WHERE c.oid IN (SELECT relid FROM pg_partition_tree('events')) AND NOT EXISTS (
    SELECT FROM pg_trigger t
    WHERE t.tgrelid = c.oid AND t.tgname = 'events_append_only' AND t.tgenabled = 'A'
)
"""

_SIZES: Final = """
SELECT (SELECT count(*) FROM streams),
    (SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('events'))::bigint
        + pg_total_relation_size('event_ids') + pg_total_relation_size('streams'),
    (SELECT count(*) FROM quarantine),
    (SELECT coalesce(sum(events), 0) FROM archives)::bigint
"""

_CHECKS: Final = (
    ("stream_version", _STREAM_VERSIONS),
    ("head", _STREAM_HEADS),
    ("duplicate_id", _IDS),
    ("head", _HEADS),
    ("append_only", _UNPROTECTED),
)

# The role may not; and the trigger that refuses.
_REFUSALS: Final = ("42501", "FV004")

_CHANGES: Final = (
    "UPDATE events SET type = type WHERE partition = -1",
    "DELETE FROM events WHERE partition = -1",
)


class PostgresInspection:
    """A `LogInspection` over a migrated database; measures it, too."""

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool

    @classmethod
    async def open(cls, dsn: str) -> "PostgresInspection":
        """Connect; a question about the whole log may take minutes. Raises Unavailable."""
        settings = {"work_mem": "64MB", "plan_cache_mode": "auto"}
        return cls(
            await PostgresPool.open(
                dsn, connections_max=2, call_timeout_s=CALL_TIMEOUT_S, settings=settings
            )
        )

    async def close(self) -> None:
        """Give back the connections."""
        await self._pool.close()

    async def bounds(self) -> Mapping[int, tuple[int, int]]:
        async with self._pool.connection() as connection:
            rows = await connection.fetch(_BOUNDS)
        return {row[0]: (row[1], row[2]) for row in rows}

    async def read_raw(
        self, partition: int, after_offset: int, limit: int
    ) -> tuple[StoredEvent, ...]:
        async with self._pool.connection() as connection:
            rows = await connection.fetch(_READ_RAW, partition, after_offset, limit)
        return tuple(StoredEvent(*row) for row in rows)

    async def whole_log_faults(self) -> AsyncIterator[tuple[LogFault, ...]]:
        for kind, statement in _CHECKS:
            async with self._pool.connection() as connection:
                rows = await connection.fetch(statement)
            yield tuple(LogFault(kind=kind, **row) for row in rows)
        yield await self._changes_allowed()

    async def sizes(self) -> LogSizes:
        async with self._pool.connection() as connection:
            row = await connection.fetchrow(_SIZES)
            checkpoints = await _checkpoints(connection)
        assert row is not None
        streams, size, quarantined, archived = row
        return LogSizes(
            streams=streams,
            bytes=size,
            quarantined=quarantined,
            archived=archived,
            checkpoints=checkpoints,
        )

    async def readers(self) -> LogReaders:
        """How far readers came, from a few rows."""
        async with self._pool.connection() as connection:
            checkpoints = await _checkpoints(connection)
            rows = await connection.fetch(
                "SELECT consumer, count(*) FROM quarantine GROUP BY consumer"
            )
        return LogReaders(checkpoints=checkpoints, quarantined=dict(map(tuple, rows)))

    async def _changes_allowed(self) -> tuple[LogFault, ...]:
        """Try to change events, in transactions that are undone."""
        faults: list[LogFault] = []
        for change in _CHANGES:
            async with self._pool.connection() as connection:
                if await _is_allowed(connection, change):
                    said = f"the database allows: {change.split(' WHERE')[0]}"
                    faults.append(LogFault(kind="append_only", message=said))
        return tuple(faults)


async def _checkpoints(connection: Connection) -> dict[str, dict[int, int]]:
    rows = await connection.fetch('SELECT projection, partition, "offset" FROM checkpoints')
    readers: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for name, partition, offset in rows:
        readers[name][partition] = offset
    return dict(readers)


async def _is_allowed(connection: Connection, change: str) -> bool:
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(change)
    except asyncpg.PostgresError as error:
        if error.sqlstate not in _REFUSALS:
            raise
        return False
    finally:
        await transaction.rollback()
    return True
