"""A disk that fills up, under Postgres and under NATS: typed errors, nothing lost, and on it goes.

The servers run on a file system of their own that is too small. Making one needs the right to
mount, which root has; elsewhere these tests are skipped by name.
"""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fastvideo.bus.nats import NatsBus, NatsBusConfig
from fastvideo.errors import Unavailable
from fastvideo.events.migrate import upgrade
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.records import StoredEvent
from fastvideo.events.relay import run_relay
from tests.contract.event_store_cases import command
from tests.integration.events.deliveries import World, bus_has_everything
from tests.plugins.servers import NatsServer, PostgresServer
from tests.plugins.waiting import eventually, running

MANY = 200


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    """A file system of a size."""
    folder = Path(tempfile.mkdtemp(prefix="fastvideo-disk-"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0755", "tmpfs", str(folder)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode != 0:
        folder.rmdir()
        pytest.skip("no right to mount a small file system here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


def fill(folder: Path, leave_bytes: int) -> Path:
    """Take all but some bytes of a file system."""
    free = shutil.disk_usage(folder).free
    filler = folder / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, free - leave_bytes))
    return filler


async def test_a_full_disk_under_postgres_is_unavailable_and_loses_nothing() -> None:
    with small_disk(192) as disk:
        server = PostgresServer(parent=disk)
        try:
            await asyncio.to_thread(server.start)
            await upgrade(server.dsn())
            store = await PostgresEventStore.open(server.dsn())
            await store.append(command("s", 10))
            filler = await asyncio.to_thread(fill, disk, 256 * 1024)
            committed = 10
            refused = ""
            while not refused:
                assert committed < 1_000 * MANY
                try:
                    await store.append(command("s", MANY))
                    committed += MANY
                except Unavailable as error:
                    refused = error.message
            assert "no room left on its disk" in refused
            filler.unlink()
            await asyncio.to_thread(server.wait)

            async def goes_on() -> bool:
                try:
                    await store.append(command("s", 1))
                except Unavailable:
                    return False
                return True

            await eventually(goes_on, timeout_s=30.0, every_s=0.1)
            events = [e async for e in all_events(store)]
            # All that was acknowledged is there, and of the one that was refused all or nothing.
            assert len(events) - 1 in (committed, committed + MANY)
            assert [event.offset for event in events] == list(range(1, len(events) + 1))
            assert await store.stream_version("s") == len(events)
            await store.close()
        finally:
            server.remove()


async def all_events(store: PostgresEventStore) -> AsyncIterator[StoredEvent]:
    offset = 0
    while events := await store.read_partition(0, offset):
        for event in events:
            yield event
        offset = events[-1].offset


async def test_a_full_disk_under_nats_delays_the_bus_and_nothing_else(
    postgres_dsn: str,
) -> None:
    store = await PostgresEventStore.open(postgres_dsn)
    with small_disk(24) as disk:
        server = NatsServer(disk)
        try:
            await asyncio.to_thread(server.start)
            bus = NatsBus.open(
                NatsBusConfig(server.url, reconnect_wait_s=0.05, call_timeout_s=2.0, bytes_max=-1)
            )
            await bus.wait_connected(30.0)
            world = World(store, bus)
            async with running(run_relay(world.relay_parts(), "r")):
                await world.append_inputs(5)
                await eventually(world.relay_up_to_date)
                filler = await asyncio.to_thread(fill, disk, 16 * 1024)
                # Appends do not wait for the bus, which takes nothing more.
                for i in range(5, 25):
                    await store.append(command(f"in-{i}", 20))
                assert await store.head(0) == 405
                assert not await world.relay_up_to_date()
                # JetStream switches itself off when a write fails, until its server starts again:
                # its probe for liveness has it restarted.
                filler.unlink()
                server.process.kill()
                await asyncio.to_thread(server.start)
                await eventually(world.relay_up_to_date, timeout_s=30.0)
            await eventually(lambda: bus_has_everything(world), timeout_s=30.0, every_s=0.2)
            await bus.close()
        finally:
            server.process.stop()
    await store.close()
