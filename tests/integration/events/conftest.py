"""A log and a bus for each test, in memory and as servers."""

from collections.abc import AsyncIterator

import pytest

from fastvideo.bus.memory import MemoryBus
from fastvideo.bus.nats import NatsBus, NatsBusConfig
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.migrate import upgrade
from fastvideo.events.postgres import PostgresEventStore
from tests.integration.events.deliveries import World
from tests.plugins.servers import NatsServer


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
