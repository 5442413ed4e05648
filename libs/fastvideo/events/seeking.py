"""Where in a stream a moment is, found without reading the stream."""

from datetime import datetime

from fastvideo.events.store import EventLog


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
