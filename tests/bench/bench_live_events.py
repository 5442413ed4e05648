"""P15: from an event's append to a subscriber's hand, through the gateway, over gRPC.

The gateway is a process of its own over real Postgres and NATS; the writer and the subscriber are
here, so that one clock measures. The peer is a bare append of the same event.
"""

import asyncio
import tempfile
import time
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

from bench_dispatch import _servers
from gateway_process import START_S_MAX, gateway_process
from measurement import Measurement, percentile

from fastvideo.client import AsyncClient, EventFilter
from fastvideo.events.appender import Appender
from fastvideo.events.catalog import new_event
from fastvideo.events.open_bus import open_bus
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.records import AppendCommand, StreamAppend
from fastvideo.events.types import EventMetadata
from fastvideo.requests.events import RequestProgressed

IDS = ("P15",)
EVENTS = 400
WARM_UP = 50
# About as often as a busy stack appends.
PAUSE_S = 0.01
STREAM = "scheduler-live"


def measure() -> list[Measurement]:
    """Start the servers and a gateway, and measure."""
    with (
        tempfile.TemporaryDirectory() as name,
        _servers(Path(name)) as (dsn, nats_url),
        gateway_process(dsn, nats_url) as gateway,
    ):
        latencies, appends = asyncio.run(_measure(gateway.grpc, dsn, nats_url))
    return [
        Measurement(
            id="P15",
            what=f"live event, append to subscriber, {label}",
            value=percentile(latencies, share),
            unit="s",
            peer=percentile(appends, share),
            peer_name="the append alone",
            goal="reported",
        )
        for label, share in (("p50", 0.5), ("p99", 0.99))
    ]


async def _measure(address: str, dsn: str, nats_url: str) -> tuple[list[float], list[float]]:
    """Seconds from before the append to the subscriber, and of the append alone."""
    begun: dict[str, float] = {}
    latencies: list[float] = []
    appends: list[float] = []
    live = asyncio.Event()
    store = await PostgresEventStore.open(dsn)
    async with (
        AsyncClient(address) as client,
        open_bus(nats_url) as (_, wakeups),
        Appender(store, wakeups) as appender,
    ):
        subscription = client.log.subscribe(EventFilter(stream_ids=(STREAM,)), after={})

        async def receive() -> None:
            async with aclosing(subscription) as entries:
                async for entry in entries:
                    latencies.append(time.perf_counter() - begun[entry.event_id])
                    live.set()
                    if len(latencies) == EVENTS + WARM_UP:
                        return

        async with asyncio.timeout(START_S_MAX + EVENTS * 0.2):
            receiving = asyncio.create_task(receive())
            for number in range(EVENTS + WARM_UP):
                event_id = f"evt_live_{number}"
                metadata = EventMetadata(occurred_at=datetime.now(UTC))
                event = new_event(event_id, RequestProgressed(fraction=0.5), metadata)
                begun[event_id] = time.perf_counter()
                await appender.append(AppendCommand((StreamAppend(STREAM, (event,)),)))
                appends.append(time.perf_counter() - begun[event_id])
                # The gateway may still be starting.
                await live.wait()
                await asyncio.sleep(PAUSE_S)
            await receiving
    await store.close()
    return latencies[WARM_UP:], appends[WARM_UP:]


if __name__ == "__main__":
    for measured in measure():
        print(measured)  # noqa: T201
