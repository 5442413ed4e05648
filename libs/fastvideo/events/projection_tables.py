"""Tables of a projection in Postgres: made when absent, thrown away when their layout changes.

A projection holds nothing that the log does not: it has a schema of its own, which a migration
makes, and fills it from offset 1 whenever the layout or the log's epoch is not the one it finds.
The position by partition is kept beside the rows, in the same transaction.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastvideo.events.postgres_pool import Connection, PostgresPool

_LAYOUT = """
CREATE TABLE {schema}.layout (version integer NOT NULL, log_epoch bigint NOT NULL)
"""

_POSITIONS = """
CREATE TABLE {schema}.positions (
    partition integer NOT NULL PRIMARY KEY,
    "offset" bigint NOT NULL
) WITH (fillfactor = 10)
"""


@dataclass(frozen=True, slots=True)
class Layout:
    """The tables of a projection. A change of the statements needs a new version."""

    schema: str
    version: int
    statements: tuple[str, ...]


class ProjectionTables:
    """One projection's tables and how far they have come."""

    def __init__(self, pool: PostgresPool, layout: Layout) -> None:
        self._pool = pool
        self._layout = layout

    async def prepare(self, log_epoch: int) -> bool:
        """Make the tables of this layout; whether they were made anew, and so are empty.

        `log_epoch` is the log's: rows of another epoch are of a history that a restored backup
        has undone. Services that start together do it once.
        """
        schema, version = self._layout.schema, self._layout.version
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", schema)
            found: tuple[int, ...] = ()
            if await connection.fetchval("SELECT to_regclass($1)", f"{schema}.layout"):
                row = await connection.fetchrow(f"SELECT version, log_epoch FROM {schema}.layout")
                found = tuple(row or ())
            if found == (version, log_epoch):
                return False
            await self._drop_all(connection)
            for statement in (_LAYOUT, _POSITIONS, *self._layout.statements):
                await connection.execute(statement.format(schema=schema))
            await connection.execute(
                f"INSERT INTO {schema}.layout VALUES ($1, $2)", version, log_epoch
            )
            return True

    async def _drop_all(self, connection: Connection) -> None:
        schema = self._layout.schema
        tables = await connection.fetch(
            "SELECT tablename FROM pg_tables WHERE schemaname = $1", schema
        )
        for table in tables:
            await connection.execute(f'DROP TABLE {schema}."{table["tablename"]}"')

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection to read by."""
        async with self._pool.connection() as connection:
            yield connection

    async def positions(self) -> Mapping[int, int]:
        """The offset of the last event taken in, by partition."""
        schema = self._layout.schema
        async with self._pool.connection() as connection:
            rows = await connection.fetch(f'SELECT partition, "offset" FROM {schema}.positions')
        return {row["partition"]: row["offset"] for row in rows}

    @asynccontextmanager
    async def advancing(self, partition: int) -> AsyncIterator[tuple[Connection, int]]:
        """A transaction and the partition's position in it, held against other writers."""
        schema = self._layout.schema
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute(
                f"INSERT INTO {schema}.positions VALUES ($1, 0) ON CONFLICT DO NOTHING", partition
            )
            position = await connection.fetchval(
                f'SELECT "offset" FROM {schema}.positions WHERE partition = $1 FOR UPDATE',
                partition,
            )
            yield connection, position

    async def advance(self, connection: Connection, partition: int, offset: int) -> None:
        """Move the partition's position, in the transaction of `advancing`."""
        await connection.execute(
            f'UPDATE {self._layout.schema}.positions SET "offset" = $2 WHERE partition = $1',
            partition,
            offset,
        )

    async def close(self) -> None:
        """Give back the connections."""
        await self._pool.close()
