"""Keeps a ledger up to date with the log: from the beginning of its window on, then as it grows.

No damaged event stops it, its own or one that the list of requests stands still before: what counts
would count for ever, and what comes would count for nobody.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from fastvideo.clock import Clock, milliseconds
from fastvideo.errors import Unavailable
from fastvideo.events.past_damage import PastDamage
from fastvideo.events.projections.projector import Projector
from fastvideo.events.relay import offset_before
from fastvideo.events.store import EventLog
from fastvideo.events.subscription import LogSubscription, PollLimits
from fastvideo.events.wakeups import Wakeups
from fastvideo.requests.types import RequestState
from fastvideo.telemetry.logging import get_logger
from fastvideo_gateway.index import RequestIndex
from fastvideo_gateway.quotas.types import (
    DEVICE_WINDOW_MINUTES,
    Accepted,
    Ledger,
    LedgerAway,
    LedgerLost,
)
from fastvideo_gateway.quotas.usage import RequestCosts, changes_of

_LOG: Final = get_logger(__name__)

CHECK_EVERY_S: Final = 1.0
GATHER_S: Final = 0.05
RETRY_S: Final = 0.5
UNDER_WAY_MAX: Final = 5_000
# Rows that come no further for so long are taken as they are: more of the log is read then.
STANDS_STILL_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class UnderWay:
    """The requests that have not ended, by rows that hold the log up to these offsets at least."""

    states: tuple[RequestState, ...]
    positions: Mapping[int, int]


ReadsUnderWay = Callable[[int], Awaitable[UnderWay]]
"""From a limit to the requests that have not ended."""


def under_way_in(index: RequestIndex, projector: Projector, log: EventLog) -> ReadsUnderWay:
    """Reads of rows that hold what the log holds, unless they stand still before a damaged event.

    Older rows tell of requests that ended before the window, which would count for ever.
    """

    async def read(limit: int) -> UnderWay:
        await _come_on(projector, await log.heads())
        positions = projector.positions
        return UnderWay(await index.under_way(limit), positions)

    return read


async def _come_on(projector: Projector, heads: Mapping[int, int]) -> None:
    """Wait until the rows hold what the log held, as long as they come on."""
    before: Mapping[int, int] | None = None
    while projector.positions != before:
        before = projector.positions
        with suppress(TimeoutError):
            async with asyncio.timeout(STANDS_STILL_S):
                await projector.reached(heads)
                return
    _LOG.error("the list of requests stands still: usage is read from there on")


@dataclass(frozen=True, slots=True)
class UsageSource:
    """Where counters come from."""

    log: EventLog
    under_way: ReadsUnderWay
    clock: Clock
    wakeups: Wakeups | None = None
    polling: PollLimits | None = None


class UsageFollower:
    """Follows the log for one ledger.

    `on_answer` is told whether the ledger answers and holds what the log holds, each time that
    it was looked at: after a batch of events, and every second without one.
    """

    def __init__(
        self,
        source: UsageSource,
        ledger: Ledger,
        costs: RequestCosts,
        on_answer: Callable[[bool], None],
    ) -> None:
        self._source = source
        self._log = PastDamage(source.log)
        self._ledger = ledger
        self._costs = costs
        self._on_answer = on_answer

    async def run(self) -> None:
        """Follow for ever; ends by cancellation, or by CorruptLog when the log has a gap."""
        while True:
            try:
                await self._follow()
            except (LedgerAway, LedgerLost):
                self._on_answer(False)
            except Unavailable as error:
                _LOG.warning("usage waits for the event log", error=error.message)
            await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        goal = await self._log.heads()
        cursors = await self._begun()
        subscription = LogSubscription(
            self._log, cursors, self._source.wakeups, self._source.polling
        )
        reading: asyncio.Task[None] | None = None
        filled = False
        try:
            while True:
                if not filled and _holds(subscription.cursors, goal):
                    await self._ledger.set_filled()
                    filled = True
                reading = reading or asyncio.create_task(self._take_in(subscription), name="usage")
                done, _ = await asyncio.wait({reading}, timeout=CHECK_EVERY_S)
                if done:
                    # Taking in was an answer too.
                    reading.result()
                    reading = None
                elif filled:
                    await self._ledger.check()
                if filled:
                    self._on_answer(True)
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _take_in(self, subscription: LogSubscription) -> None:
        batch = await subscription.next_batch()
        first, last = batch[0], batch[-1]
        changes = changes_of(batch, self._costs)
        await self._ledger.take_in(first.partition, first.offset, last.offset, changes)
        if not subscription.has_more:
            # A running request's events come together: few of them are worth a step of their own.
            await asyncio.sleep(GATHER_S)

    async def _begun(self) -> Mapping[int, int]:
        """Where to read on; a ledger that has nothing begins with its longest window."""
        positions = await self._ledger.positions()
        if not positions:
            since = self._source.clock.now() - timedelta(minutes=DEVICE_WINDOW_MINUTES)
            places = {
                partition: await offset_before(self._log, partition, since)
                for partition in await self._log.heads()
            }
            # Read after the places: what ends from there on, the events tell.
            known = await self._source.under_way(UNDER_WAY_MAX)
            places = {
                partition: min(offset, known.positions.get(partition, 0))
                for partition, offset in places.items()
            }
            await self._ledger.begin(places, [self._accepted(state) for state in known.states])
            positions = await self._ledger.positions()
        return positions

    def _accepted(self, state: RequestState) -> Accepted:
        spec = state.spec
        self._costs.accepted(spec)
        at_ms = milliseconds(state.accepted_at)
        return Accepted(0, spec.tenant_id, spec.request_id, at_ms, self._costs.predict(spec))


def _holds(cursors: Mapping[int, int], goal: Mapping[int, int]) -> bool:
    return all(cursors.get(partition, 0) >= offset for partition, offset in goal.items())
