"""What two copies of a projection hold, compared: a digest a table, and the first row that differs.

The digest of a table is SHA-256 over the SHA-256 of each row's text, rows in the order of the
primary key (of their text where there is none). Times are UTC and bytes hexadecimal, so equal rows
have equal texts. The tables `layout` and `positions` are not rows; the positions are compared by
whoever brings both copies to the same ones.
"""

import heapq
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final

from fastvideo.events.postgres_pool import Connection
from fastvideo.events.projections.report import TableComparison

_NO_ROWS: Final = ("layout", "positions")

_TABLES: Final = """
SELECT c.relname AS name, array_agg(a.attname ORDER BY k.place) FILTER (WHERE a.attname IS NOT NULL)
        AS key
    FROM pg_class c
    LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
    LEFT JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (number, place) ON true
    LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number
    WHERE c.relnamespace = to_regnamespace($1) AND c.relkind = 'r' AND c.relname <> ALL($2)
    GROUP BY c.relname ORDER BY c.relname
"""

_ROW_DIGEST: Final = "sha256(convert_to(t::text, 'UTF8'))"

_DIGEST: Final = """
SELECT count(*) AS rows,
       encode(sha256(coalesce(string_agg({row}, ''::bytea ORDER BY {order}), ''::bytea)), 'hex')
           AS digest
    FROM {schema}."{table}" AS t
"""

_ROWS: Final = """
SELECT {key} AS key, {row} AS digest FROM {schema}."{table}" AS t ORDER BY {key} COLLATE "C"
"""


@dataclass(frozen=True, slots=True)
class TableDigest:
    """What a table holds."""

    rows: int
    # SHA-256, hexadecimal.
    digest: str


async def digest_tables(connection: Connection, schema: str) -> dict[str, TableDigest]:
    """Each table of a schema to what it holds, in one snapshot if the transaction has one."""
    found = {}
    for table, key in (await _tables(connection, schema)).items():
        order = ", ".join(f't."{name}"' for name in key) or "t::text"
        sql = _DIGEST.format(row=_ROW_DIGEST, order=order, schema=schema, table=table)
        row = await connection.fetchrow(sql)
        assert row is not None
        found[table] = TableDigest(row["rows"], row["digest"])
    return found


async def compare(
    live: tuple[Connection, str], built: tuple[Connection, str]
) -> tuple[TableComparison, ...]:
    """Compare two schemas, each seen through its own transaction, table by table."""
    of_live, of_built = await digest_tables(*live), await digest_tables(*built)
    nothing = TableDigest(0, "")
    comparisons = []
    for table in sorted(of_live.keys() | of_built.keys()):
        here, there = of_live.get(table, nothing), of_built.get(table, nothing)
        first = ""
        if here != there and table in of_live and table in of_built:
            first = await _first_difference(live, built, table)
        comparisons.append(
            TableComparison(
                table=table,
                rows_live=here.rows,
                rows_built=there.rows,
                digest_live=here.digest,
                digest_built=there.digest,
                first_difference=first,
            )
        )
    return tuple(comparisons)


async def _first_difference(
    live: tuple[Connection, str], built: tuple[Connection, str], table: str
) -> str:
    """The smallest key whose row is not the same in both, both read in the order of keys."""
    last: tuple[str, bytes] | None = None
    async for row in _merge(_rows(*live, table), _rows(*built, table)):
        if last is None:
            last = row
        elif last == row:
            last = None
        else:
            break
    return "" if last is None else last[0]


async def _merge(
    left: AsyncIterator[tuple[str, bytes]], right: AsyncIterator[tuple[str, bytes]]
) -> AsyncIterator[tuple[str, bytes]]:
    """Two sorted streams as one; equal rows come one after the other."""
    heap = []
    for place, stream in enumerate((left, right)):
        async for row in stream:
            heap.append((row, place, stream))
            break
    heapq.heapify(heap)
    while heap:
        row, place, stream = heapq.heappop(heap)
        yield row
        async for following in stream:
            heapq.heappush(heap, (following, place, stream))
            break


async def _rows(
    connection: Connection, schema: str, table: str
) -> AsyncIterator[tuple[str, bytes]]:
    key = (await _tables(connection, schema))[table]
    text = " || '/' || ".join(f't."{name}"::text' for name in key) or "t::text"
    sql = _ROWS.format(key=f"({text})", row=_ROW_DIGEST, schema=schema, table=table)
    async for row in connection.cursor(sql, prefetch=1_000):
        # The database's "C" orders UTF-8 as Python orders texts.
        yield row["key"], row["digest"]


async def _tables(connection: Connection, schema: str) -> Mapping[str, tuple[str, ...]]:
    """Each table to the columns of its primary key."""
    rows = await connection.fetch(_TABLES, schema, list(_NO_ROWS))
    return {row["name"]: tuple(row["key"] or ()) for row in rows}
