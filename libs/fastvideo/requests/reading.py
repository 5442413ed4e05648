"""A request read from the log: the truth, at the moment of reading."""

from collections.abc import AsyncIterator
from typing import Final

from fastvideo.events.catalog import event_of
from fastvideo.events.records import StoredEvent
from fastvideo.events.store import EventLog
from fastvideo.requests.state import evolve, stream_of
from fastvideo.requests.types import RequestState

EVENTS_PER_READ: Final = 500


async def read_events(
    log: EventLog, request_id: str, after_sequence: int = 0
) -> AsyncIterator[StoredEvent]:
    """The request's events after a sequence number, up to the end that the stream has now."""
    while True:
        page = await log.read_stream(stream_of(request_id), after_sequence, EVENTS_PER_READ)
        for stored in page:
            yield stored
        if len(page) < EVENTS_PER_READ:
            return
        after_sequence = page[-1].stream_version


async def read_request(log: EventLog, request_id: str) -> RequestState | None:
    """The request as it stands; None when there is none with this id."""
    state: RequestState | None = None
    async for stored in read_events(log, request_id):
        state = evolve(state, event_of(stored))
    return state
