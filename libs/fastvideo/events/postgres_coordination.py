"""Leases, checkpoints, snapshots, inbox and quarantine in Postgres, on the database's clock."""

from collections.abc import Mapping
from datetime import datetime

import asyncpg

from fastvideo.errors import Fenced
from fastvideo.events.postgres_pool import PostgresPool
from fastvideo.events.records import (
    LEASE_TTL_S_MAX,
    SNAPSHOTS_KEPT,
    Fence,
    Lease,
    QuarantinedEvent,
    Snapshot,
    check_ttl,
)

# Whether a lease runs. No lease is as long as $4: one that ends later was given before the
# database's clock was set back, and would keep others out for as long as that was.
_RUNS = """
l.expires_at > clock_timestamp() AND l.expires_at <= clock_timestamp() + make_interval(secs => $4)
"""

_ACQUIRE = f"""
INSERT INTO leases AS l (name, holder, epoch, expires_at)
VALUES ($1, $2, 1, clock_timestamp() + make_interval(secs => $3))
ON CONFLICT (name) DO UPDATE SET
    holder = excluded.holder,
    epoch = CASE WHEN {_RUNS} THEN l.epoch ELSE l.epoch + 1 END,
    expires_at = excluded.expires_at
WHERE NOT ({_RUNS}) OR l.holder = excluded.holder
RETURNING name, holder, epoch, expires_at
"""

_RENEW = """
UPDATE leases SET expires_at = clock_timestamp() + make_interval(secs => $3)
WHERE name = $1 AND epoch = $2
RETURNING name, holder, epoch, expires_at
"""

_RELEASE = "UPDATE leases SET expires_at = clock_timestamp() WHERE name = $1 AND epoch = $2"

_READ_LEASE = "SELECT name, holder, epoch, expires_at FROM leases WHERE name = $1"

_LOAD_CHECKPOINT = 'SELECT partition, "offset" FROM checkpoints WHERE projection = $1'

# The fence is checked and held in the same statement, as in append_events.
_SAVE_CHECKPOINT = """
WITH fence AS (SELECT 1 FROM leases WHERE name = $4 AND epoch = $5 FOR SHARE)
INSERT INTO checkpoints AS c (projection, partition, "offset")
SELECT $1, $2, $3 WHERE $4::text IS NULL OR EXISTS (SELECT FROM fence)
ON CONFLICT (projection, partition) DO UPDATE SET "offset" = excluded."offset"
"""

_SAVE_SNAPSHOT = """
WITH fence AS (SELECT 1 FROM leases WHERE name = $4 AND epoch = $5 FOR SHARE)
INSERT INTO snapshots AS s (name, version, body)
SELECT $1, $2, $3 WHERE $4::text IS NULL OR EXISTS (SELECT FROM fence)
ON CONFLICT (name, version) DO UPDATE SET body = excluded.body
"""

_DROP_SNAPSHOTS = """
DELETE FROM snapshots WHERE name = $1 AND version NOT IN
    (SELECT version FROM snapshots WHERE name = $1 ORDER BY version DESC LIMIT $2)
"""

_LOAD_SNAPSHOTS = "SELECT version, body FROM snapshots WHERE name = $1 ORDER BY version DESC"

_SEEN = "SELECT EXISTS (SELECT FROM inbox WHERE consumer = $1 AND event_id = $2)"

_FORGET = "DELETE FROM inbox WHERE consumer = $1 AND seen_at < $2"

_QUARANTINE = """
INSERT INTO quarantine
    (consumer, event_id, partition, "offset", type, attempts, error, quarantined_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING
"""

_LIST_QUARANTINED = """
SELECT consumer, event_id, partition, "offset", type, attempts, error, quarantined_at
FROM quarantine WHERE $1::text IS NULL OR consumer = $1
ORDER BY quarantined_at DESC, event_id LIMIT $2
"""


class PostgresCoordination:
    """What the log's readers and writers coordinate by."""

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool

    async def acquire_lease(self, name: str, holder: str, ttl_s: float) -> Lease | None:
        check_ttl(ttl_s)
        async with self._pool.connection() as connection:
            row = await connection.fetchrow(_ACQUIRE, name, holder, ttl_s, LEASE_TTL_S_MAX)
        return None if row is None else _lease(row)

    async def renew_lease(self, lease: Lease, ttl_s: float) -> Lease:
        check_ttl(ttl_s)
        async with self._pool.connection() as connection:
            row = await connection.fetchrow(_RENEW, lease.name, lease.epoch, ttl_s)
        if row is None:
            raise _lost(lease.fence)
        return _lease(row)

    async def release_lease(self, lease: Lease) -> None:
        async with self._pool.connection() as connection:
            await connection.execute(_RELEASE, lease.name, lease.epoch)

    async def read_lease(self, name: str) -> Lease | None:
        async with self._pool.connection() as connection:
            row = await connection.fetchrow(_READ_LEASE, name)
        return None if row is None else _lease(row)

    async def load_checkpoint(self, name: str) -> Mapping[int, int]:
        async with self._pool.connection() as connection:
            rows = await connection.fetch(_LOAD_CHECKPOINT, name)
        return {row["partition"]: row["offset"] for row in rows}

    async def save_checkpoint(
        self, name: str, partition: int, offset: int, fence: Fence | None = None
    ) -> None:
        lease, epoch = (fence.lease, fence.epoch) if fence else (None, None)
        async with self._pool.connection() as connection:
            status = await connection.execute(
                _SAVE_CHECKPOINT, name, partition, offset, lease, epoch
            )
        if fence is not None and _count(status) == 0:
            raise _lost(fence)

    async def save_snapshot(
        self, name: str, snapshot: Snapshot, fence: Fence | None = None
    ) -> None:
        lease, epoch = (fence.lease, fence.epoch) if fence else (None, None)
        async with self._pool.connection() as connection:
            status = await connection.execute(
                _SAVE_SNAPSHOT, name, snapshot.version, snapshot.body, lease, epoch
            )
            if fence is not None and _count(status) == 0:
                raise _lost(fence)
            await connection.execute(_DROP_SNAPSHOTS, name, SNAPSHOTS_KEPT)

    async def load_snapshots(self, name: str) -> tuple[Snapshot, ...]:
        async with self._pool.connection() as connection:
            rows = await connection.fetch(_LOAD_SNAPSHOTS, name)
        return tuple(Snapshot(row["version"], bytes(row["body"])) for row in rows)

    async def inbox_seen(self, consumer: str, event_id: str) -> bool:
        async with self._pool.connection() as connection:
            return bool(await connection.fetchval(_SEEN, consumer, event_id))

    async def forget_inbox(self, consumer: str, before: datetime) -> int:
        async with self._pool.connection() as connection:
            return _count(await connection.execute(_FORGET, consumer, before))

    async def quarantine(self, event: QuarantinedEvent) -> None:
        async with self._pool.connection() as connection:
            await connection.execute(
                _QUARANTINE,
                event.consumer,
                event.event_id,
                event.partition,
                event.offset,
                event.type,
                event.attempts,
                event.error,
                event.quarantined_at,
            )

    async def list_quarantined(
        self, consumer: str | None = None, limit: int = 100
    ) -> tuple[QuarantinedEvent, ...]:
        async with self._pool.connection() as connection:
            rows = await connection.fetch(_LIST_QUARANTINED, consumer, limit)
        return tuple(QuarantinedEvent(**row) for row in rows)


def _lease(row: asyncpg.Record) -> Lease:
    return Lease(row["name"], row["holder"], row["epoch"], row["expires_at"])


def _lost(fence: Fence) -> Fenced:
    return Fenced(f"lease {fence.lease} is not at epoch {fence.epoch}", subject=fence.lease)


def _count(status: str) -> int:
    """The number of rows in a status such as "DELETE 3"."""
    return int(status.rsplit(" ", 1)[-1])
