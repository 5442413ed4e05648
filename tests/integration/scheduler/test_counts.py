"""What schedulers count: all that the log has, once, whoever led."""

from collections import Counter
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from fastvideo.scheduling.events import DeferLoop, SchedulerDecided
from fastvideo.telemetry.instruments import (
    BATCH_SIZE,
    DEFERRED,
    LEADING,
    LIVE,
    OUTCOME,
    QUEUE_AGE,
    QUEUED,
    REASON,
    REQUEST_DURATION,
    REQUESTS_ENDED,
    STEPS,
    WORKERS,
    Instrument,
)
from tests.integration.scheduler.conftest import Stage, until
from tests.integration.scheduler.scripted_worker import ScriptedWorker
from tests.integration.scheduler.test_recovery import UNITS, moved_over


class Measured:
    """What the meters of the test's process have measured."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader], shutdown_on_exit=False)

    def of(self, instrument: Instrument, **labels: str) -> float:
        """The sum over all series with those labels; of a histogram how many were recorded."""
        data = self.reader.get_metrics_data()
        points = [
            point
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == instrument.name
            for point in metric.data.data_points
            if labels.items() <= dict(point.attributes or {}).items()
        ]
        return float(sum(getattr(point, "value", getattr(point, "count", 0)) for point in points))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Measured]:
    found = Measured()
    monkeypatch.setattr("opentelemetry.metrics.get_meter", found.provider.get_meter)
    yield found
    found.provider.shutdown()


async def test_a_request_that_changed_leaders_is_counted_once(
    stage: Stage, measured: Measured
) -> None:
    await moved_over(stage, "scheduler-2")
    await stage.ended("r1")
    await until(lambda: measured.of(REQUESTS_ENDED, **{OUTCOME: "completed"}) == 1)
    await until(lambda: measured.of(STEPS) == UNITS)
    assert measured.of(REQUESTS_ENDED) == measured.of(REQUEST_DURATION) == 1
    assert measured.of(BATCH_SIZE) <= UNITS


async def test_gauges_are_the_state_s_and_a_standby_tells_that_it_is_one(
    stage: Stage, measured: Measured
) -> None:
    scheduler = await stage.scheduler("scheduler-1")
    await until(lambda: measured.of(LEADING) == 1)
    # A model that no worker has is told, too.
    assert (measured.of(WORKERS), measured.of(QUEUED)) == (0, 0)
    for name in ("r1", "r2"):
        await stage.submit(name, steps=3)
    await until(lambda: measured.of(LIVE) == 2)
    assert measured.of(QUEUED) == 2
    assert measured.of(QUEUE_AGE) > 0
    async with ScriptedWorker("w1", [scheduler.address]):
        for name in ("r1", "r2"):
            await stage.ended(name)
        await until(lambda: (measured.of(LIVE), measured.of(QUEUED)) == (0, 0))
        assert measured.of(WORKERS) == 1
    scheduler.task.cancel()
    await until(lambda: scheduler.shard.leader is None)
    assert (measured.of(LEADING), measured.of(LIVE), measured.of(WORKERS)) == (0, 0, 0)


@pytest.mark.row("API-15")
async def test_who_waits_for_a_resource_is_counted_by_it(stage: Stage, measured: Measured) -> None:
    scheduler = await stage.scheduler()
    await until(lambda: measured.of(LEADING) == 1)
    # Each unit needs 10 of it, so the second waits for the first.
    worker = await stage.worker("w1", scheduler, memory=15)
    worker.script.go.clear()
    for name in ("r1", "r2"):
        await stage.submit(name, steps=3)
    await until(lambda: worker.batches)
    worker.script.go.set()
    for name in ("r1", "r2"):
        await stage.ended(name)
    told = [
        decision.reason.partition(":")[0]
        for event in await stage.shard_events()
        if isinstance(event.payload, SchedulerDecided)
        for decision in event.payload.decisions
        if isinstance(decision, DeferLoop)
    ]
    assert told
    counts = Counter(told)
    await until(
        lambda: {name: measured.of(DEFERRED, **{REASON: name}) for name in counts} == counts
    )
