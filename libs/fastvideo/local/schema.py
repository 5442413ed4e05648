"""Bring the database to the present schema: role, database, tables.

    python -m fastvideo.local.schema

Reads FASTVIDEO_POSTGRES_DSN, FASTVIDEO_PARTITIONS, FASTVIDEO_EVENTS_PER_RANGE (how many offsets
share a table; not given, a million); and, when the stack runs a Postgres of its own,
FASTVIDEO_POSTGRES_ADMIN_DSN, the superuser's, by which it makes the application's role and its
database. Doing it again changes nothing.
"""

import asyncio
import os
import sys
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from fastvideo.errors import FastVideoError
from fastvideo.events.migrate import upgrade


async def prepare_database(admin_dsn: str, app_dsn: str) -> None:
    """Make the role and the database that `app_dsn` names; the role's password is set anew.

    The values come from the stack itself and hold nothing that SQL would have to quote.
    """
    app = urlsplit(app_dsn)
    role, password, database = app.username, app.password, app.path.lstrip("/")
    connection = await asyncpg.connect(admin_dsn)
    try:
        # A failing statement must not bring the password into the server's log.
        await connection.execute("SET log_min_error_statement = 'panic'")
        if not await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", role):
            await connection.execute(f'CREATE ROLE "{role}"')
        await connection.execute(f"ALTER ROLE \"{role}\" LOGIN PASSWORD '{password}'")
        if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", database):
            await connection.execute(f'CREATE DATABASE "{database}"')
    finally:
        await connection.close()


async def bring_up_to_date(
    admin_dsn: str, app_dsn: str, partitions: int, range_size: int | None = None
) -> None:
    """Role, database and tables; without `admin_dsn` the tables alone, by `app_dsn`."""
    if not admin_dsn:
        await upgrade(app_dsn, partitions, range_size)
        return
    await prepare_database(admin_dsn, app_dsn)
    database = urlsplit(app_dsn).path
    await upgrade(urlunsplit(urlsplit(admin_dsn)._replace(path=database)), partitions, range_size)


def main() -> None:
    try:
        asyncio.run(
            bring_up_to_date(
                os.environ.get("FASTVIDEO_POSTGRES_ADMIN_DSN", ""),
                os.environ["FASTVIDEO_POSTGRES_DSN"],
                int(os.environ["FASTVIDEO_PARTITIONS"]),
                int(os.environ.get("FASTVIDEO_EVENTS_PER_RANGE") or 0) or None,
            )
        )
    except (FastVideoError, asyncpg.PostgresError, OSError) as error:
        sys.exit(f"schema: {error}")


if __name__ == "__main__":
    main()
