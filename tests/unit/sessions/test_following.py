"""Which events are worth a look into the log."""

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from fastvideo.events.store import EventLog
from fastvideo.events.types import Event, EventMetadata, EventPayload
from fastvideo.requests.events import RequestAccepted, RequestCompleted, RequestDeleted
from fastvideo.requests.types import RequestMetrics
from fastvideo_sessions.book import SessionBook
from fastvideo_sessions.following import RequestFollower
from tests.unit.scheduling.world import request

AT = datetime(2026, 1, 1, tzinfo=UTC)


class Looked(Exception):
    """Somebody read the log."""


class WatchedLog:
    async def read_stream(self, *_: object) -> None:
        raise Looked


def event(payload: EventPayload, **about: Any) -> Event:
    metadata = EventMetadata(occurred_at=AT, **about)
    return Event(stream_id="request-r1", metadata=metadata, recorded_at=AT, payload=payload)


def follower() -> RequestFollower:
    return RequestFollower(cast(EventLog, WatchedLog()), cast(SessionBook, None))


@pytest.mark.parametrize(
    "told",
    [
        event(RequestAccepted(spec=request("r1"))),
        event(RequestCompleted(metrics=RequestMetrics()), program_id="p"),
        event(RequestDeleted(), program_id="p"),
    ],
)
async def test_what_is_of_no_session_is_passed_over_unread(told: Event) -> None:
    assert await follower().handle(told) is None


@pytest.mark.parametrize(
    "told",
    [
        event(RequestCompleted(metrics=RequestMetrics()), program_id="p", session_id="s1"),
        # Who wrote this knew nothing of its request.
        event(RequestCompleted(metrics=RequestMetrics())),
    ],
)
async def test_what_may_be_of_a_session_is_read(told: Event) -> None:
    with pytest.raises(Looked):
        await follower().handle(told)
