"""Keeps a projection up to date with the log."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from fastvideo.errors import CorruptLog, Unavailable
from fastvideo.events.records import StoredEvent
from fastvideo.events.store import EventLog
from fastvideo.events.subscription import LogSubscription, PollLimits
from fastvideo.events.wakeups import Wakeups
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)

RETRY_S: Final = 0.2
GATHER_S: Final = 0.25
"""How long events gather for the next transaction, as long as nobody waits for them."""
AT_EASE_S: Final = 1.0
"""The same, of rows that nobody reads but after waiting for them."""


class Projection(Protocol):
    """Rows that are made of the log and know how far they have come."""

    async def positions(self) -> Mapping[int, int]:
        """The offset of the last event taken in, by partition."""
        ...

    async def apply(self, events: Sequence[StoredEvent]) -> None:
        """Take in events of one partition; those that were taken in before are passed over.

        The change and the new position are one transaction. Raises CorruptLog when an event
        between the position and the first one is missing.
        """
        ...


def fresh_events(events: Sequence[StoredEvent], position: int) -> Sequence[StoredEvent]:
    """The events after a position. Raises CorruptLog when they do not follow it at once."""
    fresh = [stored for stored in events if stored.offset > position]
    if fresh and fresh[0].offset != position + 1:
        raise CorruptLog(
            f"partition {fresh[0].partition} goes on at offset {fresh[0].offset}, "
            f"not at {position + 1}",
            reason="OFFSET_GAP",
        )
    return fresh


class Projector:
    """Reads the log from where the projection stands and hands it over, batch by batch.

    Several processes may project into the same rows: each passes over what another took in.
    Until it has come to where the log was when it began, the rows may lack anything, and whoever
    asks whether they are fresh is told so; from then on rows that are behind are only old.
    """

    def __init__(
        self,
        log: EventLog,
        projection: Projection,
        wakeups: Wakeups | None = None,
        limits: PollLimits | None = None,
        *,
        gather_s: float = GATHER_S,
    ) -> None:
        self._log = log
        self._projection = projection
        self._wakeups = wakeups
        self._limits = limits
        self._gather_s = gather_s
        self._positions: dict[int, int] = {}
        self._moved = asyncio.Condition()
        self._filled = False
        # How many wait until the projection has come somewhere, and that one began to.
        self._waiting = 0
        self._awaited = asyncio.Event()

    @property
    def positions(self) -> Mapping[int, int]:
        """The offset of the last event that was taken in, by partition, as far as is known here."""
        return dict(self._positions)

    async def reached(self, heads: Mapping[int, int]) -> None:
        """Return when the projection holds every event up to these offsets."""
        self._waiting += 1
        self._awaited.set()
        try:
            async with self._moved:
                await self._moved.wait_for(lambda: self._holds(heads))
        finally:
            self._waiting -= 1

    async def is_fresh(self, timeout_s: float) -> bool:
        """Wait until the projection holds what is in the log now; whether it did in time.

        Raises Unavailable with the reason PROJECTION_FILLING when it did not and the rows are
        still being filled: what they lack is not known to be absent.
        """
        heads: Mapping[int, int] = {}
        try:
            async with asyncio.timeout(timeout_s):
                heads = await self._log.heads()
                await self.reached(heads)
        except TimeoutError:
            if not self._filled:
                raise self._filling(heads) from None
            return False
        return True

    async def run(self) -> None:
        """Project for ever; ends by cancellation, or by CorruptLog when the log has a gap."""
        while True:
            try:
                await self._follow()
            except Unavailable as error:
                _LOG.warning("projection waits for the database", error=error.message)
                await asyncio.sleep(RETRY_S)

    def _filling(self, heads: Mapping[int, int]) -> Unavailable:
        total = sum(heads.values())
        done = min(sum(self._positions.values()), total)
        return Unavailable(
            f"the rows are being filled from the log: {done} of {total} events",
            reason="PROJECTION_FILLING",
            attributes={"events_done": str(done), "events_total": str(total)},
        )

    def _holds(self, heads: Mapping[int, int]) -> bool:
        return all(self._positions.get(p, 0) >= offset for p, offset in heads.items())

    async def _follow(self) -> None:
        """Read on from where the projection stands now."""
        found = await self._projection.positions()
        cursors = {p: found.get(p, 0) for p in range(self._log.partition_count)}
        goal = await self._log.heads()
        await self._move(cursors)
        subscription = LogSubscription(self._log, cursors, self._wakeups, self._limits)
        while True:
            self._filled = self._filled or self._holds(goal)
            batch = await subscription.next_batch()
            await self._projection.apply(batch)
            await self._move({batch[-1].partition: batch[-1].offset})
            if not subscription.has_more:
                await self._gather()

    async def _gather(self) -> None:
        """Let a running request's events come together: each transaction costs as much as many."""
        if self._waiting:
            return
        self._awaited.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._gather_s):
                await self._awaited.wait()

    async def _move(self, positions: Mapping[int, int]) -> None:
        async with self._moved:
            self._positions.update(positions)
            self._moved.notify_all()
