"""A log restored from a dump: nobody takes the undone history for the one that follows."""

import asyncio
import subprocess
from pathlib import Path

import asyncpg
import pytest

from fastvideo.bus.nats import NatsBus, NatsBusConfig
from fastvideo.errors import FailedPrecondition, Fenced
from fastvideo.events.consumer import run_consumer
from fastvideo.events.migrate import upgrade
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.records import Snapshot
from fastvideo.events.relay import run_relay
from fastvideo.events.restoring import LEASE_EPOCHS_SKIPPED, begin_log_epoch
from tests.contract.event_store_cases import command
from tests.integration.events.deliveries import World
from tests.integration.events.worlds import Effects, all_echoed
from tests.plugins.servers import NatsServer, PostgresServer, postgres_programs
from tests.plugins.waiting import eventually, running


def dump(dsn: str, file: Path) -> None:
    program = postgres_programs() / "pg_dump"
    subprocess.run([program, "--format=custom", f"--file={file}", dsn], check=True, timeout=60)


def restore(file: Path, dsn: str) -> None:
    program = postgres_programs() / "pg_restore"
    command_line = [str(program), "--exit-on-error", f"--dbname={dsn}", str(file)]
    subprocess.run(command_line, check=True, timeout=60)


async def other_database(server: PostgresServer, name: str) -> str:
    connection = await asyncpg.connect(server.dsn())
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    return server.dsn(name)


async def test_consumers_and_bus_follow_a_restored_log(
    own_postgres: PostgresServer, own_nats: NatsServer, tmp_path: Path
) -> None:
    await asyncio.to_thread(own_postgres.start)
    await asyncio.to_thread(own_nats.start)
    await upgrade(own_postgres.dsn(), 2)
    bus = NatsBus.open(NatsBusConfig(own_nats.url, reconnect_wait_s=0.05, call_timeout_s=2.0))
    await bus.wait_connected(30.0)
    before = World(await PostgresEventStore.open(own_postgres.dsn()), bus)
    effects = Effects()
    async with (
        running(run_relay(before.relay_parts(), "r")),
        running(run_consumer(before.consumer_parts(effects), "c")),
    ):
        await before.append_inputs(10)
        await eventually(lambda: all_echoed(before.store, 10))
        await asyncio.to_thread(dump, own_postgres.dsn(), tmp_path / "dump")
        # What comes now will be undone; bus and consumer see it.
        await before.append_inputs(10, first=10)
        await eventually(lambda: all_echoed(before.store, 20))
        await eventually(before.relay_up_to_date)
    await before.store.close()

    restored = await other_database(own_postgres, "restored")
    await asyncio.to_thread(restore, tmp_path / "dump", restored)
    assert await begin_log_epoch(restored) == 2
    after = World(await PostgresEventStore.open(restored), bus)
    assert await after.store.log_epoch() == 2
    effects = Effects()
    async with (
        running(run_relay(after.relay_parts(), "r2")),
        running(run_consumer(after.consumer_parts(effects), "c2")),
    ):
        # Other events take the offsets of those that were undone.
        await after.append_inputs(15, first=30)

        async def echoed() -> bool:
            versions = [await after.store.stream_version(f"out-{i}") for i in range(30, 45)]
            return versions == [1] * 15

        await eventually(echoed, timeout_s=30.0)
        await eventually(after.relay_up_to_date, timeout_s=30.0)
    # Nothing of the undone history had an effect, and the bus has all that is true now.
    assert [await after.store.stream_version(f"out-{i}") for i in range(10, 20)] == [0] * 10
    assert await all_echoed(after.store, 10)
    last = await bus.last_message_id("fastvideo.events.0.>")
    assert last is not None
    assert last.startswith("2:")
    await after.store.close()
    await bus.close()


async def test_a_new_epoch_rewinds_readers_and_fences_old_holders(postgres_dsn: str) -> None:
    store = await PostgresEventStore.open(postgres_dsn)
    lease = await store.acquire_lease("scheduler-0", "old", 60.0)
    assert lease is not None
    await store.append(command("s", 3))
    await store.save_checkpoint("relay", 0, 3)
    await store.save_checkpoint("ahead", 0, 99)
    await store.save_snapshot("scheduler-0", Snapshot(3, b"saved"))
    assert await begin_log_epoch(postgres_dsn) == 2
    assert await store.load_checkpoint("relay") == {0: 3}
    assert await store.load_checkpoint("ahead") == {0: 3}
    # It tells the next leader that the log was restored.
    assert await store.load_snapshots("scheduler-0") == (Snapshot(3, b"saved"),)
    with pytest.raises(Fenced):
        await store.append(command("s", fence=lease.fence))
    taken = await store.acquire_lease("scheduler-0", "new", 60.0)
    assert taken is not None
    assert taken.epoch > lease.epoch + LEASE_EPOCHS_SKIPPED
    (event, *_) = await store.read_stream("s")
    assert event.log_epoch == 2
    await store.close()


async def test_a_database_without_a_log_is_refused(empty_postgres_dsn: str) -> None:
    with pytest.raises(FailedPrecondition):
        await begin_log_epoch(empty_postgres_dsn)
