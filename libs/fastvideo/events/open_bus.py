"""The bus of a service, as its configuration names it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastvideo.bus import Bus
from fastvideo.bus.nats import NatsBus, NatsBusConfig
from fastvideo.events.wakeups import BusWakeups, LocalWakeups, Wakeups


@asynccontextmanager
async def open_bus(nats_url: str) -> AsyncIterator[tuple[Bus | None, Wakeups]]:
    """NATS and hints over it; without a URL no bus, and hints inside this process alone.

    NATS need not answer yet: it is connected in the background.
    """
    if not nats_url:
        yield None, LocalWakeups()
        return
    bus = NatsBus.open(NatsBusConfig(url=nats_url))
    try:
        yield bus, await BusWakeups.open(bus)
    finally:
        await bus.close()
