"""A projection in Postgres: its tables made when absent, thrown away when their layout changes.

A projection holds nothing that the log does not: it has a schema of its own, which a migration
makes, and fills it from offset 1 whenever the layout or the log's epoch is not the one it finds.
The position by partition is kept beside the rows, in the same transaction.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from fastvideo.events.postgres_pool import Connection, PostgresPool
from fastvideo.events.projector import fresh_events
from fastvideo.events.records import StoredEvent

CONNECTIONS_MAX: Final = 4

_LAYOUT: Final = """
CREATE TABLE {schema}.layout (version integer NOT NULL, log_epoch bigint NOT NULL)
"""

_POSITIONS: Final = """
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


class PostgresProjection(ABC):
    """A `Projection` that outlives the process and can be rebuilt from the log.

    A subclass names its `layout` and says in `_take_in` what events do to the rows; it reads
    them through `_pool`.
    """

    layout: ClassVar[Layout]

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool

    @classmethod
    async def open(cls, dsn: str, log_epoch: int) -> Self:
        """Connect, and make the tables anew when they are not of this layout and log epoch.

        `log_epoch` is the log's: rows of another epoch are of a history that a restored backup
        has undone.
        """
        pool = await PostgresPool.open(dsn, connections_max=CONNECTIONS_MAX)
        try:
            await _prepare(pool, cls.layout, log_epoch)
        except BaseException:
            await pool.close()
            raise
        return cls(pool)

    async def positions(self) -> Mapping[int, int]:
        """The offset of the last event taken in, by partition."""
        async with self._pool.connection() as connection:
            rows = await connection.fetch(
                f'SELECT partition, "offset" FROM {self.layout.schema}.positions'
            )
        return {row["partition"]: row["offset"] for row in rows}

    async def apply(self, events: Sequence[StoredEvent]) -> None:
        """Take in events of one partition and move its position, in one transaction.

        Those that were taken in before are passed over; the position is held meanwhile, so that
        several processes may project into the same rows. Raises CorruptLog at a gap.
        """
        if not events:
            return
        partition, table = events[0].partition, f"{self.layout.schema}.positions"
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute(
                f"INSERT INTO {table} VALUES ($1, 0) ON CONFLICT DO NOTHING", partition
            )
            position = await connection.fetchval(
                f'SELECT "offset" FROM {table} WHERE partition = $1 FOR UPDATE', partition
            )
            fresh = fresh_events(events, position)
            if not fresh:
                return
            await self._take_in(connection, fresh)
            await connection.execute(
                f'UPDATE {table} SET "offset" = $2 WHERE partition = $1',
                partition,
                fresh[-1].offset,
            )

    async def close(self) -> None:
        """Give back the connections."""
        await self._pool.close()

    @abstractmethod
    async def _take_in(self, connection: Connection, events: Sequence[StoredEvent]) -> None:
        """Change the rows as the events say; the position is moved by the caller."""


async def _prepare(pool: PostgresPool, layout: Layout, log_epoch: int) -> None:
    """Make the tables, unless they are there. Services that start together do it once."""
    schema = layout.schema
    async with pool.connection() as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", schema)
        found: tuple[int, ...] = ()
        if await connection.fetchval("SELECT to_regclass($1)", f"{schema}.layout"):
            row = await connection.fetchrow(f"SELECT version, log_epoch FROM {schema}.layout")
            found = tuple(row or ())
        if found == (layout.version, log_epoch):
            return
        await _drop_all(connection, schema)
        for statement in (_LAYOUT, _POSITIONS, *layout.statements):
            await connection.execute(statement.format(schema=schema))
        await connection.execute(
            f"INSERT INTO {schema}.layout VALUES ($1, $2)", layout.version, log_epoch
        )


async def _drop_all(connection: Connection, schema: str) -> None:
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)
    for table in tables:
        await connection.execute(f'DROP TABLE {schema}."{table["tablename"]}"')
