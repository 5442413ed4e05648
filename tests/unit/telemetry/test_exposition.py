"""What was measured, in Prometheus's words."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from opentelemetry.trace import set_span_in_context
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from fastvideo.telemetry import metrics, providers
from fastvideo.telemetry.config import TelemetryConfig
from fastvideo.telemetry.exposition import ScrapedMeterProvider, Scraper
from fastvideo.telemetry.instruments import (
    MEMORY_USED,
    POOL,
    PREDICTION_ERROR,
    REASON,
    REQUESTS_ENDED,
    STEP_DURATION,
    UNIT_KIND,
    reason_label,
)
from fastvideo.telemetry.providers import Telemetry

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


@pytest.fixture
def telemetry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Telemetry]:
    built = providers.build("test", TelemetryConfig(), scraped=True)
    monkeypatch.setattr("opentelemetry.metrics.get_meter", built.meter_provider.get_meter)
    yield built
    built.shutdown()


@pytest.fixture
def scraper(telemetry: Telemetry) -> Scraper:
    provider = telemetry.meter_provider
    assert isinstance(provider, ScrapedMeterProvider)
    return provider.scraper


def samples(scraper: Scraper) -> dict[str, list[Sample]]:
    """Samples by name, as an OpenMetrics parser reads them."""
    found: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(scraper.scrape(OPEN_METRICS).body.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


async def test_names_have_their_units_and_labels_their_underscores(scraper: Scraper) -> None:
    metrics.counter(REQUESTS_ENDED).add(2, {REASON: "OUT_OF_MEMORY"})
    metrics.histogram(STEP_DURATION).record(0.02, {UNIT_KIND: "diffusion_step"})
    metrics.histogram(PREDICTION_ERROR).record(0.1)
    metrics.observe(MEMORY_USED, lambda: [(7, {POOL: "weights"}), (8, {POOL: "caches"})])
    text = scraper.scrape().body.decode()
    assert 'fastvideo_requests_ended_total{fastvideo_error_reason="OUT_OF_MEMORY"} 2.0' in text
    assert 'fastvideo_step_duration_seconds_count{fastvideo_unit_kind="diffusion_step"} 1.0' in text
    assert "fastvideo_scheduler_prediction_error_sum 0.1" in text
    assert 'fastvideo_worker_memory_usage_bytes{fastvideo_memory_pool="caches"} 8.0' in text
    assert "process_cpu_seconds_total" in text


def test_a_bucket_names_the_last_trace_in_it_to_every_scraper_that_asks(
    telemetry: Telemetry, scraper: Scraper
) -> None:
    steps = metrics.histogram(STEP_DURATION)
    tracer = telemetry.tracer_provider.get_tracer("test")
    ids = []
    for seconds in (0.021, 0.022, 2.0):
        span = tracer.start_span("step")
        context = span.get_span_context()
        ids.append((f"{context.trace_id:032x}", f"{context.span_id:016x}"))
        steps.record(seconds, context=set_span_in_context(span))
    for _ in range(2):
        buckets = samples(scraper)["fastvideo_step_duration_seconds_bucket"]
        told = {
            bucket.labels["le"]: (bucket.exemplar.labels["trace_id"], bucket.exemplar.value)
            for bucket in buckets
            if bucket.exemplar is not None
        }
        assert told == {"0.025": (ids[1][0], 0.022), "2.5": (ids[2][0], 2.0)}
    plain = scraper.scrape("text/plain")
    assert "trace_id" not in plain.body.decode()
    assert plain.content_type.startswith("text/plain")


def test_what_is_not_recorded_is_no_exemplar(monkeypatch: pytest.MonkeyPatch) -> None:
    built = providers.build("test", TelemetryConfig(trace_sample=0.0), scraped=True)
    monkeypatch.setattr("opentelemetry.metrics.get_meter", built.meter_provider.get_meter)
    assert isinstance(built.meter_provider, ScrapedMeterProvider)
    span = built.tracer_provider.get_tracer("test").start_span("step")
    # It is named in events and logs all the same.
    assert span.get_span_context().is_valid
    metrics.histogram(STEP_DURATION).record(0.1, context=set_span_in_context(span))
    assert b"trace_id" not in built.meter_provider.scraper.scrape(OPEN_METRICS).body
    built.shutdown()


async def test_a_gauge_is_read_where_its_state_lives_whoever_scrapes(scraper: Scraper) -> None:
    owner = asyncio.current_task()

    def read() -> list[tuple[float, dict[str, str]]]:
        # Only the event loop's thread has a running loop.
        return [(float(owner is not None and owner.get_loop() is asyncio.get_running_loop()), {})]

    metrics.observe(MEMORY_USED, read)
    for scrape in (scraper.scrape(), await asyncio.to_thread(scraper.scrape)):
        assert b"fastvideo_worker_memory_usage_bytes 1.0" in scrape.body


@pytest.mark.parametrize(
    ("reason", "label"),
    [("OUT_OF_MEMORY", "OUT_OF_MEMORY"), ("no such request req_01", "OTHER"), ("A" * 49, "OTHER")],
)
def test_a_reason_that_is_no_word_of_ours_is_no_label(reason: str, label: str) -> None:
    assert reason_label(reason) == label


async def test_a_scrape_and_another_reader_do_not_wait_for_one_another(
    telemetry: Telemetry, scraper: Scraper
) -> None:
    """Both ask the event loop for gauges, and the SDK lets one collect at a time."""
    for index in range(20):
        metrics.observe(
            replace(MEMORY_USED, name=f"fastvideo.test.{index}"), lambda: [(1.0, {POOL: "weights"})]
        )
    began_s = time.monotonic()
    async with asyncio.TaskGroup() as group:
        scrapes = [group.create_task(asyncio.to_thread(scraper.scrape)) for _ in range(8)]
    assert time.monotonic() - began_s < 20 * metrics.READ_S_MAX
    for scrape in scrapes:
        # None was given up.
        assert scrape.result().body.count(b"\nfastvideo_test_") == 20
