"""Where folding begins when no saved term can be read: the last leader that began anew.

From there the shard's stream holds every input and decision, so a saved term is only a shorter
way to the same core, and a program that folds otherwise than the one before can do without.
"""

from typing import Final

from fastvideo.events.store import EventLog
from fastvideo.replay.terms import TermBegun, begun_anew

# Events of the shard's stream, and of the whole log, that a new leader reads to spare live
# requests their second beginning; while it reads, nobody leads.
STREAM_EVENTS_MAX: Final = 100_000
LOG_EVENTS_MAX: Final = 300_000


async def last_begun_anew(log: EventLog, stream: str) -> TermBegun | None:
    """The last term that began anew; None when there is none, or it is too far back to fold."""
    if sum((await log.heads()).values()) > LOG_EVENTS_MAX:
        return None
    end = await log.stream_version(stream)
    return await begun_anew(log, stream, end, floor=end - STREAM_EVENTS_MAX)
