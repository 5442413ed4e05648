"""What a new leader finds in the log, and from where it must read."""

import itertools
from datetime import UTC, datetime

from fastvideo.events.catalog import new_event
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.records import AppendCommand, StreamAppend
from fastvideo.events.types import EventMetadata
from fastvideo.requests.events import (
    RequestAccepted,
    RequestCancelRequested,
    RequestCompleted,
    RequestProgressed,
    RequestStarted,
)
from fastvideo.requests.state import stream_of
from fastvideo.requests.types import RequestMetrics
from fastvideo.scheduling.work import CancelScope, CancelScopeKind
from fastvideo_scheduler.rebuild import LowWater, rebuild
from fastvideo_scheduler.recovery import acceptance_of
from tests.unit.scheduling.world import request

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def accepted(name):
    return RequestAccepted(spec=request(name))


NUMBERS = itertools.count(1)


async def write(store, name, *payloads):
    metadata = EventMetadata(occurred_at=NOW, traceparent=TRACE)
    for payload in payloads:
        event = new_event(f"evt_{next(NUMBERS)}", payload, metadata)
        await store.append(AppendCommand(streams=(StreamAppend(stream_of(name), (event,)),)))


async def test_only_requests_that_have_not_ended_are_found():
    store = MemoryEventStore(partition_count=4)
    scope = CancelScope(kind=CancelScopeKind.REQUEST, target_id="c")
    await write(store, "a", accepted("a"), RequestCompleted(metrics=RequestMetrics()))
    await write(
        store,
        "b",
        accepted("b"),
        RequestStarted(attempt=1),
        RequestProgressed(fraction=0.25),
        RequestStarted(attempt=2),
        RequestProgressed(fraction=0.5),
    )
    await write(store, "c", accepted("c"), RequestCancelRequested(scope=scope, reason="user"))
    found = await rebuild(store, {})
    records = {record.spec.request_id: record for record in found.live}
    assert sorted(records) == ["b", "c"]
    b, c = records["b"], records["c"]
    assert (b.attempts, b.progress, b.cancels) == (2, 0.5, ())
    assert b.started_at is not None
    assert b.traceparent == TRACE
    assert (c.attempts, c.started_at) == (0, None)
    ((_, asked),) = c.cancels
    assert (asked.scope, asked.reason) == (scope, "user")
    assert found.cursors == dict(await store.heads())


async def test_reading_from_the_marks_finds_the_same():
    store = MemoryEventStore(partition_count=2)
    for n in range(20):
        await write(store, f"r{n}", accepted(f"r{n}"))
        if n % 3:
            await write(store, f"r{n}", RequestCompleted(metrics=RequestMetrics()))
    everything = await rebuild(store, {})
    marks = LowWater(everything.cursors, map(acceptance_of, everything.live)).marks
    assert await rebuild(store, marks) == everything


def test_the_mark_stays_below_the_oldest_request_that_lives():
    water = LowWater({0: 0, 1: 5})
    assert water.marks == {0: 0, 1: 5}
    water.accepted("a", 0, 3)
    water.accepted("b", 0, 7)
    water.read(0, 9)
    assert water.marks == {0: 2, 1: 5}
    water.ended("a", 0)
    assert water.marks == {0: 6, 1: 5}
    water.ended("b", 0)
    assert water.marks == {0: 9, 1: 5}
