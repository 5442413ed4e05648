"""From the log to the bus: whatever becomes of relays and of the bus, each event is on it."""

import asyncio

import pytest

from fastvideo.bus.memory import MemoryBus
from fastvideo.bus.nats import NatsBus, NatsBusConfig
from fastvideo.errors import Fenced
from fastvideo.events.consumer import run_consumer
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.migrate import upgrade
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.relay import (
    PartitionRelay,
    offset_before,
    run_relay,
)
from tests.integration.events.deliveries import (
    World,
    bus_has_everything,
)
from tests.integration.events.worlds import (
    Effects,
    all_echoed,
)
from tests.plugins.servers import NatsServer
from tests.plugins.waiting import eventually, running


async def test_what_a_dead_relay_published_comes_again_past_the_window_and_changes_nothing(
    empty_postgres_dsn: str, own_nats: NatsServer
) -> None:
    """Killed between publishing and its cursor, and the bus deduplicates no more."""
    await asyncio.to_thread(own_nats.start)
    await upgrade(empty_postgres_dsn, 2)
    store = await PostgresEventStore.open(empty_postgres_dsn)
    bus = NatsBus.open(NatsBusConfig(own_nats.url, call_timeout_s=2.0, deduplication_window_s=0.1))
    await bus.wait_connected(30.0)
    world = World(store, bus)
    await world.append_inputs(10)

    class Killed(PartitionRelay):
        async def _save(self) -> None:
            raise asyncio.CancelledError

    effects = Effects()
    async with running(run_consumer(world.consumer_parts(effects), "c")):
        for _ in range(3):
            for partition in range(2):
                lease = await store.acquire_lease(f"relay-{partition}", "dead", 60.0)
                assert lease is not None
                with pytest.raises(asyncio.CancelledError):
                    await Killed(world.relay_parts(), partition, lease).run()
                await store.release_lease(lease)
            await asyncio.sleep(0.3)
        async with running(run_relay(world.relay_parts(), "r")):
            await world.append_inputs(5, first=10)
            await eventually(lambda: all_echoed(store, 15))
            await eventually(world.relay_up_to_date)
    assert all(count == 1 for stream, count in effects.calls.items() if stream.startswith("in-"))
    # It did come again.
    consumer = await bus.consumer("check", "fastvideo.events.>", ack_wait_s=600.0)
    ids: list[str] = []

    async def came_again() -> bool:
        ids.extend(d.message.message_id for d in await consumer.fetch(200, 0.5))
        return len(ids) > len(set(ids))

    await eventually(came_again)
    await bus.close()
    await store.close()


async def test_a_relay_killed_between_publishing_and_its_cursor_loses_nothing(
    world: World,
) -> None:
    await world.append_inputs(10)

    class Killed(PartitionRelay):
        async def _save(self) -> None:
            raise asyncio.CancelledError

    for partition in range(2):
        lease = await world.store.acquire_lease(f"relay-{partition}", "dead", 60.0)
        assert lease is not None
        with pytest.raises(asyncio.CancelledError):
            await Killed(world.relay_parts(), partition, lease).run()
        await world.store.release_lease(lease)
    assert await world.store.load_checkpoint("relay") == {}
    await world.append_inputs(10, first=10)
    effects = Effects()
    async with (
        running(run_relay(world.relay_parts(), "r")),
        running(run_consumer(world.consumer_parts(effects), "c")),
    ):
        await eventually(lambda: all_echoed(world.store, 20))
        await eventually(world.relay_up_to_date)


async def test_a_second_relay_takes_over_and_a_stale_one_is_refused(world: World) -> None:
    await world.append_inputs(4)
    stale = await world.store.acquire_lease("relay-0", "old", 0.0)
    assert stale is not None
    async with running(run_relay(world.relay_parts(), "new")):
        await eventually(world.relay_up_to_date)
        # The stale one publishes what is new, which does no harm, and may not move the cursor.
        paused = asyncio.create_task(PartitionRelay(world.relay_parts(), 0, stale).run())
        await world.append_inputs(8, first=4)
        with pytest.raises(Fenced):
            await asyncio.wait_for(paused, 30.0)
        await eventually(world.relay_up_to_date)


async def test_offsets_are_found_by_time(world: World) -> None:
    await world.append_inputs(16)
    events = await world.store.read_partition(0)
    for event in events:
        found = await offset_before(world.store, 0, event.recorded_at)
        assert found == sum(e.recorded_at < event.recorded_at for e in events)


async def test_a_wiped_bus_is_filled_again_from_the_log(
    world: World, request: pytest.FixtureRequest
) -> None:
    effects = Effects()
    async with (
        running(run_relay(world.relay_parts(), "r")),
        running(run_consumer(world.consumer_parts(effects), "c")),
    ):
        await world.append_inputs(20)
        await eventually(lambda: all_echoed(world.store, 20))
        await eventually(world.relay_up_to_date)
        if isinstance(world.bus, MemoryBus):
            world.bus.wipe()
            await world.append_inputs(10, first=20)
        else:
            nats: NatsServer = request.getfixturevalue("own_nats")
            nats.process.kill()
            nats.wipe()
            # Appends, and their effects, do not wait for the bus.
            await world.append_inputs(10, first=20)
            await eventually(lambda: all_echoed(world.store, 30), timeout_s=30.0)
            nats.start()
        await eventually(lambda: all_echoed(world.store, 30), timeout_s=30.0)
        await eventually(lambda: bus_has_everything(world), timeout_s=30.0, every_s=0.2)
    assert all(count == 1 for stream, count in effects.calls.items() if stream.startswith("in-"))


async def test_an_expired_message_is_not_published_again() -> None:
    world = World(MemoryEventStore(1), MemoryBus(retention_s=0.0))
    await world.append_inputs(5)
    await world.store.save_checkpoint("relay", 0, 5)
    async with running(run_relay(world.relay_parts(), "r")):
        await world.append_inputs(1, first=5)
        await eventually(world.relay_up_to_date)
    last = await world.bus.last_message_id("fastvideo.events.0.>")
    consumer = await world.bus.consumer("check", "fastvideo.events.>", ack_wait_s=30.0)
    assert [d.message.message_id for d in await consumer.fetch(10, 0.1)] == [last]
