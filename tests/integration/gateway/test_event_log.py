"""EventLogService over real Postgres: read, follow, measure and verify the log."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from fastvideo.api.events.v1 import log_pb2, log_pb2_grpc
from fastvideo.requests.events import RequestProgressed, RequestStarted
from fastvideo.rpc.channel import open_channel
from fastvideo.scheduling.events import BatchExecuted
from fastvideo.scheduling.work import LoopRef, StepRange, StepResult, UnitKind
from tests.integration.gateway.worlds import World

if TYPE_CHECKING:
    from fastvideo.api.events.v1.log_pb2_grpc import EventLogServiceAsyncStub


@pytest.fixture
async def log(world: World) -> "AsyncIterator[EventLogServiceAsyncStub]":
    """A client of the event log's service."""
    async with open_channel(world.gateway.address) as channel:
        yield log_pb2_grpc.EventLogServiceStub(channel)


def shared_batch(worker_id: str, *request_ids: str) -> BatchExecuted:
    """A batch that units of several requests ran in."""
    return BatchExecuted(
        worker_id=worker_id,
        batch_id="b1",
        kind=UnitKind.DIFFUSION_STEP,
        results=tuple(
            StepResult(
                unit_id=f"{request_id}-1",
                loop=LoopRef(request_id=request_id, node_id="denoise", attempt=1),
                step_range=StepRange(start=0, stop=1, total=4),
            )
            for request_id in request_ids
        ),
    )


def names(entries: Any) -> list[str]:
    return [entry.event.name for entry in entries]


async def test_a_request_is_found_with_the_batches_that_it_shared(
    world: World, log: "EventLogServiceAsyncStub"
) -> None:
    first, second = await world.submit(), await world.submit()
    await world.append("scheduler-0", shared_batch("w0", first, second))
    await world.append("scheduler-0", shared_batch("w1", second))
    await world.schedule(first, RequestStarted(attempt=1))

    wanted = log_pb2.EventFilter(request_ids=[first])
    page = await log.ReadLog(log_pb2.ReadLogRequest(filter=wanted))
    assert names(page.entries) == ["request.accepted", "trace.step", "request.started"]
    assert page.complete

    backwards = await log.ReadLog(log_pb2.ReadLogRequest(filter=wanted, newest_first=True))
    assert names(backwards.entries) == ["request.started", "trace.step", "request.accepted"]

    of_worker = log_pb2.EventFilter(worker_ids=["w1"], types=["trace.*"])
    page = await log.ReadLog(log_pb2.ReadLogRequest(filter=of_worker))
    assert [entry.event.batch_executed.worker_id for entry in page.entries] == ["w1"]


async def test_a_stream_is_read_page_by_page(world: World, log: "EventLogServiceAsyncStub") -> None:
    request_id = await world.submit()
    await world.schedule(request_id, *(RequestProgressed(fraction=i / 9) for i in range(9)))
    seen: list[int] = []
    while True:
        page = await log.ReadStream(
            log_pb2.ReadStreamRequest(
                stream_id=f"request-{request_id}", after_version=len(seen), page_size=4
            )
        )
        seen += [entry.event.stream_version for entry in page.entries]
        if seen[-1] == page.stream_version:
            break
    assert seen == list(range(1, 11))


async def test_a_subscription_tells_what_was_and_what_comes(
    world: World, log: "EventLogServiceAsyncStub"
) -> None:
    request_id = await world.submit()
    wanted = log_pb2.EventFilter(request_ids=[request_id])
    call = log.SubscribeEvents(log_pb2.SubscribeEventsRequest(filter=wanted))
    async with asyncio.timeout(30), aclosing(aiter(call)) as told:  # type: ignore[type-var]
        assert await next_entry(told) == "request.accepted"
        await world.submit()
        await world.schedule(request_id, RequestStarted(attempt=1))
        assert await next_entry(told) == "request.started"
    call.cancel()


async def next_entry(told: Any) -> str:
    async for response in told:
        if response.HasField("entry"):
            return str(response.entry.event.name)
    raise AssertionError("the subscription ended")


async def test_a_wrong_question_names_its_field(log: "EventLogServiceAsyncStub") -> None:
    misspelt = log_pb2.EventFilter(types=["request.acepted"])
    unprintable = log_pb2.EventFilter(request_ids=["a\n"])
    wrong = {
        "filter.types": log_pb2.ReadLogRequest(filter=misspelt),
        "after[0]": log_pb2.ReadLogRequest(after={0: 99}),
        "after": log_pb2.ReadLogRequest(after={7: 0}),
        "page_size": log_pb2.ReadLogRequest(page_size=1001),
        "filter.request_ids[0]": log_pb2.ReadLogRequest(filter=unprintable),
    }
    for field, request in wrong.items():
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await log.ReadLog(request)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert field in str(caught.value.details())


async def test_stats_count_by_type(world: World, log: "EventLogServiceAsyncStub") -> None:
    request_id = await world.submit()
    await world.schedule(request_id, RequestStarted(attempt=1), RequestProgressed(fraction=0.5))
    stats = await log.GetLogStats(log_pb2.GetLogStatsRequest())
    assert (stats.events, dict(stats.heads)) == (3, {0: 3})
    assert {(count.name, count.events) for count in stats.types} == {
        ("request.accepted", 1),
        ("request.started", 1),
        ("request.progress", 1),
    }
    assert "event_index" in stats.projection_lag


async def test_an_intact_log_verifies(world: World, log: "EventLogServiceAsyncStub") -> None:
    await world.submit()
    told = [progress async for progress in log.VerifyLog(log_pb2.VerifyLogRequest())]
    assert told[-1].complete
    assert told[-1].events_checked == told[-1].events_total == 1
    assert not [fault for progress in told for fault in progress.faults]
