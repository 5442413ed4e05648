"""Ranges of offsets: a log of before is converted, and a range is there when it is needed."""

import asyncio
from pathlib import Path

import asyncpg
import pytest
from alembic import command as alembic
from alembic.config import Config
from sqlalchemy import Connection, text

import fastvideo.events.migrations as migrations
from fastvideo.errors import AlreadyExists
from fastvideo.events import migrate
from fastvideo.events.migrate import schema_differences, upgrade
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.postgres_pool import PostgresPool
from fastvideo.events.records import AppendCommand, LogLimits, StoredEvent, StreamAppend
from tests.contract.event_store_cases import command, new_event

PARTITIONS = 3


async def upgrade_to(dsn: str, revision: str) -> None:
    """Bring an empty database to an older schema, with partitions."""

    def run(connection: Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(Path(next(iter(migrations.__path__)))))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = connection
        alembic.upgrade(config, revision)

    engine = migrate._engine(dsn)
    async with engine.begin() as connection:
        await connection.run_sync(run)
        await connection.execute(
            text(
                "INSERT INTO partitions (partition, next_offset, log_epoch) "
                f"SELECT i, 1, 1 FROM generate_series(0, {PARTITIONS - 1}) AS i"
            )
        )
    await engine.dispose()


async def everything(store: PostgresEventStore) -> list[StoredEvent]:
    return [
        event
        for partition in range(store.partition_count)
        for event in await store.read_partition(partition)
    ]


@pytest.mark.parametrize("revision", ["0003", "0004"])
async def test_a_log_of_before_is_converted_with_all_its_events(
    empty_postgres_dsn: str, revision: str
) -> None:
    await upgrade_to(empty_postgres_dsn, revision)
    pool = await PostgresPool.open(empty_postgres_dsn)
    old = PostgresEventStore(pool, PARTITIONS, LogLimits())
    for i in range(60):
        await old.append(command(f"request-{i % 11}", 1 + i % 4, idempotency_key=f"key-{i}"))
    before = await everything(old)
    versions = {name: await old.stream_version(name) for name in {e.stream_id for e in before}}
    await old.close()

    await upgrade(empty_postgres_dsn, PARTITIONS, range_size=50)
    assert await schema_differences(empty_postgres_dsn) == []
    store = await PostgresEventStore.open(empty_postgres_dsn)
    assert await everything(store) == before
    for event in before:
        assert await store.position_of(event.event_id) == event.position
    for name, version in versions.items():
        assert len(await store.read_stream(name)) == version
    # It goes on where it was, and what was once appended is not appended again.
    assert (await store.append(command("request-0", idempotency_key="key-7"))).repeated
    more = await store.append(command("request-0", 3, versions["request-0"]))
    assert more.positions[0].stream_version == versions["request-0"] + 1
    await store.close()


async def test_events_go_on_from_range_to_range(empty_postgres_dsn: str) -> None:
    await upgrade(empty_postgres_dsn, 2, range_size=10)
    store = await PostgresEventStore.open(empty_postgres_dsn)
    for i in range(40):
        await store.append(command(f"request-{i % 5}", 1 + i % 7))
    events = await everything(store)
    assert [e.offset for e in events if e.partition == 0] == list(range(1, await store.head(0) + 1))
    for i in range(5):
        versions = [e.stream_version for e in await store.read_stream(f"request-{i}")]
        assert versions == list(range(1, len(versions) + 1))
    owner = await asyncpg.connect(empty_postgres_dsn)
    for partition in range(2):
        ends = await owner.fetch(
            "SELECT first_offset, end_offset FROM event_ranges WHERE partition = $1 "
            "ORDER BY first_offset",
            partition,
        )
        assert [row["first_offset"] for row in ends] == [1 + 10 * i for i in range(len(ends))]
        assert ends[-1]["end_offset"] > await store.head(partition)
    await owner.close()
    await store.close()


async def test_an_append_that_spans_ranges_makes_them_all(empty_postgres_dsn: str) -> None:
    await upgrade(empty_postgres_dsn, 1, range_size=10)
    store = await PostgresEventStore.open(empty_postgres_dsn)
    await store.append(command("request-1", 75))
    assert [e.offset for e in await everything(store)] == list(range(1, 76))
    assert await store.position_of((await everything(store))[60].event_id) is not None
    await store.close()


async def test_writers_that_need_ranges_at_once_all_get_them(empty_postgres_dsn: str) -> None:
    await upgrade(empty_postgres_dsn, 4, range_size=7)
    store = await PostgresEventStore.open(empty_postgres_dsn, connections_max=8)

    async def write(writer: int) -> None:
        for i in range(25):
            names = (f"a-{writer}-{i}", f"b-{i}-{writer}")
            streams = tuple(StreamAppend(name, (new_event(), new_event())) for name in names)
            await store.append(AppendCommand(streams))

    await asyncio.gather(*map(write, range(8)))
    assert len(await everything(store)) == 8 * 25 * 4
    await store.close()


async def test_an_event_id_is_accepted_once_across_ranges(empty_postgres_dsn: str) -> None:
    await upgrade(empty_postgres_dsn, 4, range_size=3)
    store = await PostgresEventStore.open(empty_postgres_dsn)
    first = new_event()
    await store.append(AppendCommand((StreamAppend("request-1", (first,)),)))
    for i in range(30):
        await store.append(command(f"request-{i}", 2))
    with pytest.raises(AlreadyExists):
        await store.append(AppendCommand((StreamAppend("request-other", (first,)),)))
    await store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events_0_1 SET type = 'Forged'",
        "DELETE FROM events_0_1 WHERE false",
        "TRUNCATE events_0_1",
        "DELETE FROM event_ids",
        "UPDATE archives SET object = ''",
        "SET session_replication_role = replica; DELETE FROM events_0_1",
    ],
)
async def test_a_range_is_append_only_too(postgres_dsn: str, statement: str) -> None:
    store = await PostgresEventStore.open(postgres_dsn)
    await store.append(command("request-1"))
    owner = await asyncpg.connect(postgres_dsn)
    try:
        with pytest.raises(asyncpg.PostgresError, match="append-only"):
            await owner.execute(statement)
        await owner.execute("RESET ALL; SET ROLE fastvideo_app")
        with pytest.raises(asyncpg.PostgresError, match=r"permission denied|append-only"):
            await owner.execute(statement)
        with pytest.raises(asyncpg.PostgresError, match=r"permission denied|must be owner"):
            await owner.execute("DROP TABLE events_0_1")
        with pytest.raises(asyncpg.PostgresError, match="not closed"):
            await owner.execute("SELECT drop_archived_events(0, 1)")
    finally:
        await owner.close()
    await store.close()
