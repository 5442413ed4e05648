"""A projection rebuilt beside the live one, on a real Postgres, while everybody goes on."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from fastvideo.errors import FailedPrecondition, Unavailable
from fastvideo.events.migrate import upgrade
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.projections import rebuild as rebuilding
from fastvideo.events.projections.postgres import Layout
from fastvideo.events.projections.rebuild import RebuildOptions, rebuild
from fastvideo.events.projections.report import RebuildProgress
from tests.contract.event_store_cases import command
from tests.integration.events.tallies import LAYOUT, Tallies, followed, rebuilt
from tests.plugins.servers import PostgresServer
from tests.plugins.waiting import eventually

STREAMS = 20
ROOT = Path(__file__).resolve().parents[3]


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """Another session of the database."""
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close(timeout=60)


async def write(dsn: str, events: int) -> None:
    """Some events in each stream."""
    store = await PostgresEventStore.open(dsn)
    for i in range(STREAMS):
        await store.append(command(f"s-{i}", events))
    await store.close()


async def write_on(dsn: str, stop: asyncio.Event) -> int:
    """Append until it is said to stop; how many events."""
    store = await PostgresEventStore.open(dsn)
    count = 0
    while not stop.is_set():
        await store.append(command(f"s-{count % STREAMS}", 3))
        count += 1
    await store.close()
    return count * 3


async def schemas(dsn: str) -> list[str]:
    """The schemas of the projection that there are."""
    async with connected(dsn) as connection:
        rows = await connection.fetch(
            "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'tallies%' ORDER BY 1"
        )
    return [row[0] for row in rows]


@pytest.fixture
async def filled(postgres_dsn: str) -> str:
    """A log whose projection holds all of it."""
    await write(postgres_dsn, 30)
    async with followed(postgres_dsn) as (_, projector):
        assert await projector.is_fresh(20.0)
    return postgres_dsn


async def test_what_is_rebuilt_is_equal_and_takes_over(filled: str) -> None:
    async with connected(filled) as connection:
        before = await connection.fetchval("SELECT 'tallies_v3.tallies'::regclass::oid::bigint")
        report = await rebuilt(filled)
        after = await connection.fetchval("SELECT 'tallies_v3.tallies'::regclass::oid::bigint")
    assert (report.equal, report.swapped) == (True, True)
    assert report.events == STREAMS * 30
    assert report.positions == {0: STREAMS * 30}
    (table,) = report.tables
    assert (table.table, table.rows_live, table.rows_built) == ("tallies", STREAMS, STREAMS)
    assert before != after
    assert await schemas(filled) == [LAYOUT.live]


async def test_a_check_compares_and_leaves_everything(filled: str) -> None:
    async with connected(filled) as connection:
        before = await connection.fetchval("SELECT 'tallies_v3.tallies'::regclass::oid::bigint")
        report = await rebuilt(filled, RebuildOptions(check=True))
        after = await connection.fetchval("SELECT 'tallies_v3.tallies'::regclass::oid::bigint")
    assert (report.equal, report.swapped) == (True, False)
    assert before == after
    assert await schemas(filled) == [LAYOUT.live]


@pytest.mark.parametrize(
    ("damage", "key"),
    [
        ("UPDATE tallies_v3.tallies SET events = events + 1 WHERE stream_id >= 's-15'", "s-15"),
        ("DELETE FROM tallies_v3.tallies WHERE stream_id = 's-3'", "s-3"),
        ("INSERT INTO tallies_v3.tallies VALUES ('a', 1, 'x')", "a"),
    ],
)
async def test_rows_that_differ_are_named_and_swapped_only_when_asked(
    filled: str, damage: str, key: str
) -> None:
    async with connected(filled) as connection:
        await connection.execute(damage)
    report = await rebuilt(filled)
    assert (report.equal, report.swapped) == (False, False)
    (table,) = report.tables
    assert not table.equal
    assert table.first_difference == key
    report = await rebuilt(filled, RebuildOptions(swap_different=True))
    assert (report.equal, report.swapped) == (False, True)
    assert (await rebuilt(filled)).equal


async def test_two_services_project_and_read_on_while_it_is_rebuilt(
    filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Many small steps, so that writes come between.
    monkeypatch.setattr(rebuilding, "EVENTS_PER_READ", 40)
    stop = asyncio.Event()
    written = STREAMS * 30

    async def read_on(tallies: Tallies) -> int:
        seen = reads = 0
        while not stop.is_set():
            total = sum((await tallies.read()).values())
            assert total >= seen, "rows went back"
            seen, reads = total, reads + 1
        return reads

    async with AsyncExitStack() as stack:
        services = [await stack.enter_async_context(followed(filled)) for _ in range(2)]
        async with asyncio.TaskGroup() as group:
            writer = group.create_task(write_on(filled, stop))
            readers = [group.create_task(read_on(tallies)) for tallies, _ in services]
            reports = [await rebuilt(filled) for _ in range(3)]
            stop.set()
        written += writer.result()
        for tallies, projector in services:
            assert await projector.is_fresh(20.0)
            assert sum((await tallies.read()).values()) == written
    assert all(report.equal and report.swapped for report in reports)
    assert all(reader.result() > 3 for reader in readers)
    assert (await rebuilt(filled)).equal


@pytest.mark.parametrize(
    "held",
    [
        "SELECT count(*) FROM tallies_v3.tallies",
        "SELECT * FROM tallies_v3.tallies WHERE stream_id = 's-1' FOR UPDATE",
        "SELECT * FROM tallies_v3.positions FOR UPDATE",
    ],
    ids=["snapshot", "row", "position"],
)
async def test_an_idle_transaction_elsewhere_does_not_stop_it_under_live_writes(
    filled: str, held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuilding, "EVENTS_PER_READ", 40)
    stop = asyncio.Event()
    async with connected(filled) as idle, followed(filled) as (tallies, projector):
        transaction = idle.transaction(isolation="repeatable_read")
        await transaction.start()
        await idle.fetch(held)
        # Events that the live rows cannot take in while a row is held.
        await write(filled, 1)
        async with asyncio.timeout(60.0), asyncio.TaskGroup() as group:
            writer = group.create_task(write_on(filled, stop))
            report = await rebuilt(filled)
            stop.set()
        assert report.swapped
        assert writer.result() > 0
        # What was held is held in the rows that were put aside: projecting goes on.
        assert await projector.is_fresh(20.0)
        assert sum((await tallies.read()).values()) == STREAMS * 31 + writer.result()
        # The idle session still sees what it saw.
        assert len(await idle.fetch("SELECT 1")) == 1
        await transaction.rollback()
    # What could not be dropped then goes at the next start.
    async with followed(filled):
        assert await schemas(filled) == [LAYOUT.live]


async def test_a_killed_rebuild_leaves_no_harm(filled: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.integration.events.tallies",
        filled,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 120.0) == b"building\n"
        with pytest.raises(FailedPrecondition, match="being rebuilt already"):
            await rebuilt(filled)
        assert len(await schemas(filled)) == 2
    finally:
        process.kill()
        await process.wait()

    async def cleaned() -> bool:
        async with followed(filled) as (tallies, projector):
            assert await projector.is_fresh(20.0)
            assert sum((await tallies.read()).values()) == STREAMS * 30
        return await schemas(filled) == [LAYOUT.live]

    await eventually(cleaned)
    assert (await rebuilt(filled)).swapped


async def test_a_rebuild_that_is_given_up_drops_what_it_built(filled: str) -> None:
    store = await PostgresEventStore.open(filled)
    async with aclosing(rebuild(filled, store, Tallies, RebuildOptions())) as steps:
        first = await anext(steps)
        assert isinstance(first, RebuildProgress)
        assert first.events_total == STREAMS * 30
    await store.close()
    assert await schemas(filled) == [LAYOUT.live]


async def test_a_layout_of_another_version_is_dropped_once_nobody_has_it_open(
    filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Newer(Tallies):
        layout = Layout("tallies", 4, LAYOUT.statements)

    async with followed(filled) as (tallies, _):
        newer = await Newer.open(filled, 1)
        assert await newer.read() == {}
        assert sum((await tallies.read()).values()) == STREAMS * 30
        await newer.close()
    newer = await Newer.open(filled, 1)
    await newer.close()
    assert await schemas(filled) == ["tallies_v4"]


async def test_a_database_that_dies_meanwhile_has_the_old_rows_when_it_is_back(
    own_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuilding, "EVENTS_PER_READ", 40)
    await asyncio.to_thread(own_postgres.start)
    dsn = own_postgres.dsn()
    await upgrade(dsn)
    await write(dsn, 30)
    async with followed(dsn) as (tallies, projector):
        assert await projector.is_fresh(20.0)
        store = await PostgresEventStore.open(dsn)
        steps = rebuild(dsn, store, Tallies, RebuildOptions())
        async with aclosing(steps):
            await anext(steps)
            own_postgres.process.kill()
            with pytest.raises(Unavailable):
                async for _ in steps:
                    pass
        await store.close()
        await asyncio.to_thread(own_postgres.start)
        # The service that has the rows open goes on with them.
        await write(dsn, 1)
        assert await projector.is_fresh(20.0)
        assert sum((await tallies.read()).values()) == STREAMS * 31
    async with followed(dsn):
        assert await schemas(dsn) == [LAYOUT.live]
    assert (await rebuilt(dsn)).swapped
