"""The index in Postgres, in a schema of its own."""

from collections.abc import Mapping, Sequence
from typing import Final

from fastvideo import wire
from fastvideo.events.postgres_pool import Connection
from fastvideo.events.projections.postgres import Layout, PostgresProjection
from fastvideo.events.records import StoredEvent
from fastvideo.events.sealing.erasures import ERASED_TABLE, erased_at, take_in_erasures
from fastvideo.requests.erasing import without_texts
from fastvideo.requests.state import TERMINAL_STATUSES
from fastvideo.requests.types import RequestState
from fastvideo.scheduling.events import WorkerAttached
from fastvideo_gateway.index import (
    ListQuery,
    fold_changes,
    searched_text,
    touched_requests,
    touched_workers,
)

LAYOUT: Final = Layout(
    schema="gateway",
    version=5,
    statements=(
        """
        CREATE TABLE {schema}.requests (
            request_id text COLLATE "C" NOT NULL PRIMARY KEY,
            tenant_id text COLLATE "C" NOT NULL,
            session_id text COLLATE "C" NOT NULL,
            status text COLLATE "C" NOT NULL,
            accepted_at timestamptz NOT NULL,
            state bytea NOT NULL,
            model_id text COLLATE "C" NOT NULL,
            searched text COLLATE "C" NOT NULL,
            video boolean NOT NULL,
            deleted boolean NOT NULL
        )
        """,
        """
        CREATE INDEX requests_newest
            ON {schema}.requests (tenant_id, accepted_at DESC, request_id DESC)
        """,
        """
        CREATE INDEX requests_of_status
            ON {schema}.requests (tenant_id, status, accepted_at DESC, request_id DESC)
        """,
        """
        CREATE INDEX requests_of_session
            ON {schema}.requests (tenant_id, session_id, accepted_at DESC, request_id DESC)
            WHERE session_id <> ''
        """,
        """
        CREATE INDEX requests_of_model
            ON {schema}.requests (tenant_id, model_id, accepted_at DESC, request_id DESC)
        """,
        """
        CREATE INDEX requests_for_videos
            ON {schema}.requests (tenant_id, accepted_at DESC, request_id DESC) WHERE video
        """,
        """
        CREATE TABLE {schema}.workers (
            worker_id text COLLATE "C" NOT NULL PRIMARY KEY,
            attached bytea NOT NULL
        )
        """,
        ERASED_TABLE,
    ),
)

# So many requests of an erased tenant are blanked by one statement.
BLANKED_MAX: Final = 500

_OF_TENANT: Final = """
SELECT state FROM requests WHERE tenant_id = $1 AND request_id > $2 ORDER BY request_id LIMIT $3
"""

_UNDER_WAY: Final = """
SELECT state FROM requests WHERE status <> ALL($1) ORDER BY accepted_at LIMIT $2
"""

_UPSERT_REQUESTS: Final = """
INSERT INTO requests AS r
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[],
                         $5::timestamptz[], $6::bytea[], $7::text[], $8::text[], $9::boolean[],
                         $10::boolean[])
    ON CONFLICT (request_id) DO UPDATE SET
        status = excluded.status, state = excluded.state, searched = excluded.searched,
        deleted = excluded.deleted
"""

_UPSERT_WORKER: Final = """
INSERT INTO workers VALUES ($1, $2)
    ON CONFLICT (worker_id) DO UPDATE SET attached = excluded.attached
"""


class PostgresIndex(PostgresProjection):
    """A `RequestIndex`."""

    layout = LAYOUT

    async def _take_in(self, connection: Connection, events: Sequence[StoredEvent]) -> None:
        erased = await take_in_erasures(connection, events)
        requests = await _load_requests(connection, touched_requests(events))
        workers = await _load_workers(connection) if touched_workers(events) else {}
        changes = fold_changes(events, requests, workers)
        await _store_requests(connection, list(changes.requests.values()))
        await _store_workers(connection, changes.workers)
        for tenant_id in erased:
            await _blank(connection, tenant_id)

    async def list_requests(self, query: ListQuery) -> tuple[RequestState, ...]:
        sql, arguments = _list_statement(query)
        async with self._pool.connection() as connection:
            rows = await connection.fetch(sql, *arguments)
        return tuple(wire.decode(RequestState, row["state"]) for row in rows)

    async def find_requests(
        self, tenant_id: str, request_ids: Sequence[str], *, deleted_too: bool = False
    ) -> tuple[RequestState, ...]:
        async with self._pool.connection() as connection:
            found = await _load_requests(connection, list(request_ids))
        return tuple(
            state
            for state in found.values()
            if state.spec.tenant_id == tenant_id and (deleted_too or state.deleted_at is None)
        )

    async def under_way(self, limit: int) -> tuple[RequestState, ...]:
        ended = [status.value for status in TERMINAL_STATUSES]
        async with self._pool.connection() as connection:
            rows = await connection.fetch(_UNDER_WAY, ended, limit)
        return tuple(wire.decode(RequestState, row["state"]) for row in rows)

    async def attached_workers(self) -> tuple[WorkerAttached, ...]:
        async with self._pool.connection() as connection:
            return tuple((await _load_workers(connection)).values())


def _list_statement(query: ListQuery) -> tuple[str, list[object]]:
    """The query with only the conditions that it has, so that each finds its index."""
    arguments: list[object] = [query.tenant_id]
    conditions = ["tenant_id = $1", "NOT deleted"]

    def where(condition: str, *values: object) -> None:
        first = len(arguments) + 1
        arguments.extend(values)
        conditions.append(condition.format(*(f"${first + i}" for i in range(len(values)))))

    if query.statuses is not None:
        where("status = ANY({})", [status.value for status in query.statuses])
    if query.session_id:
        where("session_id = {} AND session_id <> ''", query.session_id)
    if query.model_id:
        where("model_id = {}", query.model_id)
    if query.videos:
        where("video")
    for word in query.words:
        where("strpos(searched, {}) > 0", word)
    if query.after is not None:
        after = query.after
        sign = ">" if query.oldest_first else "<"
        where(f"(accepted_at, request_id) {sign} ({{}}, {{}})", after.at, after.item_id)
    order = "ASC" if query.oldest_first else "DESC"
    arguments.append(query.limit)
    return (
        f"SELECT state FROM requests WHERE {' AND '.join(conditions)} "
        f"ORDER BY accepted_at {order}, request_id {order} LIMIT ${len(arguments)}",
        arguments,
    )


async def _load_requests(connection: Connection, ids: list[str]) -> dict[str, RequestState]:
    if not ids:
        return {}
    rows = await connection.fetch(
        "SELECT request_id, state FROM requests WHERE request_id = ANY($1)", ids
    )
    return {row["request_id"]: wire.decode(RequestState, row["state"]) for row in rows}


async def _load_workers(connection: Connection) -> dict[str, WorkerAttached]:
    rows = await connection.fetch("SELECT worker_id, attached FROM workers")
    return {row["worker_id"]: wire.decode(WorkerAttached, row["attached"]) for row in rows}


async def _store_requests(connection: Connection, states: Sequence[RequestState]) -> None:
    if not states:
        return
    erased = await erased_at(connection, {state.spec.tenant_id for state in states})
    states = [
        without_texts(state) if state.accepted_at < at else state
        for state in states
        for at in (erased.get(state.spec.tenant_id, state.accepted_at),)
    ]
    specs = [state.spec for state in states]
    await connection.execute(
        _UPSERT_REQUESTS,
        [spec.request_id for spec in specs],
        [spec.tenant_id for spec in specs],
        [spec.session_id for spec in specs],
        [state.status.value for state in states],
        [state.accepted_at for state in states],
        [wire.encode(state) for state in states],
        [spec.model_id for spec in specs],
        [searched_text(state) for state in states],
        [spec.outputs.video for spec in specs],
        [state.deleted_at is not None for state in states],
    )


async def _blank(connection: Connection, tenant_id: str) -> None:
    """Store the tenant's requests anew, without the texts of before its erasure."""
    after = ""
    while rows := await connection.fetch(_OF_TENANT, tenant_id, after, BLANKED_MAX):
        states = [wire.decode(RequestState, row["state"]) for row in rows]
        await _store_requests(connection, states)
        after = states[-1].spec.request_id


async def _store_workers(
    connection: Connection, workers: Mapping[str, WorkerAttached | None]
) -> None:
    for worker_id, attached in workers.items():
        if attached is None:
            await connection.execute("DELETE FROM workers WHERE worker_id = $1", worker_id)
        else:
            await connection.execute(_UPSERT_WORKER, worker_id, wire.encode(attached))
