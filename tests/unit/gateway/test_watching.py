"""The hub between the log and its watchers."""

import asyncio
from datetime import UTC, datetime

import pytest

from fastvideo.errors import InvalidField, NotFound
from fastvideo.events.catalog import new_event
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.records import AppendCommand, AppendResult, StreamAppend
from fastvideo.events.types import EventMetadata, EventPayload
from fastvideo.events.wakeups import LocalWakeups
from fastvideo.ids import new_id
from fastvideo.requests.events import RequestAccepted, RequestCompleted, RequestStarted
from fastvideo.requests.state import stream_of
from fastvideo.requests.types import (
    OutputSpec,
    RequestKind,
    RequestMetrics,
    RequestSpec,
    SamplingParams,
)
from fastvideo_gateway.watching import WatchHub
from tests.plugins.waiting import running

ACCEPTED = RequestAccepted(
    spec=RequestSpec(
        request_id="r",
        kind=RequestKind.GENERATION,
        sampling=SamplingParams(),
        outputs=OutputSpec(),
        tenant_id="t",
    )
)
STARTED = RequestStarted(attempt=1)
DONE = RequestCompleted(metrics=RequestMetrics())


class CountingLog(MemoryEventStore):
    """Counts the reads of streams, and wakes its readers."""

    def __init__(self) -> None:
        super().__init__()
        self.wakeups = LocalWakeups()
        self.stream_reads = 0

    async def read_stream(self, stream_id: str, after_version: int = 0, limit: int = 1000):  # type: ignore[no-untyped-def]
        self.stream_reads += 1
        return await super().read_stream(stream_id, after_version, limit)

    async def write(self, *payloads: EventPayload, request_id: str = "r") -> AppendResult:
        metadata = EventMetadata(occurred_at=datetime(2026, 1, 1, tzinfo=UTC), tenant_id="t")
        events = tuple(new_event(new_id("evt", 0), payload, metadata) for payload in payloads)
        streams = (StreamAppend(stream_of(request_id), events),)
        result = await self.append(AppendCommand(streams=streams))
        await self.wakeups.notify([0])
        return result


@pytest.fixture
def log() -> CountingLog:
    return CountingLog()


async def settle() -> None:
    """Let everything that can run in this loop run until it waits."""
    for _ in range(50):
        await asyncio.sleep(0)


async def versions(hub: WatchHub, after: int = 0) -> list[int]:
    return [stored.stream_version async for stored in hub.watch("r", after, "t")]


async def test_live_events_come_from_the_hub_and_not_from_the_stream(log: CountingLog) -> None:
    hub = WatchHub(log, log.wakeups, safety_read_s=60.0)
    await log.write(ACCEPTED)
    async with asyncio.timeout(30), running(hub.run()):
        watch = hub.watch("r", 0, "t")
        assert (await anext(watch)).stream_version == 1
        live = asyncio.ensure_future(anext(watch))
        await settle()
        reads = log.stream_reads
        await log.write(STARTED)
        assert (await live).stream_version == 2
        await log.write(DONE)
        assert (await anext(watch)).stream_version == 3
        assert log.stream_reads == reads
        with pytest.raises(StopAsyncIteration):
            await anext(watch)
    assert hub.watcher_count == 0


async def test_a_watcher_that_falls_behind_its_buffer_reads_the_log(log: CountingLog) -> None:
    hub = WatchHub(log, log.wakeups, buffer_events_max=4, safety_read_s=60.0)
    await log.write(ACCEPTED)
    async with asyncio.timeout(30), running(hub.run()):
        watch = hub.watch("r", 0, "t")
        seen = [(await anext(watch)).stream_version]
        # It is handed far more than its buffer holds while it does not look.
        for _ in range(50):
            await log.write(STARTED)
            await asyncio.sleep(0)
        await log.write(DONE)
        seen += [stored.stream_version async for stored in watch]
    assert seen == list(range(1, 53))


async def test_without_the_hub_a_watch_still_ends(log: CountingLog) -> None:
    hub = WatchHub(log, None, safety_read_s=0.001)
    await log.write(ACCEPTED)
    async with asyncio.timeout(30):
        watch = asyncio.create_task(versions(hub))
        while hub.watcher_count == 0:
            await asyncio.sleep(0)
        await log.write(STARTED, DONE)
        assert await watch == [1, 2, 3]


async def test_what_comes_while_the_hub_starts_is_not_missed() -> None:
    class LateLog(CountingLog):
        async def heads(self):  # type: ignore[no-untyped-def]
            await self.write(STARTED)
            return await super().heads()

    log = LateLog()
    hub = WatchHub(log, log.wakeups, safety_read_s=60.0)
    await log.write(ACCEPTED)
    async with asyncio.timeout(30):
        watch = hub.watch("r", 0, "t")
        assert (await anext(watch)).stream_version == 1
        second = asyncio.ensure_future(anext(watch))
        await settle()
        async with running(hub.run()):
            assert (await second).stream_version == 2
        await watch.aclose()


async def test_a_watch_ends_at_the_terminal_event_whatever_follows(log: CountingLog) -> None:
    hub = WatchHub(log, None)
    await log.write(ACCEPTED, DONE, STARTED)
    assert await versions(hub) == [1, 2]
    assert await versions(hub, 1) == [2]
    assert await versions(hub, 2) == []
    assert await versions(hub, 3) == []


async def test_a_watch_of_what_is_not_there_is_refused(log: CountingLog) -> None:
    hub = WatchHub(log, None)
    with pytest.raises(NotFound):
        await versions(hub)
    await log.write(ACCEPTED)
    with pytest.raises(InvalidField, match="0 to 1"):
        await versions(hub, 2)
    with pytest.raises(NotFound):
        [_ async for _ in hub.watch("r", 0, "another tenant")]
    assert hub.watcher_count == 0


async def test_who_follows_everything_is_told_of_each_request_once() -> None:
    log = CountingLog()
    hub = WatchHub(log, log.wakeups)
    async with running(hub.run()):
        touched = hub.touched()
        first = asyncio.ensure_future(anext(touched))
        await asyncio.sleep(0)
        await log.write(ACCEPTED)
        async with asyncio.timeout(30):
            assert await first == ("r",)
        await log.write(STARTED, DONE)
        await log.write(STARTED, request_id="other")
        seen: set[str] = set()
        async with asyncio.timeout(30):
            while seen != {"r", "other"}:
                seen.update(await anext(touched))
        await touched.aclose()
