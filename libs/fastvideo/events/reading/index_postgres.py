"""The event index in Postgres, in a schema of its own."""

from collections.abc import Mapping, Sequence
from typing import Final

from asyncpg import BitString

from fastvideo.events.postgres_pool import Connection
from fastvideo.events.projections.postgres import Layout, PostgresProjection
from fastvideo.events.reading.index import (
    BLOCK,
    IndexChanges,
    IndexQuery,
    block_of,
    index_changes,
    offsets_of,
)
from fastvideo.events.records import StoredEvent

# How many blocks a question looks at first; then four times as many, and so on.
BLOCKS_FIRST: Final = 64
BLOCKS_MAX: Final = 16_384

_ALL: Final = (1 << BLOCK) - 1

LAYOUT: Final = Layout(
    schema="event_index",
    version=2,
    statements=(
        f"""
        CREATE TABLE {{schema}}.terms (
            partition integer NOT NULL,
            term text COLLATE "C" NOT NULL,
            block bigint NOT NULL,
            members bit({BLOCK}) NOT NULL,
            PRIMARY KEY (partition, term, block)
        ) WITH (fillfactor = 80)
        """,
        """
        CREATE TABLE {schema}.blocks (
            partition integer NOT NULL,
            block bigint NOT NULL,
            earliest timestamptz NOT NULL,
            latest timestamptz NOT NULL,
            PRIMARY KEY (partition, block)
        )
        """,
        """
        CREATE TABLE {schema}.types (
            partition integer NOT NULL,
            type text COLLATE "C" NOT NULL,
            events bigint NOT NULL,
            payload_bytes bigint NOT NULL,
            PRIMARY KEY (partition, type)
        )
        """,
    ),
)

_ADD_TERMS: Final = """
INSERT INTO terms AS t
    SELECT $1, * FROM unnest($2::text[], $3::bigint[], $4::varbit[])
    ON CONFLICT (partition, term, block) DO UPDATE SET members = t.members | excluded.members
"""

_ADD_TIMES: Final = """
INSERT INTO blocks AS b
    SELECT $1, * FROM unnest($2::bigint[], $3::timestamptz[], $4::timestamptz[])
    ON CONFLICT (partition, block) DO UPDATE SET
        earliest = least(b.earliest, excluded.earliest),
        latest = greatest(b.latest, excluded.latest)
"""

_ADD_TYPES: Final = """
INSERT INTO types AS t
    SELECT $1, * FROM unnest($2::text[], $3::bigint[], $4::bigint[])
    ON CONFLICT (partition, type) DO UPDATE SET
        events = t.events + excluded.events,
        payload_bytes = t.payload_bytes + excluded.payload_bytes
"""

_GROUP: Final = """
(SELECT block, bit_or(members) AS members FROM terms
    WHERE partition = $1 AND term = ANY(${place}) AND block BETWEEN $2 AND $3 GROUP BY block)
"""


class PostgresEventIndex(PostgresProjection):
    """An `EventIndex`."""

    layout = LAYOUT

    async def _take_in(self, connection: Connection, events: Sequence[StoredEvent]) -> None:
        await _add(connection, events[0].partition, index_changes(events))

    async def find(self, query: IndexQuery) -> tuple[int, ...]:
        found: list[int] = []
        first, last = block_of(query.after + 1), block_of(query.before - 1)
        blocks = BLOCKS_FIRST
        async with self._pool.connection() as connection:
            while first <= last and len(found) < query.limit:
                low, high = first, last
                if query.newest_first:
                    low = last = max(first, high - blocks + 1)
                    last -= 1
                else:
                    high = min(last, low + blocks - 1)
                    first = high + 1
                found += await _find(connection, query, low, high)
                blocks = min(4 * blocks, BLOCKS_MAX)
        return tuple(found[: query.limit])

    async def type_counts(self) -> Mapping[str, tuple[int, int]]:
        async with self._pool.connection() as connection:
            rows = await connection.fetch(
                "SELECT type, sum(events)::bigint, sum(payload_bytes)::bigint"
                " FROM types GROUP BY type"
            )
        return {row[0]: (row[1], row[2]) for row in rows}


async def _find(connection: Connection, query: IndexQuery, low: int, high: int) -> list[int]:
    """The offsets within some blocks, in the query's order."""
    arguments: list[object] = [query.partition, low, high]
    tables: list[str] = []
    for group in query.groups:
        arguments.append(sorted(group))
        tables.append(f"{_GROUP.format(place=len(arguments))} g{len(tables)}")
    bits = " & ".join(f"g{i}.members" for i in range(len(tables)))
    conditions = [f"bit_count({bits}) > 0"] if bits else []
    if not tables or query.since is not None or query.until is not None:
        tables.append(
            "(SELECT block, earliest, latest FROM blocks"
            " WHERE partition = $1 AND block BETWEEN $2 AND $3) b"
        )
        for condition, moment in (("latest >= ", query.since), ("earliest < ", query.until)):
            if moment is not None:
                arguments.append(moment)
                conditions.append(f"b.{condition}${len(arguments)}")
    joined = tables[0] + "".join(f" JOIN {table} USING (block)" for table in tables[1:])
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    order = "DESC" if query.newest_first else "ASC"
    arguments.append(query.limit)
    rows = await connection.fetch(
        f"SELECT block, {bits or 'NULL'} AS members FROM {joined} {where}"
        f" ORDER BY block {order} LIMIT ${len(arguments)}",
        *arguments,
    )
    offsets: list[int] = []
    for row in rows:
        members = _ALL if row["members"] is None else row["members"].to_int()
        inside = [
            offset
            for offset in offsets_of(row["block"], members)
            if query.after < offset < query.before
        ]
        offsets += reversed(inside) if query.newest_first else inside
    return offsets


async def _add(connection: Connection, partition: int, changes: IndexChanges) -> None:
    members = sorted(changes.members.items())
    await connection.execute(
        _ADD_TERMS,
        partition,
        [name for (name, _), _ in members],
        [block for (_, block), _ in members],
        [BitString.frombytes(bits.to_bytes(BLOCK // 8), BLOCK) for _, bits in members],
    )
    times = sorted(changes.times.items())
    await connection.execute(
        _ADD_TIMES,
        partition,
        [block for block, _ in times],
        [at.earliest for _, at in times],
        [at.latest for _, at in times],
    )
    types = sorted(changes.types.items())
    await connection.execute(
        _ADD_TYPES,
        partition,
        [type_ for type_, _ in types],
        [count for _, (count, _) in types],
        [size for _, (_, size) in types],
    )
