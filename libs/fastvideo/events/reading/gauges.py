"""How far followers of the log are behind, looked up every few seconds for whoever scrapes."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from fastvideo.errors import Unavailable
from fastvideo.events.store import EventLog
from fastvideo.telemetry import metrics
from fastvideo.telemetry.instruments import FOLLOWER, HEAD, LAG
from fastvideo.telemetry.logging import get_logger
from fastvideo.telemetry.metrics import Level

_LOG: Final = get_logger(__name__)

LOOK_EVERY_S: Final = 5.0

Positions = Mapping[str, Mapping[int, int]]
"""Follower to the offset that it has taken in, by partition."""


class LagGauges:
    """The lags of some followers, and the length of the log; `run` must run beside them.

    `read` gives their positions, those of followers elsewhere as the database has them.
    """

    def __init__(self, log: EventLog, read: Callable[[], Awaitable[Positions]]) -> None:
        self._log = log
        self._read = read
        # Empty before the first look and while the database is away: old figures say nothing.
        self._lags: Mapping[str, int] = {}
        self._events: int | None = None

    async def run(self) -> None:
        """Look for ever; ends by cancellation. Once a process."""
        metrics.observe(LAG, self._levels)
        metrics.observe(HEAD, lambda: [] if self._events is None else [(self._events, {})])
        while True:
            try:
                await self._look()
            except Unavailable as error:
                _LOG.info("how far followers are is not known", error=error.message)
                self._lags, self._events = {}, None
            except Exception:  # noqa: BLE001 - a figure less never ends the service that it is of
                _LOG.exception("how far followers are is not known")
                self._lags, self._events = {}, None
            await asyncio.sleep(LOOK_EVERY_S)

    async def _look(self) -> None:
        heads = await self._log.heads()
        found = await self._read()
        self._lags = {name: lag(positions, heads) for name, positions in found.items()}
        self._events = sum(heads.values())

    def _levels(self) -> Iterable[Level]:
        for follower, events in self._lags.items():
            yield events, {FOLLOWER: follower}


def lag(positions: Mapping[int, int], heads: Mapping[int, int]) -> int:
    """How many events are between positions and heads."""
    return sum(max(0, head - positions.get(partition, 0)) for partition, head in heads.items())
