"""The span of a shard's stream in which a request lived, read page by page and no further.

The span begins shortly before the request was accepted and ends shortly after it ended, so that
what a reader pays grows with what happened meanwhile and not with the log.
"""

import asyncio
from collections.abc import AsyncGenerator
from datetime import datetime, timedelta
from typing import ClassVar, Final

from fastvideo.errors import FailedPrecondition
from fastvideo.events.records import StoredEvent
from fastvideo.events.seeking import pages_after, version_before
from fastvideo.events.store import EventLog

LEAD_IN: Final = timedelta(seconds=1)
"""Clocks of the log and of its writers may differ by so much, and what was under way when the
request came is known by then."""

LEAD_OUT: Final = timedelta(seconds=10)
"""Later than this after its end the shard says nothing of a request."""


class SpanTooLong(FailedPrecondition):
    """A span has more events than are read."""

    default_reason: ClassVar[str] = "RUN_TOO_LONG"


async def span_pages(
    log: EventLog,
    stream_id: str,
    accepted_at: datetime,
    ended_at: datetime | None,
    events_max: int,
) -> AsyncGenerator[tuple[StoredEvent, ...], None]:
    """A stream between two moments of recording, page by page; an end of None is now.

    Between pages others get their turn. Raises SpanTooLong after the first `events_max` events
    when there are more.
    """
    version = await version_before(log, stream_id, accepted_at - LEAD_IN)
    left = events_max
    async for page in pages_after(log, stream_id, version):
        inside = page
        if ended_at is not None and page[-1].recorded_at > ended_at + LEAD_OUT:
            inside = tuple(one for one in page if one.recorded_at <= ended_at + LEAD_OUT)
        if inside[:left]:
            yield inside[:left]
        if len(inside) > left:
            raise SpanTooLong(
                f"the scheduler recorded more than {events_max} events in the time of the request",
                subject=stream_id,
                attributes={"events_max": str(events_max)},
            )
        if len(inside) < len(page):
            return
        left -= len(page)
        await asyncio.sleep(0)
