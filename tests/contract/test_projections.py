"""The gateway's and the session service's indexes: one suite, in memory and on Postgres."""

import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fastvideo.errors import CorruptLog
from fastvideo.events.catalog import new_event
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.projections.projector import Projection
from fastvideo.events.records import AppendCommand, StoredEvent, StreamAppend
from fastvideo.events.types import EventMetadata, EventPayload
from fastvideo.requests import state as requests
from fastvideo.requests.events import RequestAccepted, RequestCompleted, RequestStarted
from fastvideo.requests.types import (
    OutputSpec,
    RequestKind,
    RequestMetrics,
    RequestSpec,
    RequestStatus,
    SamplingParams,
)
from fastvideo.rpc.paging import PagePosition
from fastvideo.scheduling.events import WorkerAttached, WorkerLost
from fastvideo.sessions import state as sessions
from fastvideo.sessions.events import SessionClosed, SessionCreated, SessionUpdated
from fastvideo.sessions.types import SessionState, SessionStatus
from fastvideo_gateway import index as gateway_index
from fastvideo_gateway.index_memory import MemoryIndex as MemoryRequests
from fastvideo_gateway.index_postgres import PostgresIndex as PostgresRequests
from fastvideo_sessions import index as session_index
from fastvideo_sessions.index_memory import MemoryIndex as MemorySessions
from fastvideo_sessions.index_postgres import PostgresIndex as PostgresSessions

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Writer:
    """A log in memory to project from; the time rises by a second an event."""

    def __init__(self) -> None:
        self.log = MemoryEventStore()
        self._count = 0
        self._ids = itertools.count()

    def turn_back(self) -> None:
        """Let the next event come at the first moment again."""
        self._count = 0

    async def write(self, stream_id: str, payload: EventPayload) -> None:
        self._count += 1
        metadata = EventMetadata(occurred_at=START + timedelta(seconds=self._count))
        event = new_event(f"evt_{next(self._ids)}", payload, metadata)
        await self.log.append(AppendCommand(streams=(StreamAppend(stream_id, (event,)),)))

    async def accept(self, request_id: str, tenant_id: str = "t", session_id: str = "") -> None:
        spec = RequestSpec(
            request_id=request_id,
            kind=RequestKind.GENERATION,
            sampling=SamplingParams(),
            outputs=OutputSpec(),
            tenant_id=tenant_id,
            session_id=session_id,
        )
        await self.write(requests.stream_of(request_id), RequestAccepted(spec=spec))

    async def start(self, request_id: str) -> None:
        await self.write(requests.stream_of(request_id), RequestStarted(attempt=1))

    async def complete(self, request_id: str) -> None:
        done = RequestCompleted(metrics=RequestMetrics())
        await self.write(requests.stream_of(request_id), done)

    async def open(self, session_id: str, timeout_s: int = 60) -> None:
        state = SessionState(
            session_id=session_id,
            tenant_id="t",
            status=SessionStatus.OPEN,
            inactivity_timeout_s=timeout_s,
            created_at=START + timedelta(seconds=self._count),
            last_active_at=START,
        )
        await self.write(sessions.stream_of(session_id), SessionCreated(state=state))

    async def events(self) -> tuple[StoredEvent, ...]:
        return await self.log.read_partition(0)


@pytest.fixture
def writer() -> Writer:
    return Writer()


@pytest.fixture(params=["memory", "postgres"])
async def request_index(
    request: pytest.FixtureRequest,
) -> AsyncIterator[gateway_index.RequestIndex]:
    if request.param == "memory":
        yield MemoryRequests()
        return
    index = await PostgresRequests.open(request.getfixturevalue("postgres_dsn"), log_epoch=1)
    yield index
    await index.close()


@pytest.fixture(params=["memory", "postgres"])
async def session_rows(
    request: pytest.FixtureRequest,
) -> AsyncIterator[session_index.SessionIndex]:
    if request.param == "memory":
        yield MemorySessions()
        return
    index = await PostgresSessions.open(request.getfixturevalue("postgres_dsn"), log_epoch=1)
    yield index
    await index.close()


async def listed(index: gateway_index.RequestIndex, **fields: Any) -> list[str]:
    query = gateway_index.ListQuery(**{"tenant_id": "t", "limit": 10, **fields})
    return [state.spec.request_id for state in await index.list_requests(query)]


async def test_requests_are_found_by_tenant_status_session_and_place(
    request_index: gateway_index.RequestIndex, writer: Writer
) -> None:
    await writer.accept("r1", session_id="s")
    await writer.accept("r2")
    await writer.accept("r3", tenant_id="other", session_id="s")
    await writer.accept("r4", session_id="s")
    await writer.start("r1")
    await writer.complete("r2")
    await request_index.apply(await writer.events())
    assert await listed(request_index) == ["r4", "r2", "r1"]
    assert await listed(request_index, tenant_id="other") == ["r3"]
    assert await listed(request_index, session_id="s") == ["r4", "r1"]
    running = frozenset({RequestStatus.RUNNING, RequestStatus.COMPLETED})
    assert await listed(request_index, statuses=running) == ["r2", "r1"]
    assert await listed(request_index, limit=1) == ["r4"]
    after = PagePosition(START + timedelta(seconds=4), "r4")
    assert await listed(request_index, after=after) == ["r2", "r1"]
    assert await listed(request_index, after=after, session_id="s", statuses=running) == ["r1"]


async def test_requests_accepted_in_one_moment_are_paged_by_id(
    request_index: gateway_index.RequestIndex, writer: Writer
) -> None:
    for request_id in ("b", "a", "c"):
        writer.turn_back()
        await writer.accept(request_id)
    await request_index.apply(await writer.events())
    assert await listed(request_index) == ["c", "b", "a"]
    after = PagePosition(START + timedelta(seconds=1), "b")
    assert await listed(request_index, after=after) == ["a"]


async def test_workers_come_and_go_by_incarnation(
    request_index: gateway_index.RequestIndex, writer: Writer
) -> None:
    await writer.write("worker-1", WorkerAttached(worker_id="1", incarnation="a"))
    await writer.write("worker-2", WorkerAttached(worker_id="2", incarnation="a"))
    await writer.write("worker-1", WorkerAttached(worker_id="1", incarnation="b"))
    await writer.write("worker-1", WorkerLost(worker_id="1", incarnation="a"))
    await writer.write("worker-2", WorkerLost(worker_id="2", incarnation="a"))
    await request_index.apply(await writer.events())
    (left,) = await request_index.attached_workers()
    assert (left.worker_id, left.incarnation) == ("1", "b")


async def test_a_request_that_does_not_fold_leaves_the_others_listed(
    request_index: gateway_index.RequestIndex, writer: Writer
) -> None:
    await writer.start("broken")
    await writer.accept("r1")
    await request_index.apply(await writer.events())
    assert await listed(request_index) == ["r1"]


async def test_a_request_goes_on_past_what_a_newer_program_wrote_and_its_end_is_an_end(
    request_index: gateway_index.RequestIndex, writer: Writer
) -> None:
    for name in ("r1", "r2", "r3"):
        await writer.accept(name)
        await writer.start(name)
        await writer.complete(name)
    unreadable: dict[tuple[str, int], dict[str, Any]] = {
        ("request-r1", 2): {"schema_version": 99},
        ("request-r2", 3): {"schema_version": 99},
        ("request-r3", 3): {"payload": b"\xff\xff"},
    }
    newer = [
        stored._replace(**unreadable.get((stored.stream_id, stored.stream_version), {}))
        for stored in await writer.events()
    ]
    await request_index.apply(newer)
    completed = frozenset({RequestStatus.COMPLETED})
    assert await listed(request_index, statuses=completed) == ["r3", "r2", "r1"]
    assert await request_index.under_way(9) == ()


async def test_sessions_are_found_by_time_and_by_expiry(
    session_rows: session_index.SessionIndex, writer: Writer
) -> None:
    for session_id, timeout_s in (("s1", 60), ("s2", 30), ("s3", 30), ("s4", 30)):
        await writer.open(session_id, timeout_s)
    began = SessionUpdated(session_id="s3", request_id="r", change=sessions.REQUEST_BEGAN)
    await writer.write(sessions.stream_of("s3"), began)
    await writer.write(sessions.stream_of("s4"), SessionClosed(session_id="s4", reason="closed"))
    await session_rows.apply(await writer.events())
    query = session_index.ListQuery(tenant_id="t", limit=3)
    found = await session_rows.list_sessions(query)
    assert [state.session_id for state in found] == ["s4", "s3", "s2"]
    after = PagePosition(found[-1].created_at, "s2")
    rest = await session_rows.list_sessions(replace(query, after=after))
    assert [state.session_id for state in rest] == ["s1"]
    # s3 runs a request and s4 is closed: neither can be quiet for too long.
    assert await session_rows.list_expired(START + timedelta(seconds=29), 10) == ()
    assert await session_rows.list_expired(START + timedelta(seconds=30), 10) == ("s2",)
    assert await session_rows.list_expired(START + timedelta(seconds=60), 10) == ("s2", "s1")
    assert await session_rows.list_expired(START + timedelta(seconds=60), 1) == ("s2",)


async def check_idempotent(index: Projection, events: tuple[StoredEvent, ...]) -> None:
    """Batches that overlap are taken in once, a gap not at all."""
    await index.apply(events[:2])
    await index.apply(events[:2])
    assert await index.positions() == {0: 2}
    with pytest.raises(CorruptLog, match="goes on at offset 4, not at 3"):
        await index.apply(events[3:])
    assert await index.positions() == {0: 2}
    await index.apply(events[1:])
    assert await index.positions() == {0: len(events)}
    await index.apply(())


async def test_the_request_index_takes_each_event_in_once(
    request_index: gateway_index.RequestIndex, writer: Writer
) -> None:
    await writer.accept("r")
    for _ in range(4):
        await writer.start("r")
    await check_idempotent(request_index, await writer.events())
    query = gateway_index.ListQuery(tenant_id="t", limit=1)
    (state,) = await request_index.list_requests(query)
    assert state.last_sequence == 5


async def test_the_session_index_takes_each_event_in_once(
    session_rows: session_index.SessionIndex, writer: Writer
) -> None:
    for i in range(5):
        await writer.open(f"s{i}")
    await check_idempotent(session_rows, await writer.events())


async def test_tables_of_another_layout_or_log_are_made_anew(
    postgres_dsn: str, writer: Writer
) -> None:
    await writer.accept("r")
    for log_epoch, kept in ((1, []), (1, ["r"]), (2, []), (2, ["r"])):
        index = await PostgresRequests.open(postgres_dsn, log_epoch)
        assert await listed(index) == kept
        await index.apply(await writer.events())
        await index.close()
