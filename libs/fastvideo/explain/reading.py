"""A request's history read from the log: its own stream, and its span of the shard's."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from fastvideo.events.catalog import event_of, metadata_of
from fastvideo.events.records import StoredEvent
from fastvideo.events.spans import SpanTooLong, span_pages
from fastvideo.events.store import EventLog
from fastvideo.explain.explanation import others
from fastvideo.explain.history import History
from fastvideo.explain.names import Names
from fastvideo.explain.narrowing import Sighting, narrow
from fastvideo.explain.totals import Timeline
from fastvideo.explain.types import ExplainedMark
from fastvideo.requests.events import RequestCancelRequested
from fastvideo.requests.reading import read_events
from fastvideo.requests.state import evolve, is_terminal, stream_of
from fastvideo.requests.types import RequestState
from fastvideo.scheduling.events import BatchExecuted
from fastvideo.scheduling.stream import shard_stream

# At some 10,000 a second, what a caller waits for.
EVENTS_MAX: Final = 100_000
# Requests whose tenant is looked up; others are counted and not named.
LOOKUPS_MAX: Final = 200


@dataclass(slots=True)
class RequestHistory:
    """What was read of a request."""

    state: RequestState
    history: History
    # Requests that are known to be of the same tenant.
    same_tenant: set[str] = field(default_factory=set)
    events_read: int = 0
    left_out: str = ""


async def read_history(
    log: EventLog, request_id: str, tenant_id: str, shard: str
) -> RequestHistory | None:
    """Read a request of a tenant; None when the tenant has none with this id."""
    state: RequestState | None = None
    first: StoredEvent | None = None
    ended_at: datetime | None = None
    marks: list[ExplainedMark] = []
    async for stored in read_events(log, request_id):
        first = first or stored
        event = event_of(stored)
        state = evolve(state, event)
        if is_terminal(state):
            ended_at = ended_at or stored.recorded_at
        if isinstance(event.payload, RequestCancelRequested):
            at, reason = event.metadata.occurred_at, event.payload.reason
            marks.append(ExplainedMark(at=at, name="cancel_requested", text=reason))
    if state is None or first is None or state.spec.tenant_id != tenant_id:
        return None
    history = History(request_id, state.accepted_at)
    history.course.marks.append(ExplainedMark(at=state.accepted_at, name="accepted", text=""))
    history.course.marks += marks
    read = RequestHistory(state, history)
    pages = span_pages(log, shard_stream(shard), first.recorded_at, ended_at, EVENTS_MAX)
    await _read_shard(read, pages)
    history.course.marks.sort(key=lambda mark: mark.at)
    return read


async def names_of(log: EventLog, read: RequestHistory, laid_out: Timeline) -> Names:
    """The requests that the history's explanation may name: those of the same tenant."""
    own = read.state.spec.request_id
    unknown = others(read.history, laid_out) - read.same_tenant
    for request_id in sorted(unknown)[:LOOKUPS_MAX]:
        accepted = await log.read_stream(stream_of(request_id), 0, 1)
        if accepted:
            metadata = metadata_of(accepted[0])
            if metadata.tenant_id == read.state.spec.tenant_id:
                read.same_tenant.add(request_id)
    return Names(frozenset(read.same_tenant | {own}))


async def _read_shard(read: RequestHistory, pages: AsyncIterator[tuple[StoredEvent, ...]]) -> None:
    """Take in the shard's events from the acceptance to the end, or to now."""
    try:
        async for page in pages:
            # In a thread, since others want to be answered meanwhile.
            await asyncio.to_thread(_take_page, read, page)
            if read.history.course.ended_at is not None:
                return
    except SpanTooLong:
        read.left_out = f"what came after the first {EVENTS_MAX} events of the scheduler"


def _take_page(read: RequestHistory, page: Sequence[StoredEvent]) -> None:
    """Take in some events, up to the one that says that the request has ended."""
    for stored in page:
        read.events_read += 1
        _take(read, stored)
        if read.history.course.ended_at is not None:
            return


def _take(read: RequestHistory, stored: StoredEvent) -> None:
    sighting = narrow(stored, read.state.spec.request_id)
    if sighting is None:
        return
    read.history.take(sighting.at, sighting.payload)
    if sighting.tenant_id and sighting.tenant_id == read.state.spec.tenant_id:
        read.same_tenant.update(_requests_in(sighting))


def _requests_in(sighting: Sighting) -> Collection[str]:
    """The requests of a batch. A decision's metadata may be those of what led to it alone."""
    if isinstance(sighting.payload, BatchExecuted):
        return [result.loop.request_id for result in sighting.payload.results]
    return ()
