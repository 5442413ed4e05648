"""Servers that are killed, and what writers and readers make of it."""

import asyncio
import time
from collections import Counter

import pytest

from fastvideo.bus.nats import NatsBus, NatsBusConfig
from fastvideo.errors import Unavailable
from fastvideo.events.appender import Appender
from fastvideo.events.migrate import upgrade
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.records import AppendResult, StoredEvent
from fastvideo.events.recovery import append_surely
from fastvideo.events.subscription import LogSubscription
from fastvideo.events.wakeups import BusWakeups
from tests.contract.event_store_cases import command
from tests.plugins.servers import NatsServer, PostgresServer
from tests.plugins.waiting import eventually, running


async def _start(server: PostgresServer | NatsServer) -> None:
    await asyncio.to_thread(server.start)


@pytest.mark.parametrize("keyed", [True, False])
async def test_appends_survive_a_killed_database_once_each(
    own_postgres: PostgresServer, keyed: bool
) -> None:
    await _start(own_postgres)
    await upgrade(own_postgres.dsn())
    store = await PostgresEventStore.open(own_postgres.dsn())
    results: list[AppendResult] = []
    stop = asyncio.Event()

    async def write(writer: int) -> int:
        """Append to a stream of one's own, with the version known from the answers alone."""
        version = 0
        while not stop.is_set():
            key = f"{writer}:{version}" if keyed else None
            result = await append_surely(
                store, command(f"s-{writer}", 1, version, idempotency_key=key)
            )
            results.append(result)
            version += 1
        return version

    seen: list[StoredEvent] = []

    async def read() -> None:
        async for event in LogSubscription(store, {0: 0}):
            seen.append(event)

    async with running(read()):
        writers = [asyncio.create_task(write(i)) for i in range(8)]
        for kill in range(3):
            await _grow(results, 50 * (kill + 1))
            own_postgres.process.kill()
            await _start(own_postgres)
        await _grow(results, len(results) + 50)
        stop.set()
        versions = await asyncio.gather(*writers)
        total = sum(versions)
        await _grow(seen, total)
    # What the writers were told is what the log holds: nothing lost, nothing doubled.
    assert [await store.stream_version(f"s-{i}") for i in range(8)] == versions
    assert set(Counter(event.event_id for event in seen).values()) == {1}
    assert [event.offset for event in seen] == list(range(1, total + 1))
    await store.close()


async def _grow(things: list[AppendResult] | list[StoredEvent], goal: int) -> None:
    async def reached() -> bool:
        return len(things) >= goal

    await eventually(reached)


async def test_an_append_without_a_database_is_unavailable_and_then_resolved(
    own_postgres: PostgresServer,
) -> None:
    await _start(own_postgres)
    await upgrade(own_postgres.dsn())
    store = await PostgresEventStore.open(own_postgres.dsn())
    own_postgres.process.kill()
    with pytest.raises(Unavailable):
        await store.append(command("s"))
    with pytest.raises(Unavailable):
        await PostgresEventStore.open(own_postgres.dsn())
    async with Appender(store) as appender:
        waiting = asyncio.create_task(appender.append(command("s", idempotency_key="k")))
        await _start(own_postgres)
        result = await asyncio.wait_for(waiting, 30.0)
    assert result.positions[0].stream_version == 1
    await store.close()


async def test_nothing_waits_for_a_bus_that_is_away(
    postgres_dsn: str, own_nats: NatsServer
) -> None:
    started = time.monotonic()
    bus = NatsBus.open(NatsBusConfig(own_nats.url, reconnect_wait_s=0.05))
    wakeups = await BusWakeups.open(bus)
    store = await PostgresEventStore.open(postgres_dsn)
    subscription = LogSubscription(store, {0: 0}, wakeups)
    async with Appender(store, wakeups) as appender:
        await appender.append(command("s"))
        await asyncio.wait_for(anext(subscription), 30.0)
        with pytest.raises(Unavailable):
            await bus.incarnation()
        assert time.monotonic() - started < 30.0

        # Once it is there, hints go through it.
        await _start(own_nats)
        await bus.wait_connected(30.0)
        other = NatsBus.open(NatsBusConfig(own_nats.url))
        await other.wait_connected(30.0)
        ear = (await BusWakeups.open(other)).listen()

        async def is_heard() -> bool:
            # NATS may have learnt of the ear later than of the first of these.
            await appender.append(command("s"))
            return await ear.wait(1.0) == {0}

        await eventually(is_heard)
    await other.close()
    await bus.close()
    await store.close()
