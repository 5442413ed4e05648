"""From the log over the bus to a consumer: every event has its effect once, whatever happens."""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest

from fastvideo.bus import Bus
from fastvideo.bus.memory import MemoryBus
from fastvideo.bus.nats import NatsBus, NatsBusConfig
from fastvideo.clock import SystemClock
from fastvideo.errors import Conflict, Fenced, Unavailable
from fastvideo.events.consumer import ConsumerLimits, ConsumerParts, ConsumerTerm, run_consumer
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.migrate import upgrade
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.records import AppendCommand
from fastvideo.events.relay import (
    PartitionRelay,
    RelayLimits,
    RelayParts,
    bus_message,
    offset_before,
    run_relay,
)
from fastvideo.events.store import EventStore
from tests.contract.event_store_cases import command
from tests.integration.events.worlds import (
    Effects,
    Faults,
    FaultyBus,
    LosingBus,
    Note,
    all_echoed,
    decode_message,
    decode_stored,
    encode,
)
from tests.plugins.servers import NatsServer
from tests.plugins.waiting import eventually, running

RELAY_LIMITS = RelayLimits(verify_s=0.3, retry_s=0.05, lease_ttl_s=30.0)
CONSUMER_LIMITS = ConsumerLimits(
    tries_max=3, retry_s=0.01, silence_s=0.3, ack_wait_s=0.5, lease_ttl_s=30.0
)


@dataclass(frozen=True)
class World:
    store: EventStore
    bus: Bus

    def relay_parts(self) -> RelayParts:
        return RelayParts(self.store, self.bus, encode, limits=RELAY_LIMITS)

    def consumer_parts(self, effects: Effects, bus: Bus | None = None) -> ConsumerParts[Note]:
        return ConsumerParts(
            name="echo",
            store=self.store,
            bus=bus or self.bus,
            handle=effects,
            decode_message=decode_message,
            decode_stored=decode_stored,
            limits=CONSUMER_LIMITS,
        )

    async def append_inputs(self, count: int, first: int = 0) -> None:
        for i in range(first, first + count):
            await self.store.append(command(f"in-{i}"))

    async def relay_up_to_date(self) -> bool:
        heads = await self.store.heads()
        done = await self.store.load_checkpoint("relay")
        return all(done.get(partition, 0) == head for partition, head in heads.items())


@pytest.fixture(params=["memory", "real"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "memory":
        yield World(MemoryEventStore(2), MemoryBus())
        return
    dsn = request.getfixturevalue("empty_postgres_dsn")
    nats: NatsServer = request.getfixturevalue("own_nats")
    nats.start()
    await upgrade(dsn, 2)
    store = await PostgresEventStore.open(dsn)
    bus = NatsBus.open(NatsBusConfig(nats.url, reconnect_wait_s=0.05, call_timeout_s=2.0))
    await bus.wait_connected(30.0)
    yield World(store, bus)
    await bus.close()
    await store.close()


async def test_every_event_has_its_effect_once(world: World) -> None:
    effects = Effects()
    async with (
        running(run_relay(world.relay_parts(), "r")),
        running(run_consumer(world.consumer_parts(effects), "c")),
    ):
        await world.append_inputs(40)
        await eventually(lambda: all_echoed(world.store, 40))
    assert set(effects.calls.values()) == {1}


async def test_a_consumer_is_sent_its_types_alone_and_misses_none_that_the_bus_lost(
    world: World,
) -> None:
    effects, bus = Effects(), LosingBus(world.bus)
    consumer = replace(world.consumer_parts(effects, bus), types=frozenset({"ThingHappened"}))
    async with running(run_relay(world.relay_parts(), "r")), running(run_consumer(consumer, "c")):
        await world.append_inputs(30)
        await eventually(lambda: all_echoed(world.store, 30))
        await eventually(world.relay_up_to_date)
    assert effects.calls == Counter({f"in-{i}": 1 for i in range(30)})
    assert set(bus.sent) == {"ThingHappened"}


async def test_duplicates_and_lost_acks_change_nothing(world: World) -> None:
    effects, faults = Effects(), Faults(copies=5, acks_lost=20)
    bus = FaultyBus(world.bus, faults)
    async with (
        running(run_relay(world.relay_parts(), "r")),
        running(run_consumer(world.consumer_parts(effects, bus), "c")),
    ):
        await world.append_inputs(20)
        await eventually(lambda: all_echoed(world.store, 20))

        async def all_lost() -> bool:
            return faults.acks_lost == 0

        await eventually(all_lost)
        # Past the wait for acknowledgement: what came again changed nothing.
        await asyncio.sleep(2 * CONSUMER_LIMITS.ack_wait_s)
        assert await all_echoed(world.store, 20)
    assert all(count == 1 for stream, count in effects.calls.items() if stream.startswith("in-"))


async def test_deliveries_out_of_order_are_handled_in_order(world: World) -> None:
    handled: list[str] = []

    class Ordered(Effects):
        async def __call__(self, note: Note) -> AppendCommand | None:
            if note.stream_id.startswith("in-"):
                handled.append(note.event_id)
            return await super().__call__(note)

    await world.append_inputs(40)
    async with running(run_relay(world.relay_parts(), "r")):
        await eventually(world.relay_up_to_date)
        parts = world.consumer_parts(Ordered(), FaultyBus(world.bus, Faults(reversed=True)))
        async with running(run_consumer(parts, "c")):
            await eventually(lambda: all_echoed(world.store, 40))
    for partition in range(2):
        inputs = [
            event.event_id
            for event in await world.store.read_partition(partition)
            if event.stream_id.startswith("in-")
        ]
        assert [event_id for event_id in handled if event_id in set(inputs)] == inputs


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


class JumpingClock(SystemClock):
    """A clock that is an hour ahead, then an hour behind, at every look."""

    def __init__(self) -> None:
        self._ahead = False

    def now(self) -> datetime:
        self._ahead = not self._ahead
        return super().now() + (1 if self._ahead else -1) * timedelta(hours=1)


async def test_clocks_that_jump_an_hour_lose_and_double_nothing(
    world: World, request: pytest.FixtureRequest
) -> None:
    effects, faults = Effects(), Faults(copies=2, acks_lost=10)
    clock = JumpingClock()
    limits = replace(CONSUMER_LIMITS, inbox_prune_s=0.1)
    consumer = replace(
        world.consumer_parts(effects, FaultyBus(world.bus, faults)), clock=clock, limits=limits
    )
    relay = replace(world.relay_parts(), clock=clock)
    async with running(run_relay(relay, "r")), running(run_consumer(consumer, "c")):
        await world.append_inputs(20)
        await eventually(lambda: all_echoed(world.store, 20))
        if isinstance(world.bus, MemoryBus):
            world.bus.wipe()
        else:
            nats: NatsServer = request.getfixturevalue("own_nats")
            nats.process.kill()
            nats.wipe()
            await asyncio.to_thread(nats.start)
        await world.append_inputs(20, first=20)
        await eventually(lambda: all_echoed(world.store, 40), timeout_s=30.0)
        await asyncio.sleep(2 * CONSUMER_LIMITS.ack_wait_s)
        assert await all_echoed(world.store, 40)
    assert all(count == 1 for stream, count in effects.calls.items() if stream.startswith("in-"))


async def test_a_consumer_killed_between_effect_and_place_does_not_repeat_the_effect(
    world: World,
) -> None:
    effects = Effects()
    await world.append_inputs(10)
    async with running(run_relay(world.relay_parts(), "r")):
        await eventually(world.relay_up_to_date)
    lease = await world.store.acquire_lease("consumer-echo", "c", 60.0)
    assert lease is not None

    class Killed(ConsumerTerm[Note]):
        async def _save(self, *, at_once: bool) -> None:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await Killed(world.consumer_parts(effects), lease).run()
    await world.store.release_lease(lease)
    done = effects.calls.copy()
    assert done.total() > 0
    async with running(run_consumer(world.consumer_parts(effects), "d")):
        await eventually(lambda: all_echoed(world.store, 10))
    assert all(effects.calls[stream] == 1 for stream in done if stream.startswith("in-"))


async def test_old_inbox_marks_are_dropped_once_they_are_behind_the_checkpoint(
    world: World,
) -> None:
    effects = Effects()
    limits = replace(CONSUMER_LIMITS, inbox_keep_s=-60.0, inbox_prune_s=0.0)
    parts = replace(world.consumer_parts(effects), limits=limits)
    async with running(run_relay(world.relay_parts(), "r")), running(run_consumer(parts, "c")):
        await world.append_inputs(5)
        await eventually(lambda: all_echoed(world.store, 5))
        (event,) = await world.store.read_stream("in-0")

        async def forgotten() -> bool:
            return not await world.store.inbox_seen("echo", event.event_id)

        await eventually(forgotten)
    # Later terms know from the checkpoint alone.
    async with running(run_consumer(parts, "d")):
        await world.append_inputs(1, first=5)
        await eventually(lambda: all_echoed(world.store, 6))
    assert all(count == 1 for stream, count in effects.calls.items() if stream.startswith("in-"))


async def test_a_poisonous_event_is_put_aside_and_the_next_is_handled(world: World) -> None:
    effects = Effects(poisonous=frozenset({"in-1"}))
    async with (
        running(run_relay(world.relay_parts(), "r")),
        running(run_consumer(world.consumer_parts(effects), "c")),
    ):
        await world.append_inputs(3)

        async def others_echoed() -> bool:
            versions = [await world.store.stream_version(f"out-{i}") for i in range(3)]
            return versions == [1, 0, 1]

        await eventually(others_echoed)
        await eventually(lambda: _quarantined(world.store))
    (aside,) = await world.store.list_quarantined("echo")
    (event,) = await world.store.read_stream("in-1")
    assert (aside.event_id, aside.partition, aside.offset, aside.type) == (
        event.event_id,
        event.partition,
        event.offset,
        event.type,
    )
    assert aside.error == "ValueError: cannot digest in-1"
    assert aside.attempts == effects.calls["in-1"] == CONSUMER_LIMITS.tries_max


class Contended(Effects):
    """An effect that others write first, so often."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._left = times

    async def __call__(self, note: Note) -> AppendCommand | None:
        if note.stream_id == "in-0" and self._left:
            self._left -= 1
            raise Conflict("another wrote first")
        return await super().__call__(note)


async def test_an_event_is_not_put_aside_because_others_write_the_same_stream(
    world: World,
) -> None:
    """Five times as often as it may fail."""
    await world.append_inputs(2)
    async with (
        running(run_relay(world.relay_parts(), "relay-a")),
        running(run_consumer(world.consumer_parts(Contended(15)), "consumer-a")),
    ):
        await eventually(lambda: all_echoed(world.store, 2))
    assert await world.store.list_quarantined("echo") == ()


async def _quarantined(store: EventStore) -> bool:
    return len(await store.list_quarantined()) == 1


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


async def test_a_message_that_the_bus_lost_is_read_from_the_log(world: World) -> None:
    await world.append_inputs(12)
    published = 0
    await world.bus.incarnation()
    for partition in range(2):
        events = await world.store.read_partition(partition)
        # Every other one, and not the last.
        for event in events[:-1:2]:
            await world.bus.publish(bus_message(event, encode))
            published += 1
    assert published
    effects = Effects()
    async with running(run_consumer(world.consumer_parts(effects), "c")):
        await eventually(lambda: all_echoed(world.store, 12))


async def test_a_message_of_an_undone_history_is_ignored(world: World) -> None:
    await world.append_inputs(2)
    await world.bus.incarnation()
    (event, *_) = await world.store.read_partition(0)
    undone = event._replace(log_epoch=0, stream_id="in-99", event_id="evt_undone")
    await world.bus.publish(bus_message(undone, encode))
    async with running(run_consumer(world.consumer_parts(Effects()), "c")):
        await eventually(lambda: all_echoed(world.store, 2))
    assert await world.store.stream_version("out-99") == 0


async def test_offsets_are_found_by_time(world: World) -> None:
    await world.append_inputs(16)
    events = await world.store.read_partition(0)
    for event in events:
        found = await offset_before(world.store, 0, event.recorded_at)
        assert found == sum(e.recorded_at < event.recorded_at for e in events)


async def bus_has_everything(world: World) -> bool:
    """Whether a new consumer of the bus is given each event of the log."""
    consumer = await world.bus.consumer(
        f"check-{secrets.token_hex(4)}", "fastvideo.events.>", ack_wait_s=30.0
    )
    found: set[str] = set()
    try:
        while deliveries := await consumer.fetch(100, 0.2):
            found.update(delivery.message.message_id for delivery in deliveries)
    except Unavailable:
        return False
    wanted = {
        bus_message(event, encode).message_id
        for partition in range(world.store.partition_count)
        for event in await world.store.read_partition(partition)
    }
    return found == wanted


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
