"""Keeps the index up to date with the log."""

import asyncio
from collections.abc import Mapping
from typing import Final

from fastvideo.errors import Unavailable
from fastvideo.events.store import EventLog
from fastvideo.events.subscription import LogSubscription
from fastvideo.events.wakeups import Wakeups
from fastvideo.telemetry.logging import get_logger
from fastvideo_gateway.index import RequestIndex

_LOG: Final = get_logger(__name__)

RETRY_S: Final = 0.2


class Projector:
    """Reads the log from where the index stands and takes it in, batch by batch.

    Several gateways may project into one index: each passes over what another took in.
    """

    def __init__(self, log: EventLog, index: RequestIndex, wakeups: Wakeups | None) -> None:
        self._log = log
        self._index = index
        self._wakeups = wakeups
        self._positions: dict[int, int] = {}
        self._moved = asyncio.Condition()

    async def reached(self, heads: Mapping[int, int]) -> None:
        """Return when the index holds every event up to these offsets."""
        async with self._moved:
            await self._moved.wait_for(lambda: self._holds(heads))

    def _holds(self, heads: Mapping[int, int]) -> bool:
        return all(self._positions.get(p, 0) >= offset for p, offset in heads.items())

    async def run(self) -> None:
        """Project for ever; ends by cancellation, or by CorruptLog when the log has a gap."""
        while True:
            try:
                await self._follow()
            except Unavailable as error:
                _LOG.warning("index waits for the database", error=error.message)
                await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        """Read on from where the index stands now."""
        found = await self._index.positions()
        cursors = {p: found.get(p, 0) for p in range(self._log.partition_count)}
        await self._move(cursors)
        subscription = LogSubscription(self._log, cursors, self._wakeups)
        while True:
            batch = await subscription.next_batch()
            await self._index.apply(batch)
            await self._move({batch[-1].partition: batch[-1].offset})

    async def _move(self, positions: Mapping[int, int]) -> None:
        async with self._moved:
            self._positions.update(positions)
            self._moved.notify_all()
