"""How the log stands, for whoever scrapes: lags of all who follow it, and what was put aside.

The database is the one that knows, so every gateway tells the same: take the largest, not the sum.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from fastvideo.events.reading.gauges import LagGauges, Positions
from fastvideo.scheduling.stream import STREAM_PREFIX as SHARDS
from fastvideo.telemetry import metrics
from fastvideo.telemetry.instruments import CONSUMER, QUARANTINED
from fastvideo.telemetry.metrics import Level
from fastvideo_gateway.event_log_parts import EventLogParts

CONSUMERS: Final = "consumer-"


class LogGauges:
    """The gauges of the log; `run` must run beside the gateway."""

    def __init__(self, parts: EventLogParts) -> None:
        self._parts = parts
        self._quarantined: Mapping[str, int] = {}
        self._lags = LagGauges(parts.log, self._positions)

    async def run(self) -> None:
        """Look for ever; ends by cancellation."""
        metrics.observe(QUARANTINED, self._levels)
        await self._lags.run()

    async def _positions(self) -> Positions:
        readers = await self._parts.inspection.readers()
        consumers = [name for name in readers.checkpoints if name.startswith(CONSUMERS)]
        none = dict.fromkeys((name.removeprefix(CONSUMERS) for name in consumers), 0)
        self._quarantined = {**none, **readers.quarantined}
        # Of a scheduler the log has the oldest request that it needs, which is no lag.
        others = {
            name: positions
            for name, positions in readers.checkpoints.items()
            if not name.startswith(SHARDS)
        }
        kept = {
            type(projection).layout.schema: await projection.positions()
            for projection in self._parts.projections
        }
        return {**others, **kept}

    def _levels(self) -> Iterable[Level]:
        for consumer, events in self._quarantined.items():
            yield events, {CONSUMER: consumer}
