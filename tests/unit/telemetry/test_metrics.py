"""Counters, levels and durations by name."""

from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from fastvideo.telemetry import metrics
from fastvideo.telemetry.instruments import BATCH_SIZE, QUEUED, REQUESTS_ACCEPTED


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> InMemoryMetricReader:
    """What the meters of the test have measured."""
    kept = InMemoryMetricReader()
    provider = MeterProvider([kept], shutdown_on_exit=False)
    monkeypatch.setattr("opentelemetry.metrics.get_meter", provider.get_meter)
    return kept


async def test_each_kind_measures_what_it_says(reader: InMemoryMetricReader) -> None:
    waiting = [2.0]
    metrics.counter(REQUESTS_ACCEPTED).add(2, {"fastvideo.model.id": "moving-digits"})
    metrics.observe(QUEUED, lambda: [(waiting[0], {"fastvideo.model.id": "moving-digits"})])
    metrics.histogram(BATCH_SIZE).record(3)
    waiting[0] = 5.0
    data = reader.get_metrics_data()
    assert data is not None
    found: dict[str, Any] = {
        metric.name: metric.data.data_points[0]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert found[REQUESTS_ACCEPTED.name].value == 2
    assert found[QUEUED.name].value == 5
    assert (found[BATCH_SIZE.name].count, found[BATCH_SIZE.name].sum) == (1, 3)
    assert found[BATCH_SIZE.name].explicit_bounds == BATCH_SIZE.boundaries
