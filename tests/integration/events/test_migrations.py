"""The migrations give the tables that the code describes."""

import asyncio
from collections.abc import Awaitable

import asyncpg
import pytest
from alembic import command as alembic
from alembic.config import Config
from alembic.script import ScriptDirectory

import fastvideo.events.migrations as migrations
from fastvideo.errors import FailedPrecondition, Unavailable
from fastvideo.events import postgres
from fastvideo.events.migrate import schema_differences, upgrade
from fastvideo.events.postgres import SCHEMA_REVISION, PostgresEventStore
from tests.contract.event_store_cases import command
from tests.plugins.servers import PostgresServer
from tests.plugins.waiting import eventually


async def test_an_empty_database_is_brought_to_the_described_schema(
    empty_postgres_dsn: str,
) -> None:
    await upgrade(empty_postgres_dsn, 16)
    assert await schema_differences(empty_postgres_dsn) == []
    store = await PostgresEventStore.open(empty_postgres_dsn)
    assert store.partition_count == 16
    await store.close()


async def test_an_upgrade_holds_up_no_append_while_a_backup_reads_beside_it(
    empty_postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        newest = alembic.upgrade
        patched.setattr(alembic, "upgrade", lambda config, _: newest(config, "0005"))
        await upgrade(empty_postgres_dsn)
        patched.setattr(postgres, "SCHEMA_REVISION", "0005")
        store = await PostgresEventStore.open(empty_postgres_dsn)
    backup, beside = [await asyncpg.connect(empty_postgres_dsn) for _ in range(2)]
    reading = backup.transaction()
    await reading.start()
    await backup.execute("LOCK TABLE partitions IN ACCESS SHARE MODE")
    upgrading = asyncio.create_task(upgrade(empty_postgres_dsn))

    async def waits() -> bool:
        found = await beside.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND state = 'active' AND query ~ '(LOCK|ALTER) TABLE partitions'"
        )
        return bool(found)

    await eventually(waits)
    async with asyncio.timeout(20.0):
        for _ in range(5):
            await store.append(command("s"))
    assert not upgrading.done()
    await reading.rollback()
    await upgrading
    # Who has written since before the upgrade goes on.
    await store.append(command("s"))
    events = await store.read_partition(0)
    assert [event.stream_version for event in events] == list(range(1, 7))
    last = await beside.fetchval("SELECT recorded_at FROM partitions")
    assert last == events[-1].recorded_at
    assert await schema_differences(empty_postgres_dsn) == []
    await backup.close()
    await beside.close()
    await store.close()


async def test_upgrading_again_and_together_changes_nothing(empty_postgres_dsn: str) -> None:
    await asyncio.gather(*(upgrade(empty_postgres_dsn, 2) for _ in range(3)))
    await upgrade(empty_postgres_dsn, 2)
    with pytest.raises(FailedPrecondition, match="2 partitions, not 3"):
        await upgrade(empty_postgres_dsn, 3)


async def test_an_owner_who_is_no_superuser_migrates_and_appends(
    own_postgres: PostgresServer,
) -> None:
    await asyncio.to_thread(own_postgres.start)
    superuser = await asyncpg.connect(own_postgres.dsn())
    await superuser.execute("CREATE ROLE owner LOGIN CREATEROLE")
    await superuser.execute("CREATE DATABASE log OWNER owner")
    await superuser.close()
    dsn = own_postgres.dsn("log").replace("postgres@", "owner@")
    await upgrade(dsn)
    store = await PostgresEventStore.open(dsn)
    await store.append(command("s"))
    assert await store.head(0) == 1
    await store.close()


async def test_a_store_refuses_a_database_that_is_not_migrated(empty_postgres_dsn: str) -> None:
    with pytest.raises(FailedPrecondition, match="not migrated"):
        await PostgresEventStore.open(empty_postgres_dsn)


async def test_a_store_refuses_a_server_that_never_saw_a_migration(
    own_postgres: PostgresServer,
) -> None:
    await asyncio.to_thread(own_postgres.start)
    with pytest.raises(FailedPrecondition, match="not migrated"):
        await PostgresEventStore.open(own_postgres.dsn())


async def test_an_outage_is_told_without_the_words_of_postgres(
    own_postgres: PostgresServer,
) -> None:
    with pytest.raises(Unavailable) as caught:
        await PostgresEventStore.open(own_postgres.dsn())
    assert caught.value.message == "the event log's database does not answer"
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("found", "told"), [("9999", "9999, of a release newer"), ("0005", "0005, of a release older")]
)
async def test_who_meets_the_schema_of_another_release_says_both_and_what_to_do(
    postgres_dsn: str, found: str, told: str
) -> None:
    owner = await asyncpg.connect(postgres_dsn)
    await owner.execute("UPDATE event_log_schema SET version_num = $1", found)
    opens: list[Awaitable[object]] = [PostgresEventStore.open(postgres_dsn)]
    if found > SCHEMA_REVISION:
        # An older release's `fastvideo up`, or its migration job.
        opens.append(upgrade(postgres_dsn))
    for opening in opens:
        with pytest.raises(FailedPrecondition, match=told) as caught:
            await opening
        assert f"needs {SCHEMA_REVISION}; " in caught.value.message
        assert caught.value.reason == "SCHEMA"
        assert caught.value.attributes == {"found": found, "needed": SCHEMA_REVISION}
    assert await owner.fetchval("SELECT version_num FROM event_log_schema") == found
    await owner.close()


def test_the_store_is_written_for_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(next(iter(migrations.__path__))))
    config.set_main_option("path_separator", "os")
    assert ScriptDirectory.from_config(config).get_heads() == [SCHEMA_REVISION]
