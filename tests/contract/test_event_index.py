"""The event index, in memory and on Postgres: it finds exactly what reading everything finds."""

import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fastvideo.events.catalog import new_event
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.reading.filters import EventFilter, Matcher
from fastvideo.events.reading.index import EventIndex, IndexQuery, MemoryEventIndex
from fastvideo.events.reading.index_postgres import PostgresEventIndex
from fastvideo.events.records import AppendCommand, NewEvent, StoredEvent, StreamAppend
from fastvideo.events.types import EventMetadata, EventPayload
from fastvideo.requests.events import RequestProgressed, RequestStarted
from fastvideo.scheduling.events import BatchExecuted, WorkerLost
from fastvideo.scheduling.work import LoopRef, StepRange, StepResult, UnitKind

START = datetime(2026, 1, 2, tzinfo=UTC)
EVENTS = 1_500


class MovingClock:
    """A second an event, and set back by an hour once in the middle."""

    def __init__(self) -> None:
        self.calls = 0

    def now(self) -> datetime:
        self.calls += 1
        back = timedelta(hours=1) if self.calls > EVENTS // 2 else timedelta(0)
        return START + timedelta(seconds=self.calls) - back

    def monotonic_s(self) -> float:
        return float(self.calls)


@pytest.fixture(params=["memory", "postgres"])
async def index(request: pytest.FixtureRequest) -> AsyncIterator[EventIndex]:
    if request.param == "memory":
        yield MemoryEventIndex()
        return
    opened = await PostgresEventIndex.open(request.getfixturevalue("postgres_dsn"), log_epoch=1)
    yield opened
    await opened.close()


def batch(worker_id: str, request_ids: list[str]) -> BatchExecuted:
    return BatchExecuted(
        worker_id=worker_id,
        batch_id="b",
        kind=UnitKind.DIFFUSION_STEP,
        results=tuple(
            StepResult(
                unit_id=f"{request_id}-1",
                loop=LoopRef(request_id=request_id, node_id="denoise", attempt=1),
                step_range=StepRange(start=0, stop=1, total=2),
            )
            for request_id in request_ids
        ),
    )


async def a_log(chance: random.Random) -> tuple[StoredEvent, ...]:
    """Requests that share batches, a worker that is lost, an event of the future, a broken one."""
    log = MemoryEventStore(clock=MovingClock())
    requests = [f"req_{i}" for i in range(12)]
    for number in range(EVENTS):
        payload: EventPayload
        stream_id = "scheduler-0"
        about: dict[str, Any] = {}
        match chance.randrange(20):
            case 0:
                payload = WorkerLost(worker_id=f"w{chance.randrange(3)}", incarnation="", reason="")
            case 1 | 2 | 3 | 4 | 5 | 6:
                mates = chance.sample(requests, chance.randrange(1, 5))
                payload = batch(f"w{chance.randrange(3)}", mates)
            case 7:
                payload = RequestStarted(attempt=1)
                stream_id = f"request-{chance.choice(requests)}"
            case _:
                payload = RequestProgressed(fraction=0.5)
                request_id = chance.choice(requests)
                stream_id = f"request-{request_id}"
                about = {"request_id": request_id, "model_id": f"m{number % 2}", "tenant_id": "t"}
        metadata = EventMetadata(occurred_at=START, **about)
        event = new_event(f"evt_{number}", payload, metadata)
        if number in (300, 700):
            event = NewEvent(event.event_id, "ThingHappened", 1, b"\x08\x01", event.metadata)
        if number == 900:
            event = NewEvent(event.event_id, "BatchExecuted", 1, b"\xff", event.metadata)
        await log.append(AppendCommand(streams=(StreamAppend(stream_id, (event,)),)))
    return await log.read_partition(0, 0, EVENTS)


def filters(chance: random.Random) -> list[EventFilter]:
    since = START + timedelta(seconds=400)
    return [
        EventFilter(),
        EventFilter(request_ids=("req_3",)),
        EventFilter(request_ids=("req_1", "req_7"), types=("trace.*",)),
        EventFilter(worker_ids=("w1",)),
        EventFilter(worker_ids=("w1",), request_ids=("req_2",)),
        EventFilter(model_ids=("m1",), tenant_ids=("t",)),
        EventFilter(types=("worker.lost",)),
        EventFilter(stream_ids=("request-req_5",)),
        EventFilter(request_ids=("req_of_nobody",)),
        EventFilter(since=since, until=since + timedelta(seconds=chance.randrange(5, 300))),
        EventFilter(since=since, worker_ids=("w2",)),
        EventFilter(until=START + timedelta(seconds=60), types=("request.*",)),
    ]


async def test_it_finds_what_reading_everything_finds(index: EventIndex) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - told when the test fails
    chance = random.Random(seed)
    events = await a_log(chance)
    position = 0
    while position < len(events):
        size = chance.choice((1, 3, 100, 400))
        await index.apply(events[max(0, position - 2) : position + size])
        position = min(len(events), position + size)
    for wanted in filters(chance):
        matcher = Matcher(wanted)
        expected = [stored.offset for stored in events if matcher.matches(stored)]
        for newest_first in (False, True):
            after, before = sorted(chance.sample(range(EVENTS + 2), 2))
            ranged = [offset for offset in expected if after < offset < before]
            if newest_first:
                ranged.reverse()
            offsets = await found(index, matcher, after, before, newest_first)
            # Blocks are coarser than moments: none is left out, some are out of time.
            kept = [o for o in offsets if matcher.matches(events[o - 1])]
            assert kept == ranged, wanted
            if wanted.since is None and wanted.until is None:
                assert kept == offsets, wanted


async def found(
    index: EventIndex, matcher: Matcher, after: int, before: int, newest_first: bool
) -> list[int]:
    """All offsets, by pages of 7."""
    offsets: list[int] = []
    while True:
        query = IndexQuery(
            partition=0,
            after=after,
            before=before,
            groups=matcher.groups,
            since=matcher.since,
            until=matcher.until,
            newest_first=newest_first,
            limit=7,
        )
        page = await index.find(query)
        offsets += page
        if len(page) < 7:
            break
        if newest_first:
            before = page[-1]
        else:
            after = page[-1]
    assert sorted(set(offsets), reverse=newest_first) == offsets
    return offsets
