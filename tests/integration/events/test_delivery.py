"""From the log over the bus to a consumer: every event has its effect once, whatever happens."""

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from fastvideo.bus.memory import MemoryBus
from fastvideo.clock import SystemClock
from fastvideo.errors import Conflict
from fastvideo.events.consumer import ConsumerTerm, run_consumer
from fastvideo.events.records import AppendCommand
from fastvideo.events.relay import (
    bus_message,
    run_relay,
)
from fastvideo.events.store import EventStore
from tests.integration.events.deliveries import (
    CONSUMER_LIMITS,
    World,
)
from tests.integration.events.worlds import (
    Effects,
    Faults,
    FaultyBus,
    LosingBus,
    Note,
    all_echoed,
    encode,
)
from tests.plugins.servers import NatsServer
from tests.plugins.waiting import eventually, running


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
