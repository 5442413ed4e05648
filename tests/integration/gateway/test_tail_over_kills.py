"""A tail over gateways that are killed: from its position on, none lost and none doubled."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime

import pytest

from fastvideo.client import AsyncClient, CallPolicy, EventFilter
from fastvideo.events.catalog import new_event
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.records import AppendCommand, StreamAppend
from fastvideo.events.types import EventMetadata
from fastvideo.requests.events import RequestProgressed
from tests.integration.gateway.worlds import NOBODY
from tests.plugins.servers import free_port

EVENTS = 600
KILLS = 2
STOP_S_MAX = 30.0
WAIT_S = 240.0
WANTED = EventFilter(types=("request.progress",))


@contextmanager
def gateway(address: str, dsn: str) -> Iterator["subprocess.Popen[bytes]"]:
    """The gateway's program; killed at the end."""
    environment = {
        **os.environ,
        "FASTVIDEO_LISTEN": address,
        "FASTVIDEO_POSTGRES_DSN": dsn,
        "FASTVIDEO_ARTIFACTS_ADDRESS": NOBODY,
        "FASTVIDEO_SESSIONS_ADDRESS": NOBODY,
        "FASTVIDEO_LOG_LEVEL": "critical",
    }
    process = subprocess.Popen([sys.executable, "-m", "fastvideo_gateway"], env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait(STOP_S_MAX)


async def write(dsn: str) -> None:
    """One event after the other, over three requests."""
    store = await PostgresEventStore.open(dsn, connections_max=1)
    try:
        for number in range(EVENTS):
            metadata = EventMetadata(occurred_at=datetime.now(UTC))
            payload = RequestProgressed(fraction=number / EVENTS)
            event = new_event(f"evt_{number}", payload, metadata)
            await store.append(AppendCommand((StreamAppend(f"request-r{number % 3}", (event,)),)))
            await asyncio.sleep(0.002)
    finally:
        await store.close()


@pytest.mark.row("REQ-07")
async def test_a_tail_goes_on_over_kills(postgres_dsn: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    seen: list[str] = []

    async def follow(client: AsyncClient) -> None:
        async with aclosing(client.log.subscribe(WANTED)) as entries:
            async for entry in entries:
                seen.append(entry.event_id)
                if len(seen) == EVENTS:
                    return

    policy = CallPolicy(silence_s_max=WAIT_S)
    async with asyncio.timeout(WAIT_S), AsyncClient(address, policy=policy) as client:
        following = asyncio.create_task(follow(client))
        writing = asyncio.create_task(write(postgres_dsn))
        for kill in range(KILLS):
            with gateway(address, postgres_dsn):
                # It is killed while it tells: after some more, and before all.
                enough = len(seen) + EVENTS // (2 * KILLS)
                while len(seen) < min(enough, EVENTS - 1 - KILLS + kill):
                    await asyncio.sleep(0.01)
        with gateway(address, postgres_dsn):
            await following
        await writing
    assert seen == [f"evt_{number}" for number in range(EVENTS)]
