"""`fastvideo log archive` and `fastvideo log erase`: what leaves the log, and how.

Both are an operator's, and go to the database itself: whoever may run them has its URL.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from fastvideo.cli.config import load_config
from fastvideo.cli.options import AsJson
from fastvideo.cli.stack import DataOption

if TYPE_CHECKING:
    from fastvideo.events.archive.archiver import Archiver
    from fastvideo.events.archive.archives import ArchiveRecord
    from fastvideo.events.open_log import LogConfig
    from fastvideo.events.sealing.erasing import Erased

DatabaseOption = Annotated[
    str,
    typer.Option(
        "--postgres-url",
        metavar="URL",
        envvar="FASTVIDEO_POSTGRES_URL",
        show_envvar=False,
        help="The database; default: FASTVIDEO_POSTGRES_URL, else that of the local stack.",
    ),
]

ArchiveOption = Annotated[
    str,
    typer.Option(
        "--archive-url",
        metavar="URL",
        envvar="FASTVIDEO_ARCHIVE_URL",
        show_envvar=False,
        help="file:///folder or s3://bucket/prefix; default: the local stack's folder.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the group `log`."""
    app.command("archive")(archive)
    app.command("erase")(erase)


def archive(
    before: Annotated[
        str,
        typer.Option(
            help="An offset, or a date such as 2026-01-31 (UTC): what is older is put away.",
        ),
    ],
    partition: Annotated[
        int | None, typer.Option(min=0, help="Of this partition alone; default: of all.")
    ] = None,
    archive_url: ArchiveOption = "",
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A reader that is gone for good; not waited for."),
    ] = None,
    postgres_url: DatabaseOption = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Move closed ranges of old events out of the database into archives that all readers read.

    A range is archived, read back, compared, recorded and only then dropped. Refused while a
    projection, a consumer, the relay or a scheduler has not read it. Archives are kept for ever.
    """
    from fastvideo.events.open_log import LogConfig
    from fastvideo.local.database import running_archive, running_database

    url = archive_url or running_archive(data)
    dsn = postgres_url or running_database(data)
    config = LogConfig(dsn, url, load_config(os.environ).s3_endpoint)
    records = asyncio.run(_archive(config, before, partition, tuple(without or ()), as_json))
    if as_json:
        typer.echo(json.dumps([_as_data(record) for record in records]))
    elif not records:
        typer.echo("Nothing to archive: no full range lies before that.")
    else:
        events = sum(record.events for record in records)
        size = sum(record.bytes for record in records)
        typer.echo(f"{events} events are in {len(records)} archives of {size} bytes.")


def erase(
    tenant: Annotated[str, typer.Option(help="The tenant whose texts and artifacts go.")],
    reason: Annotated[str, typer.Option(help="Why; it stands in the log.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also while requests of the tenant are under way.")
    ] = False,
    keep_artifacts: Annotated[
        bool, typer.Option("--keep-artifacts", help="Videos, images and what was uploaded stay.")
    ] = False,
    postgres_url: DatabaseOption = "",
    archive_url: ArchiveOption = "",
    data: DataOption = None,
    as_json: AsJson = False,
) -> None:
    """Make what a tenant wrote unreadable for ever, in the log, its archives and all copies.

    Its key is deleted. Requests, sessions, their timelines and digests stay, with empty prompts.
    What it stored until now goes with the artifact service's next sweep, unless it is to be kept.
    Running services follow within 30 seconds. Refused while requests of the tenant are under way:
    cancel them first.
    """
    from fastvideo.events.open_log import LogConfig
    from fastvideo.local.database import running_archive, running_database

    dsn = postgres_url or running_database(data)
    # A database of one's own may have no archive.
    url = archive_url or ("" if postgres_url else running_archive(data))
    if not yes:
        what = "all texts" if keep_artifacts else "all texts and artifacts"
        typer.confirm(f"Erase {what} of tenant {tenant!r}? This cannot be undone", abort=True)
    config = LogConfig(dsn, url, load_config(os.environ).s3_endpoint)
    done = asyncio.run(_erase(config, tenant, reason, force=force, artifacts=not keep_artifacts))
    if as_json:
        typer.echo(json.dumps(asdict(done)))
    elif done.repeated:
        typer.echo(f"Tenant {tenant} was erased before; nothing was left.")
    else:
        typer.echo(f"Tenant {tenant} is erased: {len(done.key_ids)} keys are gone.")


async def _archive(
    config: "LogConfig",
    before: str,
    partition: int | None,
    without: tuple[str, ...],
    as_json: bool,
) -> list["ArchiveRecord"]:
    from fastvideo.events.archive.archiver import Archiver
    from fastvideo.events.postgres import PostgresEventStore
    from fastvideo.events.postgres_pool import PostgresPool

    dsn = config.postgres_dsn
    blobs = config.archive()
    assert blobs is not None
    store = await PostgresEventStore.open(dsn, archive=blobs)
    pool = await PostgresPool.open(dsn, connections_max=1)
    try:
        archiver = Archiver(store, pool, blobs)
        chosen = range(store.partition_count) if partition is None else (partition,)
        records = []
        for one in chosen:
            async for record in _of_partition(archiver, one, before, without):
                records.append(record)
                if not as_json:
                    typer.echo(f"archived {record.name}", err=True)
        return records
    finally:
        await pool.close()
        await store.close()


async def _of_partition(
    archiver: "Archiver", partition: int, before: str, without: tuple[str, ...]
) -> AsyncIterator["ArchiveRecord"]:
    offset = int(before) if before.isdecimal() else 0
    if not offset:
        offset = await archiver.offset_at(partition, _moment(before))
    for closed in await archiver.closed_ranges(partition, offset):
        async for record in archiver.archive(closed, without):
            yield record


async def _erase(
    config: "LogConfig", tenant: str, reason: str, *, force: bool, artifacts: bool
) -> "Erased":
    from fastvideo.events.postgres import PostgresEventStore
    from fastvideo.events.postgres_pool import PostgresPool
    from fastvideo.events.sealing.erasing import erase_tenant

    dsn = config.postgres_dsn
    store = await PostgresEventStore.open(dsn, connections_max=1, archive=config.archive())
    pool = await PostgresPool.open(dsn, connections_max=1)
    try:
        return await erase_tenant(store, pool, tenant, reason, force=force, artifacts=artifacts)
    finally:
        await pool.close()
        await store.close()


def _moment(text: str) -> datetime:
    from fastvideo.errors import InvalidField

    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        allowed = "an offset above 0, or a date such as 2026-01-31 or 2026-01-31T12:00"
        raise InvalidField("before", text, allowed) from error
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _as_data(record: "ArchiveRecord") -> dict[str, object]:
    return {
        "partition": record.partition,
        "first_offset": record.first_offset,
        "last_offset": record.last_offset,
        "object": record.object,
        "events": record.events,
        "bytes": record.bytes,
        "archived_at": record.archived_at.isoformat(),
    }
