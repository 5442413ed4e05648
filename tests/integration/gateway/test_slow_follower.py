"""A subscriber that does not read: nothing piles up for it, and it misses nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import pytest

from fastvideo.api.events.v1 import log_pb2, log_pb2_grpc
from fastvideo.events.catalog import new_event
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.reading.reader import LogReader
from fastvideo.events.reading.tailing import LogFollower
from fastvideo.events.records import AppendCommand, StoredEvent, StreamAppend
from fastvideo.events.types import EventMetadata
from fastvideo.requests.events import RequestLogged
from fastvideo.rpc.channel import open_channel
from fastvideo.rpc.server import Server, Service
from fastvideo_gateway.event_log import EventLogService
from fastvideo_gateway.event_log_parts import EventLogParts

if TYPE_CHECKING:
    from fastvideo.api.events.v1.log_pb2_grpc import EventLogServiceAsyncStub

EVENTS = 4_000
MESSAGE = "x" * 16_384
# What the two ends of a connection may hold, generously: a quarter of all.
READ_AHEAD_MAX = EVENTS // 4


class CountingMemory(MemoryEventStore):
    """Counts events that were read."""

    events_read = 0

    async def read_partition(
        self, partition: int, after_offset: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        events = await super().read_partition(partition, after_offset, limit)
        self.events_read += len(events)
        return events


class CountingPostgres(PostgresEventStore):
    """As above."""

    events_read = 0

    async def read_partition(
        self, partition: int, after_offset: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        events = await super().read_partition(partition, after_offset, limit)
        self.events_read += len(events)
        return events


CountingStore = CountingMemory | CountingPostgres


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.slow)])
async def large_log(request: pytest.FixtureRequest) -> AsyncIterator[CountingStore]:
    """A log that is much more than what is read ahead."""
    if request.param == "memory":
        log: CountingStore = CountingMemory()
    else:
        opened = await CountingPostgres.open(request.getfixturevalue("postgres_dsn"))
        assert isinstance(opened, CountingPostgres)
        log = opened
    metadata = EventMetadata(occurred_at=datetime(2026, 1, 2, tzinfo=UTC))
    payload = RequestLogged(level="info", message=MESSAGE)
    for first in range(0, EVENTS, 1_000):
        events = tuple(new_event(f"e{first + i}", payload, metadata) for i in range(1_000))
        await log.append(AppendCommand((StreamAppend("request-r", events),)))
    yield log
    await log.close()


@asynccontextmanager
async def served(log: CountingStore) -> AsyncIterator["EventLogServiceAsyncStub"]:
    """The event log's service over a log, and a client of it."""
    reader = LogReader(log)
    unused = cast(Any, None)
    parts = EventLogParts(
        log=log,
        tail=unused,
        reader=reader,
        follower=LogFollower(reader),
        index=unused,
        inspection=unused,
        verifier=unused,
        behaviors=unused,
        behavior_projector=unused,
        projections=(),
    )
    service = Service.of(
        log_pb2.DESCRIPTOR,
        "EventLogService",
        log_pb2_grpc.add_EventLogServiceServicer_to_server,
        EventLogService(parts),
    )
    async with (
        asyncio.timeout(60),
        Server("127.0.0.1:0", [service], grace_s=0.1) as server,
        open_channel(server.address) as channel,
    ):
        yield log_pb2_grpc.EventLogServiceStub(channel)


async def test_a_slow_follower_holds_back_the_reading_and_misses_nothing(
    large_log: CountingStore,
) -> None:
    async with served(large_log) as stub:
        call = stub.SubscribeEvents(log_pb2.SubscribeEventsRequest())
        offsets: list[int] = []
        async with aclosing(cast(Any, aiter(call))) as told:
            async for response in told:
                if not response.HasField("entry"):
                    continue
                offsets.append(response.entry.event.offset)
                if len(offsets) == 1:
                    assert await settled(large_log) < READ_AHEAD_MAX
                if len(offsets) == EVENTS:
                    break
        call.cancel()
    assert offsets == list(range(1, EVENTS + 1))


async def test_a_follower_that_leaves_in_the_middle_is_no_error(
    large_log: CountingStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(large_log) as stub:
        call = stub.SubscribeEvents(log_pb2.SubscribeEventsRequest())
        await call.read()
        assert await settled(large_log) < READ_AHEAD_MAX
        call.cancel()
        # It has left its place once it is told so.
        await settled(large_log)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def settled(log: CountingStore) -> int:
    """How many events were read once nothing moves any more."""
    while True:
        before = log.events_read
        await asyncio.sleep(0.3)
        if log.events_read == before:
            return before
