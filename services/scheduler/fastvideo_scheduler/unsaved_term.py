"""Where folding begins when no saved term can be read: the last leader that began anew.

From there the shard's stream holds every input and decision, so a saved term is only a shorter
way to the same core, and a program that folds otherwise than the one before can do without.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fastvideo.events.catalog import payload_of
from fastvideo.events.store import EventLog
from fastvideo.scheduling.events import LeaderElected

READ_MAX: Final = 1_000
# Events of the shard's stream, and of the whole log, that a new leader reads to spare live
# requests their second beginning; while it reads, nobody leads.
STREAM_EVENTS_MAX: Final = 100_000
LOG_EVENTS_MAX: Final = 300_000


@dataclass(frozen=True, slots=True)
class TermBegun:
    """A term that knew nothing of those before it."""

    # Of the stream, before the election.
    version: int
    # Before it, requests went on as the log tells; the term took them in from there.
    at: datetime


async def last_begun_anew(log: EventLog, stream: str) -> TermBegun | None:
    """The last term that began anew; None when there is none, or it is too far back to fold."""
    if sum((await log.heads()).values()) > LOG_EVENTS_MAX:
        return None
    end = await log.stream_version(stream)
    floor = max(0, end - STREAM_EVENTS_MAX)
    while end > floor:
        begin = max(floor, end - READ_MAX)
        for stored in reversed(await log.read_stream(stream, begin, end - begin)):
            if stored.type == LeaderElected.__name__:
                payload = payload_of(stored)
                if isinstance(payload, LeaderElected) and payload.anew:
                    return TermBegun(stored.stream_version - 1, stored.recorded_at)
        end = begin
    return None
