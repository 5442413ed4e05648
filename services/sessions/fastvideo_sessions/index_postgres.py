"""The index in Postgres, in a schema of its own."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from fastvideo import wire
from fastvideo.events.postgres_pool import Connection
from fastvideo.events.projections.postgres import Layout, PostgresProjection
from fastvideo.events.records import StoredEvent
from fastvideo.events.sealing.erasures import ERASED_TABLE, erased_at, take_in_erasures
from fastvideo.sessions.erasing import without_prompts
from fastvideo.sessions.types import SessionState
from fastvideo_sessions.index import ListQuery, expires_at, fold_changes, touched_sessions

LAYOUT: Final = Layout(
    schema="sessions",
    version=2,
    statements=(
        """
        CREATE TABLE {schema}.sessions (
            session_id text COLLATE "C" NOT NULL PRIMARY KEY,
            tenant_id text COLLATE "C" NOT NULL,
            created_at timestamptz NOT NULL,
            expires_at timestamptz,
            state bytea NOT NULL
        )
        """,
        """
        CREATE INDEX sessions_newest
            ON {schema}.sessions (tenant_id, created_at DESC, session_id DESC)
        """,
        """
        CREATE INDEX sessions_expiring
            ON {schema}.sessions (expires_at) WHERE expires_at IS NOT NULL
        """,
        ERASED_TABLE,
    ),
)

_UPSERT: Final = """
INSERT INTO sessions AS s
    SELECT * FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::bytea[])
    ON CONFLICT (session_id)
        DO UPDATE SET expires_at = excluded.expires_at, state = excluded.state
"""

_LIST: Final = """
SELECT state FROM sessions WHERE tenant_id = $1
    ORDER BY created_at DESC, session_id DESC LIMIT $2
"""

_LIST_AFTER: Final = """
SELECT state FROM sessions
    WHERE tenant_id = $1 AND (created_at, session_id) < ($3, $4)
    ORDER BY created_at DESC, session_id DESC LIMIT $2
"""

_EXPIRED: Final = """
SELECT session_id FROM sessions
    WHERE expires_at IS NOT NULL AND expires_at <= $1 ORDER BY expires_at LIMIT $2
"""


# So many sessions of an erased tenant are blanked by one statement.
BLANKED_MAX: Final = 500

_OF_TENANT: Final = """
SELECT state FROM sessions WHERE tenant_id = $1 AND session_id > $2 ORDER BY session_id LIMIT $3
"""


class PostgresIndex(PostgresProjection):
    """A `SessionIndex`."""

    layout = LAYOUT

    async def _take_in(self, connection: Connection, events: Sequence[StoredEvent]) -> None:
        erased = await take_in_erasures(connection, events)
        sessions = await _load(connection, touched_sessions(events))
        await _store(connection, list(fold_changes(events, sessions).values()))
        for tenant_id in erased:
            await _blank(connection, tenant_id)

    async def list_sessions(self, query: ListQuery) -> tuple[SessionState, ...]:
        async with self._pool.connection() as connection:
            if query.after is None:
                rows = await connection.fetch(_LIST, query.tenant_id, query.limit)
            else:
                after = query.after
                rows = await connection.fetch(
                    _LIST_AFTER, query.tenant_id, query.limit, after.at, after.item_id
                )
        return tuple(wire.decode(SessionState, row["state"]) for row in rows)

    async def list_expired(self, now: datetime, limit: int) -> tuple[str, ...]:
        async with self._pool.connection() as connection:
            rows = await connection.fetch(_EXPIRED, now, limit)
        return tuple(row["session_id"] for row in rows)


async def _load(connection: Connection, ids: list[str]) -> dict[str, SessionState]:
    if not ids:
        return {}
    rows = await connection.fetch(
        "SELECT session_id, state FROM sessions WHERE session_id = ANY($1)", ids
    )
    return {row["session_id"]: wire.decode(SessionState, row["state"]) for row in rows}


async def _store(connection: Connection, states: Sequence[SessionState]) -> None:
    if not states:
        return
    erased = await erased_at(connection, {state.tenant_id for state in states})
    states = [
        without_prompts(state, erased[state.tenant_id]) if state.tenant_id in erased else state
        for state in states
    ]
    await connection.execute(
        _UPSERT,
        [state.session_id for state in states],
        [state.tenant_id for state in states],
        [state.created_at for state in states],
        [expires_at(state) for state in states],
        [wire.encode(state) for state in states],
    )


async def _blank(connection: Connection, tenant_id: str) -> None:
    """Store the tenant's sessions anew, without the prompts of before its erasure."""
    after = ""
    while rows := await connection.fetch(_OF_TENANT, tenant_id, after, BLANKED_MAX):
        states = [wire.decode(SessionState, row["state"]) for row in rows]
        await _store(connection, states)
        after = states[-1].session_id
