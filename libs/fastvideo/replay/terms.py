"""The terms of a shard's leaders: where one began of which nothing before is part."""

from dataclasses import dataclass

from fastvideo.events.catalog import payload_of
from fastvideo.events.seeking import pages_before
from fastvideo.events.store import EventLog
from fastvideo.scheduling.events import LeaderElected


@dataclass(frozen=True, slots=True)
class TermBegun:
    """A term that knew nothing of those before it."""

    # Of the stream, before the election.
    version: int
    # Under earlier ones requests went on as the log tells; the term took them in from there.
    epoch: int


async def begun_anew(log: EventLog, stream: str, version: int, floor: int = 0) -> TermBegun | None:
    """The newest term up to a version that began anew; None when there is none after `floor`.

    From there the shard's stream holds every input and decision of the core.
    """
    async for page in pages_before(log, stream, version):
        for stored in reversed(page):
            if stored.stream_version > floor and stored.type == LeaderElected.__name__:
                payload = payload_of(stored)
                if isinstance(payload, LeaderElected) and payload.anew:
                    return TermBegun(stored.stream_version - 1, payload.epoch)
        if page and page[0].stream_version <= floor:
            return None
    return None
