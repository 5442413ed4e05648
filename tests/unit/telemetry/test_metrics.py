"""Counters, levels and durations by name."""

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from fastvideo.telemetry import metrics


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> InMemoryMetricReader:
    """What the meters of the test have measured."""
    kept = InMemoryMetricReader()
    provider = MeterProvider([kept], shutdown_on_exit=False)
    monkeypatch.setattr("opentelemetry.metrics.get_meter", provider.get_meter)
    return kept


def test_each_kind_measures_what_it_says(reader: InMemoryMetricReader) -> None:
    metrics.counter("requests", "accepted").add(2, {"model": "moving-digits"})
    queue = metrics.level("queue", "waiting")
    queue.add(3)
    queue.add(-1)
    metrics.seconds("step", "a step").record(0.02)
    data = reader.get_metrics_data()
    assert data is not None
    found = {
        metric.name: metric.data.data_points[0]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert found["requests"].value == 2
    assert found["queue"].value == 2
    assert (found["step"].count, found["step"].sum) == (1, 0.02)
    assert found["step"].explicit_bounds == metrics.SECONDS_BOUNDARIES
