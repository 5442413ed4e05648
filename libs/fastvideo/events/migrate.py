"""Bring a database to the schema that this program's event store needs."""

from pathlib import Path

import asyncpg
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from fastvideo.errors import FailedPrecondition, InvalidField
from fastvideo.events.postgres import SCHEMA_REVISION, other_schema
from fastvideo.events.tables import RANGE_TABLE, VERSION_TABLE, metadata

# Held while migrating, so that services that start together migrate once.
_MIGRATION_LOCK = 0x6661737476

_PARTITIONS_MAX = 1024

_MAKE_ROOM = """
UPDATE partitions SET ranged_to = extend_events(partition, next_offset + 1)
WHERE ranged_to <= next_offset
"""


async def upgrade(dsn: str, partition_count: int = 1, range_size: int | None = None) -> None:
    """Run the migrations that are missing, and lay out the partitions of a new log.

    `dsn` is a `postgresql://` URL of a role that may create tables. `range_size` is how many
    offsets the ranges have that will be made; None leaves it as it is, a million at first.
    Raises FailedPrecondition when a newer release has migrated the log, and when it exists with
    another number of partitions: its streams would change places.
    """
    if not 1 <= partition_count <= _PARTITIONS_MAX:
        raise InvalidField("partition_count", partition_count, f"1 to {_PARTITIONS_MAX}")
    if range_size is not None and range_size < 1:
        raise InvalidField("range_size", range_size, "1 or more")
    engine = _engine(dsn)
    try:
        async with engine.begin() as connection:
            await connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})"))
            await connection.run_sync(_run_migrations)
            await _lay_out_partitions(connection, partition_count, range_size)
    finally:
        await engine.dispose()


async def schema_differences(dsn: str) -> list[object]:
    """How the database's tables differ from `fastvideo.events.tables`; empty when they agree."""
    engine = _engine(dsn)
    try:
        async with engine.connect() as connection:
            return await connection.run_sync(_compare)
    finally:
        await engine.dispose()


def _engine(dsn: str) -> AsyncEngine:
    async def connect() -> "asyncpg.Connection[asyncpg.Record]":
        return await asyncpg.connect(dsn)

    return create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool)


def _run_migrations(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    options = {"version_table": VERSION_TABLE}
    found = MigrationContext.configure(connection, opts=options).get_current_revision()
    if found is not None and found > SCHEMA_REVISION:
        raise other_schema(found)
    command.upgrade(config, "head")


def _compare(connection: Connection) -> list[object]:
    options = {"version_table": VERSION_TABLE, "include_name": _is_described}
    context = MigrationContext.configure(connection, opts=options)
    return list(compare_metadata(context, metadata))


def _is_described(name: str | None, kind: str, _parents: object) -> bool:
    """Whether `fastvideo.events.tables` has a thing of that name; ranges come and go."""
    return kind != "table" or RANGE_TABLE.fullmatch(name or "") is None


async def _lay_out_partitions(
    connection: AsyncConnection, partition_count: int, range_size: int | None
) -> None:
    found = (await connection.execute(text("SELECT count(*) FROM partitions"))).scalar_one()
    if found == 0:
        await connection.execute(
            text(
                "INSERT INTO partitions (partition, next_offset, log_epoch) "
                "SELECT i, 1, 1 FROM generate_series(0, :last) AS i"
            ),
            {"last": partition_count - 1},
        )
    elif found != partition_count:
        raise FailedPrecondition(
            f"the log has {found} partitions, not {partition_count}; their number is fixed",
            reason="PARTITION_COUNT",
        )
    if range_size is not None:
        await connection.execute(
            text("UPDATE partitions SET range_size = :size"), {"size": range_size}
        )
    await connection.execute(text(_MAKE_ROOM))
