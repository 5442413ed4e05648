"""How a shard stands, read from its leader's state whenever somebody scrapes.

A standby tells that it is one, and nothing else: sums over schedulers are then right.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from fastvideo.clock import Clock
from fastvideo.events.reading.gauges import LagGauges, Positions
from fastvideo.events.store import EventLog
from fastvideo.scheduling.core import SchedulerCore
from fastvideo.telemetry import metrics
from fastvideo.telemetry.instruments import (
    FREE,
    LEADING,
    LIVE,
    MODEL,
    QUEUE_AGE,
    QUEUED,
    RESERVED,
    RESOURCE,
    WORKERS,
)
from fastvideo.telemetry.metrics import Level
from fastvideo_scheduler.shard import Shard


class ShardGauges:
    """The gauges of a shard with these models; `run` must run beside it, once a process."""

    def __init__(self, shard: Shard, models: Sequence[str], log: EventLog, clock: Clock) -> None:
        self._shard = shard
        self._clock = clock
        self._models = models
        self._lags = LagGauges(log, self._positions)

    async def run(self) -> None:
        """Let them be read from now on; ends by cancellation."""
        metrics.observe(LEADING, lambda: [(float(self._shard.leader is not None), {})])
        metrics.observe(LIVE, lambda: [(core.live_requests, {}) for core in self._cores()])
        metrics.observe(QUEUED, self._queued)
        metrics.observe(QUEUE_AGE, self._ages)
        metrics.observe(WORKERS, self._workers)
        metrics.observe(RESERVED, lambda: self._amounts(lambda core: core.reserved))
        metrics.observe(FREE, lambda: self._amounts(lambda core: core.free))

        await self._lags.run()

    async def _positions(self) -> Positions:
        leader = self._shard.leader
        return {} if leader is None else {self._shard.name: leader.read_to}

    def _cores(self) -> Iterable[SchedulerCore]:
        """The leader's, if this process leads."""
        leader = self._shard.leader
        return () if leader is None else (leader.core,)

    def _queued(self) -> Iterable[Level]:
        for core in self._cores():
            waiting = core.queued_by_model
            for model_id in dict.fromkeys((*self._models, *waiting)):
                yield waiting.get(model_id, 0), {MODEL: model_id}

    def _ages(self) -> Iterable[Level]:
        now = self._clock.now()
        for core in self._cores():
            since = core.waiting_since
            for model_id in dict.fromkeys((*self._models, *since)):
                age = now - since.get(model_id, now)
                yield max(0.0, age.total_seconds()), {MODEL: model_id}

    def _workers(self) -> Iterable[Level]:
        """A model that no worker has is told, too: that is what one wants to hear of."""
        leader = self._shard.leader
        if leader is None:
            return
        attached = {link.worker.worker_id for link in leader.fleet.links if link.attached}
        served = [
            model_id
            for worker in leader.core.workers
            if worker.worker_id in attached
            for model_id in set(worker.models)
        ]
        for model_id in dict.fromkeys((*self._models, *served)):
            yield served.count(model_id), {MODEL: model_id}

    def _amounts(self, of: Callable[[SchedulerCore], Mapping[str, float]]) -> Iterable[Level]:
        for core in self._cores():
            for resource, amount in of(core).items():
                yield amount, {RESOURCE: resource}
