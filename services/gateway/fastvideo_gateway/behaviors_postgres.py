"""Records of behaviour in Postgres, in a schema of their own."""

from collections.abc import Sequence
from typing import Final

from fastvideo import wire
from fastvideo.events.postgres_pool import Connection
from fastvideo.events.projections.postgres import Layout, PostgresProjection
from fastvideo.events.records import StoredEvent
from fastvideo.scheduling.traces import BehaviorRecorded
from fastvideo_gateway.behaviors import BehaviorQuery, BehaviorRow, recorded_rows

LAYOUT: Final = Layout(
    schema="behaviors",
    version=1,
    statements=(
        """
        CREATE TABLE {schema}.behaviors (
            behavior_id text COLLATE "C" NOT NULL PRIMARY KEY,
            recorded_at timestamptz NOT NULL,
            facets text[] COLLATE "C" NOT NULL,
            recorded bytea NOT NULL
        )
        """,
        """
        CREATE INDEX behaviors_newest
            ON {schema}.behaviors (recorded_at DESC, behavior_id DESC)
        """,
        "CREATE INDEX behaviors_of_facets ON {schema}.behaviors USING gin (facets)",
    ),
)

_INSERT: Final = """
INSERT INTO behaviors VALUES ($1, $2, $3, $4) ON CONFLICT (behavior_id) DO NOTHING
"""


class PostgresBehaviors(PostgresProjection):
    """A `BehaviorIndex`."""

    layout = LAYOUT

    async def _take_in(self, connection: Connection, events: Sequence[StoredEvent]) -> None:
        rows = [
            (row.behavior_id, row.recorded_at, list(row.facets), wire.encode(row.recorded))
            for row in recorded_rows(events)
        ]
        if rows:
            await connection.executemany(_INSERT, rows)

    async def list_behaviors(self, query: BehaviorQuery) -> tuple[BehaviorRow, ...]:
        conditions: list[str] = ["true"]
        arguments: list[object] = []
        if query.facets:
            arguments.append(list(query.facets))
            conditions.append(f"facets @> ${len(arguments)}::text[]")
        if query.after is not None:
            arguments += [query.after.at, query.after.item_id]
            at, item_id = len(arguments) - 1, len(arguments)
            conditions.append(f"(recorded_at, behavior_id) < (${at}, ${item_id})")
        arguments.append(query.limit)
        async with self._pool.connection() as connection:
            rows = await connection.fetch(
                f"SELECT * FROM behaviors WHERE {' AND '.join(conditions)} "
                f"ORDER BY recorded_at DESC, behavior_id DESC LIMIT ${len(arguments)}",
                *arguments,
            )
        return tuple(
            BehaviorRow(
                behavior_id=row["behavior_id"],
                recorded_at=row["recorded_at"],
                facets=tuple(row["facets"]),
                recorded=wire.decode(BehaviorRecorded, row["recorded"]),
            )
            for row in rows
        )
