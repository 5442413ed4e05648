"""Following the log: what a filter lets through, from given positions on and then as it comes.

Nothing is kept for a slow follower: the next events are read when it asks for them. What lies
behind is found as pages are; what comes is read in batches of bounded size.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Final

from fastvideo.errors import ResourceExhausted
from fastvideo.events.reading.entries import FoundEvent
from fastvideo.events.reading.filters import EventFilter, Matcher
from fastvideo.events.reading.reader import ALL, LogReader, checked_positions
from fastvideo.events.records import DamagedEvent, StoredEvent
from fastvideo.events.store import EventLog
from fastvideo.events.subscription import LogSubscription, PollLimits
from fastvideo.events.wakeups import Wakeups

HEARTBEAT_S: Final = 5.0
FOLLOWERS_MAX: Final = 64
_PAGE: Final = 200


@dataclass(frozen=True, slots=True)
class Told:
    """An event, or none in a heartbeat; and what was looked at since the last."""

    entry: FoundEvent | None
    # By partition that moved: everything up to here was told or was not wanted.
    position: Mapping[int, int]


class LogFollower:
    """Hands the log out as it grows, to a bounded number of followers."""

    def __init__(
        self,
        reader: LogReader,
        wakeups: Wakeups | None = None,
        limits: PollLimits | None = None,
        *,
        tail: EventLog | None = None,
        heartbeat_s: float = HEARTBEAT_S,
        followers_max: int = FOLLOWERS_MAX,
    ) -> None:
        self._reader = reader
        # Where what comes is read.
        self._tail = tail or reader.log
        self._wakeups = wakeups
        self._limits = replace(limits or PollLimits(), events_per_read_max=_PAGE)
        self._heartbeat_s = heartbeat_s
        self._followers_max = followers_max
        self._followers = 0

    async def follow(
        self,
        wanted: EventFilter = ALL,
        *,
        after: Mapping[int, int] | None = None,
        from_end: bool = False,
    ) -> AsyncGenerator[Told, None]:
        """Tell from positions on, or from the end; for ever, until the caller closes it.

        The first thing told is a heartbeat with where it begins; others follow when nothing was
        told for some seconds. Raises InvalidField for a filter or position that cannot be,
        ResourceExhausted while too many follow, and CorruptLog when the log has a gap.
        """
        matcher = Matcher(wanted)
        with self._place():
            heads = await self._reader.log.heads()
            begins = checked_positions(after or {}, heads)
            positions = {p: head if from_end else begins.get(p, 0) for p, head in heads.items()}
            yield Told(None, dict(positions))
            while True:
                # What lies behind; and, after a broken event, the stretch that it stands in.
                async with aclosing(self._catch_up(wanted, positions)) as behind:
                    async for told in behind:
                        positions.update(told.position)
                        yield told
                try:
                    async with aclosing(self._live(matcher, positions)) as coming:
                        async for told in coming:
                            positions.update(told.position)
                            yield told
                except DamagedEvent:
                    continue

    async def _catch_up(
        self, wanted: EventFilter, positions: Mapping[int, int]
    ) -> AsyncGenerator[Told, None]:
        after = dict(positions)
        while True:
            page = await self._reader.read_log(wanted, after=after, page_size=_PAGE)
            for found in page.entries:
                yield Told(found, {found.partition: found.offset})
            after = dict(page.next_after)
            yield Told(None, after)
            if page.complete:
                return

    async def _live(
        self, matcher: Matcher, positions: Mapping[int, int]
    ) -> AsyncGenerator[Told, None]:
        subscription = LogSubscription(self._tail, positions, self._wakeups, self._limits)
        looked_to: dict[int, int] = {}
        async with _batches(subscription, self._heartbeat_s) as batches:
            async for batch in batches:
                for stored in batch:
                    looked_to[stored.partition] = stored.offset
                    if matcher.matches(stored):
                        yield Told(stored, dict(looked_to))
                        looked_to.clear()
                if not batch:
                    yield Told(None, dict(looked_to))
                    looked_to.clear()

    @contextmanager
    def _place(self) -> Iterator[None]:
        if self._followers >= self._followers_max:
            raise ResourceExhausted(
                f"{self._followers} callers follow the log already", subject="subscriptions"
            )
        self._followers += 1
        try:
            yield
        finally:
            self._followers -= 1


@asynccontextmanager
async def _batches(
    subscription: LogSubscription, silence_s_max: float
) -> AsyncIterator[AsyncIterator[tuple[StoredEvent, ...]]]:
    """The subscription's batches, each read when it is asked for; an empty one after a silence."""
    pending: asyncio.Task[tuple[StoredEvent, ...]] | None = None

    async def batches() -> AsyncIterator[tuple[StoredEvent, ...]]:
        nonlocal pending
        while True:
            if pending is None:
                pending = asyncio.create_task(subscription.next_batch(), name="follow")
            done, _ = await asyncio.wait({pending}, timeout=silence_s_max)
            if not done:
                yield ()
                continue
            reading, pending = pending, None
            yield reading.result()

    try:
        yield batches()
    finally:
        if pending is not None:
            pending.cancel()
            await asyncio.gather(pending, return_exceptions=True)
