"""The database schemas of a projection: the live one, those built beside it, those put aside.

`gateway_v2` is the live schema of the layout `gateway` in version 2. A rebuild fills
`gateway_v2_build_<id>`; the swap renames the live one to `gateway_v2_old_<id>` and the built one to
the live name. Renaming a schema waits for no reader: a session that sits in a transaction keeps
reading the rows that it saw. What must not happen across a swap is a change of rows, so changes
hold the fence of their schema, shared, and the swap holds it alone.

Whoever has a schema open holds its lock, so that nobody takes it for left behind.
"""

import re
import secrets
from dataclasses import dataclass
from typing import Final

import asyncpg

from fastvideo.errors import Unavailable
from fastvideo.events.postgres_pool import Connection, PostgresPool
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)

# How long a change of schemas waits for a lock before it gives way to others.
LOCK_TIMEOUT_S: Final = 3.0
# A leftover that somebody still reads is left to the next start.
DROP_TIMEOUT_S: Final = 0.5

_LAYOUT: Final = """
CREATE TABLE {schema}.layout (version integer NOT NULL, log_epoch bigint NOT NULL)
"""

_POSITIONS: Final = """
CREATE TABLE {schema}.positions (
    partition integer NOT NULL PRIMARY KEY,
    "offset" bigint NOT NULL
) WITH (fillfactor = 10)
"""

_MAKE: Final = "SELECT make_projection_schema($1)"
_RENAME: Final = "SELECT rename_projection_schema($1, $2)"
_DROP: Final = "SELECT drop_projection_schema($1)"

_FENCE_SHARED: Final = "SELECT pg_advisory_xact_lock_shared(hashtextextended('fence:' || $1, 0))"
_FENCE_ALONE: Final = "SELECT pg_advisory_xact_lock(hashtextextended('fence:' || $1, 0))"
_OPEN_SHARED: Final = "SELECT pg_advisory_lock_shared(hashtextextended('open:' || $1, 0))"
_OPEN_ALONE: Final = "SELECT pg_try_advisory_xact_lock(hashtextextended('open:' || $1, 0))"


@dataclass(frozen=True, slots=True)
class Layout:
    """The tables of a projection. A change of the statements, or of what the rows mean, needs a
    new version.

    The statements name their tables `{schema}.table`; everything else names them bare, and finds
    them through the search path of its connection.
    """

    schema: str
    version: int
    statements: tuple[str, ...]

    @property
    def live(self) -> str:
        """The schema that is read."""
        return f"{self.schema}_v{self.version}"

    def beside(self, purpose: str) -> str:
        """A fresh name for a schema beside the live one."""
        return f"{self.live}_{purpose}_{secrets.token_hex(4)}"


async def open_pool(
    dsn: str, schema: str, *, connections_max: int, call_timeout_s: float = 30.0, **settings: str
) -> PostgresPool:
    """Connections that find a schema's tables by their bare names, and hold it open."""

    async def hold(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        await connection.execute(_OPEN_SHARED, schema)

    return await PostgresPool.open(
        dsn,
        connections_max=connections_max,
        call_timeout_s=call_timeout_s,
        on_connect=hold,
        settings={
            "search_path": f"{schema}, public",
            # Texts of rows are compared.
            "timezone": "UTC",
            # A change that waits for a row would make a swap wait for ever.
            "lock_timeout": f"{int(LOCK_TIMEOUT_S * 1000)}",
            **settings,
        },
    )


async def hold_fence(connection: Connection, schema: str) -> None:
    """Keep swaps away until the transaction ends."""
    await connection.execute(_FENCE_SHARED, schema)


async def hold_fence_alone(connection: Connection, schema: str) -> None:
    """Keep changes of the rows away until the transaction ends.

    Raises Unavailable when one that is under way does not end in time.
    """
    await connection.execute(_FENCE_ALONE, schema)


async def prepare_live(pool: PostgresPool, layout: Layout, log_epoch: int) -> None:
    """Make the live schema, empty, unless it is there and of the log's epoch.

    Services that start together do it once. Rows of another epoch are of a history that a
    restored backup has undone: they are put aside, whoever reads them.
    """
    schema = layout.live
    async with pool.connection() as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", schema)
        # The layout of a foreign hand counts as no layout.
        if await connection.fetchval("SELECT to_regclass($1)", f"{schema}.layout"):
            row = await connection.fetchrow(f"SELECT version, log_epoch FROM {schema}.layout")
            if tuple(row or ()) == (layout.version, log_epoch):
                return
        await hold_fence_alone(connection, schema)
        if await connection.fetchval("SELECT to_regnamespace($1)", schema):
            await connection.execute(_RENAME, schema, layout.beside("old"))
        await make_tables(connection, schema, layout, log_epoch)


async def make_tables(connection: Connection, schema: str, layout: Layout, log_epoch: int) -> None:
    """Make a schema with the empty tables of a layout."""
    await connection.execute(_MAKE, schema)
    for statement in (_LAYOUT, _POSITIONS, *layout.statements):
        await connection.execute(statement.format(schema=schema))
    await connection.execute(
        f"INSERT INTO {schema}.layout VALUES ($1, $2)", layout.version, log_epoch
    )


async def swap(connection: Connection, layout: Layout, built: str) -> str:
    """Give a built schema the live name; the name of what was live.

    The caller holds the fence of the live schema alone, in this transaction.
    """
    old = layout.beside("old")
    await connection.execute(_RENAME, layout.live, old)
    await connection.execute(_RENAME, built, layout.live)
    return old


async def drop_left_behind(pool: PostgresPool, layout: Layout) -> None:
    """Drop what rebuilds and other layouts of the projection left and nobody has open.

    What a reader still holds stays until the next time.
    """
    async with pool.connection() as connection:
        rows = await connection.fetch("SELECT nspname FROM pg_namespace")
    family = re.compile(rf"{re.escape(layout.schema)}_v\d+(_(build|old)_[0-9a-f]+)?")
    for name in (row["nspname"] for row in rows):
        if name != layout.live and family.fullmatch(name):
            await drop(pool, name)


async def drop(pool: PostgresPool, schema: str) -> None:
    """Drop a schema, unless somebody has it open or reads it."""
    try:
        async with pool.connection() as connection, connection.transaction():
            await connection.execute(f"SET LOCAL lock_timeout = {int(DROP_TIMEOUT_S * 1000)}")
            if not await connection.fetchval(_OPEN_ALONE, schema):
                return
            await connection.execute(_DROP, schema)
    except Unavailable:
        _LOG.info("rows that were put aside are still read", schema=schema)
