"""Where in a stream a moment is, found without reading the stream."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Final

from fastvideo.events.records import StoredEvent
from fastvideo.events.store import EventLog

EVENTS_PER_READ: Final = 500


async def pages_after(
    log: EventLog, stream_id: str, version: int
) -> AsyncIterator[tuple[StoredEvent, ...]]:
    """A stream after a version, page by page, up to the end that it has by then."""
    while True:
        page = await log.read_stream(stream_id, version, EVENTS_PER_READ)
        if page:
            yield page
        if len(page) < EVENTS_PER_READ:
            return
        version = page[-1].stream_version


async def pages_before(
    log: EventLog, stream_id: str, version: int
) -> AsyncIterator[tuple[StoredEvent, ...]]:
    """A stream up to a version, the newest page first; within a page the oldest event."""
    while version > 0:
        begin = max(0, version - EVENTS_PER_READ)
        yield await log.read_stream(stream_id, begin, version - begin)
        version = begin


async def version_before(log: EventLog, stream_id: str, moment: datetime) -> int:
    """The version of a stream's last event that was recorded before a moment; 0 when none was.

    Times of recording rise within a stream, so it takes about as many reads of one event as the
    version has binary digits. Where the database's clock was once set back it finds one of the
    places that fit.
    """
    before, after = 0, await log.stream_version(stream_id) + 1
    while after - before > 1:
        middle = (before + after) // 2
        (stored,) = await log.read_stream(stream_id, middle - 1, 1)
        if stored.recorded_at < moment:
            before = middle
        else:
            after = middle
    return before
