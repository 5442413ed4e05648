"""ReplayService over gRPC: what it compares, what it refuses, and that it leaves no trace."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from fastvideo import wire
from fastvideo.client import AsyncClient
from fastvideo.errors import (
    FailedPrecondition,
    FastVideoError,
    InvalidField,
    NotFound,
    ResourceExhausted,
)
from fastvideo.ids import new_id
from fastvideo.replay.types import ReplayKind
from fastvideo.requests.events import RequestProgressed, RequestStarted
from fastvideo.requests.reading import read_request
from fastvideo.requests.types import RequestState
from fastvideo.scheduling.events import LeaderElected, QueueRequest, SchedulerDecided
from fastvideo.scheduling.stream import shard_stream
from fastvideo_gateway import replaying
from tests.integration.gateway.worlds import MODEL, World
from tests.plugins.waiting import eventually
from tests.spans import recorded_spans

SHARD = shard_stream("0")


async def told(world: World, kind: ReplayKind, subject: str = "", **options: Any) -> FastVideoError:
    """The error that a replay ends with."""
    async with AsyncClient(world.gateway.address) as client:
        with pytest.raises(FastVideoError) as caught:
            await client.replay(kind, subject, **options)
    return caught.value


async def running(world: World) -> str:
    """A request that has begun."""
    request_id = await world.submit()
    progressed = RequestProgressed(fraction=0.5, node_id="denoise", step=10, steps=20)
    await world.schedule(request_id, RequestStarted(attempt=1), progressed)
    return request_id


async def test_what_is_listed_is_the_fold_of_the_log(world: World) -> None:
    for _ in range(3):
        await running(world)
    before = await world.size()
    async with AsyncClient(world.gateway.address) as client:
        report = await client.replay(ReplayKind.STATE)
    assert report.equal
    assert report.compared == 3
    assert report.digests["requests"] == report.digests["requests served"]
    assert await world.size() == before, "a replay writes nothing"


async def test_a_row_that_is_not_the_fold_is_named_by_its_field(
    world: World, postgres_dsn: str
) -> None:
    request_id = await running(world)
    async with AsyncClient(world.gateway.address) as client:
        assert (await client.replay(ReplayKind.STATE, request_id)).equal
        await _forge(postgres_dsn, request_id)
        for subject in (request_id, ""):
            report = await client.replay(ReplayKind.STATE, subject)
            assert not report.equal
            assert report.first_divergence is not None
            assert report.first_divergence.subject == f"request {request_id}"
            assert report.first_divergence.detail.startswith("progress: ")
            assert (report.first_divergence.expected, report.first_divergence.found) == (
                "0.5",
                "0.75",
            )


async def _forge(dsn: str, request_id: str) -> None:
    """Change a row behind everybody's back."""
    connection = await asyncpg.connect(dsn)
    try:
        schema = await connection.fetchval(
            "SELECT table_schema FROM information_schema.tables"
            " WHERE table_name = 'requests' AND table_schema LIKE 'gateway%'"
        )
        table = f'"{schema}".requests'
        row = await connection.fetchval(
            f"SELECT state FROM {table} WHERE request_id = $1",
            request_id,
        )
        state = wire.to_proto(wire.decode(RequestState, row))
        state.progress = 0.75
        await connection.execute(
            f"UPDATE {table} SET state = $2 WHERE request_id = $1",
            request_id,
            state.SerializeToString(deterministic=True),
        )
    finally:
        await connection.close()


async def test_up_to_an_offset_the_state_of_then_is_shown(world: World) -> None:
    request_id = await running(world)
    (accepted,) = await world.log.read_stream(f"request-{request_id}", 0, 1)
    until: Mapping[int, int] = {accepted.partition: accepted.offset}
    async with AsyncClient(world.gateway.address) as client:
        report = await client.replay(ReplayKind.STATE, request_id, until=until)
        assert report.equal
        assert '"status": "REQUEST_STATUS_ACCEPTED"' in report.comparisons[0].detail
        everything = await client.replay(ReplayKind.STATE, until=until)
        assert everything.headline == "1 requests as the log had them"
    none: Mapping[int, int] = {accepted.partition: accepted.offset - 1}
    if accepted.offset > 1:
        assert isinstance(await told(world, ReplayKind.STATE, request_id, until=none), NotFound)
    beyond = await told(world, ReplayKind.STATE, request_id, until={0: 10**9})
    assert isinstance(beyond, InvalidField)


async def test_a_difference_of_decisions_is_named(world: World) -> None:
    """A log that claims a decision which no scheduler would make."""
    at = datetime.now(UTC)
    elected = LeaderElected(scheduler_id="s", epoch=1, anew=True)
    await world.append(SHARD, elected, SchedulerDecided(input_event_id="e", at=at, epoch=1))
    forged = SchedulerDecided(at=at, epoch=1, decisions=(QueueRequest(request_id="req_none"),))
    await world.append(SHARD, forged)
    async with AsyncClient(world.gateway.address) as client:
        report = await client.replay("decision")
    assert not report.equal
    assert report.compared == 2
    assert report.first_divergence is not None
    assert report.first_divergence.subject == "decision 2"
    assert "QueueRequest" in report.first_divergence.expected
    assert report.promise.kind == "none", "the leader did not say its policy"


async def test_unknown_subjects_and_senseless_requests_are_refused(world: World) -> None:
    nobody = new_id("req", 0)
    for kind in ReplayKind:
        if kind is not ReplayKind.BEHAVIOR:
            assert isinstance(await told(world, kind, nobody), NotFound)
    assert isinstance(await told(world, ReplayKind.EXECUTION), InvalidField)
    request_id = await world.submit()
    wrong = await told(world, ReplayKind.EXECUTION, request_id, policy="batch_units_max: 1")
    assert isinstance(wrong, InvalidField)
    unreadable = await told(world, ReplayKind.DECISION, policy="no_such_knob: 1")
    assert "no_such_knob" in unreadable.message


async def test_without_a_worker_that_has_the_model_a_run_says_so(world: World) -> None:
    request_id = await running(world)
    error = await told(world, ReplayKind.EXECUTION, request_id)
    assert isinstance(error, FailedPrecondition)
    assert error.reason == "NO_WORKER"
    assert MODEL in error.message
    async with AsyncClient(world.gateway.address) as client:
        run = await client.logged_run(request_id)
    assert run.spec.request_id == request_id
    assert run.steps == ()


@asynccontextmanager
async def places_taken(
    monkeypatch: pytest.MonkeyPatch, name: str, count: int, call: Callable[[], Awaitable[object]]
) -> AsyncIterator[None]:
    """So many callers at once, who wait for what never ends, until they leave."""
    begun = 0

    async def endless(*_: object) -> None:
        nonlocal begun
        begun += 1
        await asyncio.Event().wait()

    async def all_taken() -> bool:
        return begun == count

    with monkeypatch.context() as patched:
        patched.setattr(replaying, name, endless)
        calls = [asyncio.ensure_future(call()) for _ in range(count)]
        await eventually(all_taken)
    yield
    for one in calls:
        one.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def test_more_replays_than_a_gateway_runs_are_refused_until_a_caller_leaves(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_id = await running(world)
    async with AsyncClient(world.gateway.address) as client:

        async def has_room() -> bool:
            try:
                return (await client.replay(ReplayKind.STATE, request_id)).equal
            except ResourceExhausted:
                return False

        async with places_taken(
            monkeypatch,
            "replay_states",
            replaying.AT_ONCE_MAX,
            lambda: client.replay(ReplayKind.STATE),
        ):
            assert not await has_room()
        await eventually(has_room)


async def test_more_runs_than_a_gateway_reads_are_refused_until_a_caller_leaves(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_id = await running(world)
    async with AsyncClient(world.gateway.address) as client:

        async def has_room() -> bool:
            try:
                return (await client.logged_run(request_id)).spec.request_id == request_id
            except ResourceExhausted:
                return False

        async with places_taken(
            monkeypatch,
            "read_logged_run",
            replaying.READ_AT_ONCE_MAX,
            lambda: client.logged_run(request_id),
        ):
            assert not await has_room()
            error = await told(world, ReplayKind.EXECUTION, request_id)
            assert isinstance(error, ResourceExhausted)
        await eventually(has_room)


async def test_the_span_of_a_replay_links_to_the_trace_of_the_original(world: World) -> None:
    with recorded_spans() as spans:
        request_id = await running(world)
        state = await read_request(world.log, request_id)
        assert state is not None
        async with AsyncClient(world.gateway.address) as client:
            report = await client.replay(ReplayKind.STATE, request_id)
        original = report.original_traceparent.split("-")[1]
        (span,) = [span for span in spans.get_finished_spans() if span.name == "replay state"]
    assert [f"{link.context.trace_id:032x}" for link in span.links] == [original]
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" != original
