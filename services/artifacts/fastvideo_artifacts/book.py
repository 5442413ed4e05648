"""What is due to go: a projection of the log in Postgres, for the sweeper alone.

It finds work; it decides nothing. Whatever it says is looked up in the log before it is done.
Nothing is due before its time by the database's clock, too: bytes that go do not come back.

A stream with an event that cannot be read, since it is damaged or a newer program wrote it, is
held: nothing of it is due, and the others go on. It is read again now and then, and taken in whole
as soon as it can be.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from fastvideo.artifacts.events import (
    ArtifactCompleted,
    ArtifactDeleted,
    ArtifactUpdated,
    BlobRemovalDecided,
    BlobRemoved,
)
from fastvideo.artifacts.removal import STREAM_PREFIX as BLOB_PREFIX
from fastvideo.artifacts.state import stream_of as artifact_stream_of
from fastvideo.errors import CorruptLog
from fastvideo.events.catalog import TERMINAL, check_known, metadata_of, payload_of
from fastvideo.events.postgres_pool import Connection
from fastvideo.events.projections.postgres import Layout, PostgresProjection
from fastvideo.events.projections.schemas import hold_fence
from fastvideo.events.records import StoredEvent
from fastvideo.events.store import EventLog
from fastvideo.events.views import count_passed_over
from fastvideo.requests.events import RequestAccepted, RequestDeleted, RequestExpired
from fastvideo.requests.inputs import input_artifacts
from fastvideo.requests.lifetimes import expiry
from fastvideo.requests.sealing import TenantErased
from fastvideo.requests.state import STREAM_PREFIX as REQUEST_PREFIX
from fastvideo.rpc.identity import DEFAULT_TENANT
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)

ARTIFACT_PREFIX: Final = artifact_stream_of("")

LAYOUT: Final = Layout(
    schema="artifacts",
    version=4,
    statements=(
        # Requests with a lifetime, and those that were deleted.
        """
        CREATE TABLE {schema}.requests (
            request_id text COLLATE "C" NOT NULL PRIMARY KEY,
            ttl_s bigint,
            expires_at timestamptz,
            expired boolean NOT NULL,
            deleted boolean NOT NULL
        )
        """,
        """
        CREATE INDEX requests_to_expire ON {schema}.requests (expires_at)
            WHERE expires_at IS NOT NULL AND NOT expired
        """,
        """
        CREATE TABLE {schema}.artifacts (
            artifact_id text COLLATE "C" NOT NULL PRIMARY KEY,
            request_id text COLLATE "C" NOT NULL,
            tenant_id text COLLATE "C" NOT NULL,
            digest text COLLATE "C" NOT NULL,
            completed_at timestamptz NOT NULL,
            deleted boolean NOT NULL,
            expires_at timestamptz
        )
        """,
        """
        CREATE INDEX inputs_to_expire ON {schema}.artifacts (expires_at)
            WHERE expires_at IS NOT NULL AND NOT deleted
        """,
        # Which requests named which artifacts as their inputs.
        """
        CREATE TABLE {schema}.uses (
            artifact_id text COLLATE "C" NOT NULL,
            request_id text COLLATE "C" NOT NULL,
            PRIMARY KEY (artifact_id, request_id)
        )
        """,
        "CREATE INDEX artifacts_of_digest ON {schema}.artifacts (digest)",
        """
        CREATE INDEX artifacts_of_request ON {schema}.artifacts (request_id) WHERE NOT deleted
        """,
        "CREATE INDEX artifacts_of_tenant ON {schema}.artifacts (tenant_id) WHERE NOT deleted",
        # Whether some artifact gave the bytes up, and what their own stream says of them: two
        # kinds of streams, of which neither waits for the other.
        """
        CREATE TABLE {schema}.blobs (
            digest text COLLATE "C" NOT NULL PRIMARY KEY,
            given_up boolean NOT NULL,
            state text COLLATE "C" NOT NULL
        )
        """,
        """
        CREATE INDEX blobs_to_remove ON {schema}.blobs (digest)
            WHERE given_up AND state = 'used' OR state = 'removing'
        """,
        """
        CREATE INDEX blobs_overdue ON {schema}.blobs (digest)
            WHERE state IN ('removing', 'refused')
        """,
        """
        CREATE TABLE {schema}.erased (
            tenant_id text COLLATE "C" NOT NULL PRIMARY KEY,
            at timestamptz NOT NULL
        )
        """,
        # Streams that could not be read to their end.
        'CREATE TABLE {schema}.held (stream_id text COLLATE "C" NOT NULL PRIMARY KEY)',
    ),
)

_ACCEPT: Final = """
INSERT INTO requests VALUES ($1, $2, NULL, false, false) ON CONFLICT (request_id) DO NOTHING
"""
_DELETE: Final = """
INSERT INTO requests VALUES ($1, NULL, NULL, false, true)
    ON CONFLICT (request_id) DO UPDATE SET deleted = true
"""
_TTL: Final = "SELECT ttl_s FROM requests WHERE request_id = $1"
_END: Final = "UPDATE requests SET expires_at = $2 WHERE request_id = $1"
_EXPIRE: Final = "UPDATE requests SET expired = true WHERE request_id = $1"
_COMPLETE: Final = """
INSERT INTO artifacts VALUES ($1, $2, $3, $4, $5, false, $6)
    ON CONFLICT (artifact_id) DO UPDATE SET
        digest = excluded.digest, completed_at = excluded.completed_at, deleted = false,
        expires_at = excluded.expires_at
"""
_KEEP: Final = "UPDATE artifacts SET expires_at = $2 WHERE artifact_id = $1"
_USE: Final = "INSERT INTO uses VALUES ($1, $2) ON CONFLICT DO NOTHING"
_GIVE_UP: Final = "UPDATE artifacts SET deleted = true WHERE artifact_id = $1"
_GIVEN_UP: Final = """
INSERT INTO blobs VALUES ($1, true, 'used') ON CONFLICT (digest) DO UPDATE SET given_up = true
"""
_BLOB: Final = """
INSERT INTO blobs VALUES ($1, false, $2) ON CONFLICT (digest) DO UPDATE SET state = excluded.state
"""
_ERASE: Final = """
INSERT INTO erased AS e VALUES ($1, $2)
    ON CONFLICT (tenant_id) DO UPDATE SET at = greatest(e.at, excluded.at)
"""

_TO_EXPIRE: Final = """
SELECT request_id FROM requests
    WHERE expires_at <= least($1, now()) AND NOT expired AND request_id > $2
    AND NOT EXISTS (SELECT FROM held WHERE stream_id = 'request-' || request_id)
    ORDER BY request_id LIMIT $3
"""
# It reads what is live and what has expired, each time: with 100,000 artifacts as long with indexes
# for either as without, and about a hundredth of the seconds between two sweeps.
_DUE: Final = """
SELECT DISTINCT ON (artifact_id) artifact_id, reason FROM (
    SELECT a.artifact_id, a.request_id,
        CASE WHEN r.deleted THEN 'deleted' ELSE 'expired' END AS reason, 1 AS rank
        FROM requests r JOIN artifacts a USING (request_id)
        WHERE (r.deleted OR r.expires_at <= least($1, now())) AND NOT a.deleted
    UNION ALL
    SELECT a.artifact_id, a.request_id, 'tenant_erased', 2
        FROM erased e JOIN artifacts a USING (tenant_id)
        WHERE a.completed_at < e.at AND NOT a.deleted
    UNION ALL
    SELECT a.artifact_id, a.request_id, 'expired', 3
        FROM artifacts a
        WHERE a.expires_at <= least($1, now()) - $4::interval AND NOT a.deleted
        AND NOT EXISTS (
            SELECT FROM uses u LEFT JOIN requests r USING (request_id)
            WHERE u.artifact_id = a.artifact_id
            AND (r.deleted OR r.expires_at <= least($1, now())) IS NOT TRUE
        )
        AND NOT EXISTS (SELECT FROM held WHERE stream_id LIKE 'request-%')
) AS due
    WHERE artifact_id > $2
    AND NOT EXISTS (
        SELECT FROM held WHERE stream_id IN ('artifact-' || artifact_id, 'request-' || request_id)
    )
    ORDER BY artifact_id, rank LIMIT $3
"""
_UNUSED: Final = """
SELECT digest FROM blobs b
    WHERE (given_up AND state = 'used' OR state = 'removing') AND digest > $1
    AND NOT EXISTS (SELECT FROM artifacts a WHERE a.digest = b.digest AND NOT a.deleted)
    AND NOT EXISTS (SELECT FROM held WHERE stream_id = 'blob-' || digest)
    ORDER BY digest LIMIT $2
"""
_REFUSED: Final = """
SELECT digest FROM blobs b WHERE state = 'refused'
    AND NOT EXISTS (SELECT FROM artifacts a WHERE a.digest = b.digest AND NOT a.deleted)
    ORDER BY digest
"""
_OVERDUE: Final = "SELECT count(*) FROM blobs WHERE state IN ('removing', 'refused')"
_USED: Final = "SELECT EXISTS (SELECT FROM artifacts WHERE digest = $1 AND NOT deleted)"
_STRAYS: Final = """
SELECT digest FROM unnest($1::text[]) AS stored (digest)
    WHERE NOT EXISTS (SELECT FROM artifacts a WHERE a.digest = stored.digest AND NOT a.deleted)
    AND NOT EXISTS (SELECT FROM blobs b WHERE b.digest = stored.digest AND b.state = 'refused')
    ORDER BY digest
"""

_HOLD: Final = "INSERT INTO held VALUES ($1) ON CONFLICT DO NOTHING"
_HELD: Final = "SELECT stream_id FROM held WHERE stream_id > $1 ORDER BY stream_id LIMIT $2"
# Whoever reads a held stream again and whoever takes in its next event see one another.
_HELD_OF: Final = "SELECT stream_id FROM held WHERE stream_id = ANY($1) FOR SHARE"
_HELD_ONE: Final = "SELECT stream_id FROM held WHERE stream_id = $1 FOR UPDATE"
_LET_GO: Final = "DELETE FROM held WHERE stream_id = $1"

EVENTS_PER_READ: Final = 500

INPUTS_KEPT: Final = timedelta(minutes=10)
"""How long an input that has expired stays. A request that named it before, and whose acceptance is
only on its way into the log, is there by then."""


@dataclass(frozen=True, slots=True)
class DueArtifact:
    """An artifact whose bytes are to be given up, and why."""

    artifact_id: str
    reason: str


class SweepBook(PostgresProjection):
    """Lifetimes, deletions, and who has which bytes."""

    layout = LAYOUT
    # As this process counted last; 0 while it does not sweep.
    overdue = 0

    async def to_expire(self, now: datetime, after: str, limit: int) -> tuple[str, ...]:
        """Requests whose lifetime has passed and whose history does not say so, in order."""
        async with self._pool.connection() as connection:
            rows = await connection.fetch(_TO_EXPIRE, now, after, limit)
        return tuple(row["request_id"] for row in rows)

    async def due(self, now: datetime, after: str, limit: int) -> tuple[DueArtifact, ...]:
        """Artifacts whose bytes are to be given up, each once, in order."""
        async with self._pool.connection() as connection:
            rows = await connection.fetch(_DUE, now, after, limit, INPUTS_KEPT)
        return tuple(DueArtifact(row["artifact_id"], row["reason"]) for row in rows)

    async def unused(self, after: str, limit: int) -> tuple[str, ...]:
        """Digests that artifacts had and none has, whose bytes are not known to be gone."""
        async with self._pool.connection() as connection:
            rows = await connection.fetch(_UNUSED, after, limit)
        return tuple(row["digest"] for row in rows)

    async def refused(self) -> tuple[str, ...]:
        """Digests that no artifact has and the store did not let go, in order."""
        async with self._pool.connection() as connection:
            rows = await connection.fetch(_REFUSED)
        return tuple(row["digest"] for row in rows)

    async def count_overdue(self) -> int:
        """How many removals were decided and are not done; `overdue` has it from then on."""
        async with self._pool.connection() as connection:
            self.overdue = int(await connection.fetchval(_OVERDUE))
        return self.overdue

    async def strays(self, stored: Sequence[str]) -> tuple[str, ...]:
        """Those of the digests that no artifact has, but for those that the store refused."""
        async with self._pool.connection() as connection:
            rows = await connection.fetch(_STRAYS, list(stored))
        return tuple(row["digest"] for row in rows)

    async def is_used(self, digest: str) -> bool:
        """Whether an artifact has the bytes."""
        async with self._pool.connection() as connection:
            return bool(await connection.fetchval(_USED, digest))

    async def held(self, after: str, limit: int) -> tuple[str, ...]:
        """Streams that could not be read, in order."""
        async with self._pool.connection() as connection:
            rows = await connection.fetch(_HELD, after, limit)
        return tuple(row["stream_id"] for row in rows)

    async def take_again(self, stream_id: str, log: EventLog) -> None:
        """Take in a held stream from its beginning. Raises CorruptLog when it still cannot be."""
        async with self._pool.connection() as connection, connection.transaction():
            await hold_fence(connection, self._schema)
            if await connection.fetchval(_HELD_ONE, stream_id) is None:
                return
            version = 0
            while page := await log.read_stream(stream_id, version, EVENTS_PER_READ):
                for stored in page:
                    await _take(connection, stored)
                version = page[-1].stream_version
            await connection.execute(_LET_GO, stream_id)

    async def _take_in(self, connection: Connection, events: Sequence[StoredEvent]) -> None:
        stream_ids = list({stored.stream_id for stored in events})
        held = {row["stream_id"] for row in await connection.fetch(_HELD_OF, stream_ids)}
        for stored in events:
            if stored.stream_id in held:
                continue
            try:
                await _take(connection, stored)
            except CorruptLog as error:
                held.add(stored.stream_id)
                await connection.execute(_HOLD, stored.stream_id)
                count_passed_over("sweeps", stored)
                _LOG.error("stream held", stream=stored.stream_id, error=error.message)


async def _take(connection: Connection, stored: StoredEvent) -> None:
    """Change the rows as one event says. Raises CorruptLog, before it has changed any."""
    if stored.stream_id.startswith(REQUEST_PREFIX):
        await _take_request(connection, stored)
    elif stored.stream_id.startswith(ARTIFACT_PREFIX):
        await _take_artifact(connection, stored)
    elif stored.stream_id.startswith(BLOB_PREFIX):
        await _take_blob(connection, stored)
    elif stored.type == TenantErased.__name__:
        await _take_erasure(connection, stored)


async def _take_request(connection: Connection, stored: StoredEvent) -> None:
    request_id = stored.stream_id.removeprefix(REQUEST_PREFIX)
    if stored.type == RequestAccepted.__name__:
        payload = payload_of(stored)
        assert isinstance(payload, RequestAccepted)
        if payload.spec.outputs.ttl_s is not None:
            await connection.execute(_ACCEPT, request_id, payload.spec.outputs.ttl_s)
        for artifact_id in input_artifacts(payload.spec.inputs):
            await connection.execute(_USE, artifact_id, request_id)
    elif stored.type in TERMINAL:
        # Whatever a newer program says of an end, the request has ended.
        ttl_s = await connection.fetchval(_TTL, request_id)
        ended_at = metadata_of(stored).occurred_at
        await connection.execute(_END, request_id, expiry(ended_at, ttl_s))
    elif stored.type == RequestExpired.__name__:
        await connection.execute(_EXPIRE, request_id)
    elif stored.type == RequestDeleted.__name__:
        await connection.execute(_DELETE, request_id)
    else:
        # What a newer program says of a request may keep what it made.
        check_known(stored)


async def _take_artifact(connection: Connection, stored: StoredEvent) -> None:
    if stored.type == ArtifactCompleted.__name__:
        payload = payload_of(stored)
        assert isinstance(payload, ArtifactCompleted)
        record = payload.record
        await connection.execute(
            _COMPLETE,
            record.artifact_id,
            record.producer.request_id,
            record.tenant_id or DEFAULT_TENANT,
            record.digest,
            stored.recorded_at,
            record.expires_at,
        )
    elif stored.type == ArtifactUpdated.__name__:
        payload = payload_of(stored)
        assert isinstance(payload, ArtifactUpdated)
        if payload.kept:
            await connection.execute(_KEEP, payload.artifact_id, payload.expires_at)
    elif stored.type == ArtifactDeleted.__name__:
        payload = payload_of(stored)
        assert isinstance(payload, ArtifactDeleted)
        await connection.execute(_GIVE_UP, payload.artifact_id)
        await connection.execute(_GIVEN_UP, payload.digest)
    else:
        check_known(stored)


async def _take_blob(connection: Connection, stored: StoredEvent) -> None:
    digest = stored.stream_id.removeprefix(BLOB_PREFIX)
    payload = payload_of(stored)
    match payload:
        case ArtifactCompleted():
            state = "used"
        case BlobRemovalDecided():
            state = "removing"
        case BlobRemoved():
            state = "refused" if payload.refused else "removed"
        case _:
            raise CorruptLog(f"{stored.type} in {stored.stream_id}", subject=digest)
    await connection.execute(_BLOB, digest, state)


async def _take_erasure(connection: Connection, stored: StoredEvent) -> None:
    payload = payload_of(stored)
    assert isinstance(payload, TenantErased)
    if payload.artifacts:
        await connection.execute(_ERASE, payload.tenant_id, stored.recorded_at)
