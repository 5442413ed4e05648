"""Who stops in the middle holds nobody up: an idle transaction, a bus that hands out nothing."""

import asyncio
from collections.abc import Sequence

import asyncpg

from fastvideo.bus import Bus, BusConsumer, Delivery
from fastvideo.bus.nats import NatsBus, NatsBusConfig
from fastvideo.events.consumer import run_consumer
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.relay import run_relay
from fastvideo.events.subscription import LogSubscription
from tests.contract.event_store_cases import command
from tests.integration.events.deliveries import World
from tests.integration.events.worlds import Effects, WrappedBus, all_echoed
from tests.plugins.servers import NatsServer
from tests.plugins.waiting import eventually, running

EVENTS = 20
SECONDS_MAX = 60.0


async def test_an_idle_transaction_freezes_no_subscription(postgres_dsn: str) -> None:
    """Where readers wait for the oldest transaction, one that idles stops them all."""
    store = await PostgresEventStore.open(postgres_dsn)
    await store.append(command("s"))
    idle = await asyncpg.connect(postgres_dsn)
    transaction = idle.transaction(isolation="repeatable_read")
    await transaction.start()
    # It has a snapshot and has written.
    await idle.execute("INSERT INTO inbox (consumer, event_id) VALUES ('idle', 'evt_idle')")
    subscription = LogSubscription(store, {0: 0})
    seen: list[int] = []
    async with asyncio.timeout(SECONDS_MAX):
        for i in range(EVENTS):
            await store.append(command(f"s-{i}"))
        while len(seen) <= EVENTS:
            seen.append((await anext(subscription)).offset)
    assert seen == list(range(1, EVENTS + 2))
    assert await idle.fetchval("SELECT count(*) FROM events") == 1, "it was no idle transaction"
    await transaction.rollback()
    await idle.close()
    await store.close()


class _Deaf:
    """A consumer that is up and is given nothing more."""

    def __init__(self, inner: BusConsumer, first: int) -> None:
        self._inner, self._left = inner, first

    async def fetch(self, limit: int, timeout_s: float) -> Sequence[Delivery]:
        if self._left <= 0:
            await asyncio.sleep(timeout_s)
            return ()
        deliveries = await self._inner.fetch(min(limit, self._left), timeout_s)
        self._left -= len(deliveries)
        return deliveries


class _DeafBus(WrappedBus):
    def __init__(self, inner: Bus, first: int) -> None:
        super().__init__(inner)
        self._first = first

    async def consumer(self, name: str, *subjects: str, ack_wait_s: float) -> BusConsumer:
        inner = await super().consumer(name, *subjects, ack_wait_s=ack_wait_s)
        return _Deaf(inner, self._first)


async def test_a_consumer_whose_pulls_bring_nothing_goes_on_from_the_log(
    postgres_dsn: str, own_nats: NatsServer
) -> None:
    """The connection is up and the relay publishes: nothing tells that pulling has stopped."""
    await asyncio.to_thread(own_nats.start)
    store = await PostgresEventStore.open(postgres_dsn)
    bus = NatsBus.open(NatsBusConfig(own_nats.url, call_timeout_s=5.0))
    await bus.wait_connected(30.0)
    world, effects = World(store, bus), Effects()
    consumer = world.consumer_parts(effects, _DeafBus(bus, 5))
    async with running(run_relay(world.relay_parts(), "r")), running(run_consumer(consumer, "c")):
        await world.append_inputs(EVENTS)
        await eventually(world.relay_up_to_date)
        await eventually(lambda: all_echoed(store, EVENTS))
    assert all(count == 1 for stream, count in effects.calls.items() if stream.startswith("in-"))
    await bus.close()
    await store.close()
