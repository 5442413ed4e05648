"""What a process has measured, in Prometheus's words.

`opentelemetry-exporter-prometheus` has no exemplars, so the points of OpenTelemetry's SDK are
written by `prometheus_client`, which has. Text is plain, or OpenMetrics for those who ask for it;
exemplars are of OpenMetrics alone.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricReader,
    MetricsData,
    NumberDataPoint,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as Measured
from opentelemetry.trace import format_span_id, format_trace_id
from prometheus_client import Metric, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.samples import Exemplar

from fastvideo.telemetry.instruments import Kind, plain, prometheus_unit

_NANOSECONDS: Final = 1e9

Key = tuple[str, tuple[str, ...], int]
"""A metric, the values of its labels, and a bucket."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """One answer to a scraper."""

    body: bytes
    content_type: str


class Scraper(MetricReader):
    """Collects when somebody scrapes, one scrape at a time.

    Scrape from another thread than the event loop's: the SDK lets one reader collect at a time, so
    a loop that waited for its turn could not answer the one that asks it for gauges.

    The SDK forgets exemplars once they were collected. The last of each bucket is kept here, so
    that every scraper sees them; there are no more than series and buckets.
    """

    def __init__(self) -> None:
        super().__init__()
        self._turn = threading.Lock()
        self._data: MetricsData | None = None
        self._exemplars: dict[Key, Exemplar] = {}
        self._process = ProcessCollector(registry=CollectorRegistry())

    def scrape(self, accept: str = "") -> Scrape:
        """All metrics, in the format that an Accept header asks for."""
        encode, content_type = choose_encoder(accept)
        with self._turn:
            self._data = None
            self.collect()
            families = [*self._process.collect(), *self._families()]
        return Scrape(encode(_Collected(families)), content_type)

    def _receive_metrics(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **_: Any
    ) -> None:
        self._data = metrics_data

    def shutdown(self, timeout_millis: float = 30_000, **_: Any) -> None:
        """There is nothing to send."""

    def _families(self) -> Iterator[Metric]:
        for resource in self._data.resource_metrics if self._data is not None else ():
            for scope in resource.scope_metrics:
                for measured in scope.metrics:
                    family = self._family(measured)
                    if family is not None:
                        yield family

    def _family(self, measured: Measured) -> Metric | None:
        match measured.data:
            case Histogram() as data:
                return self._histogram(measured, data)
            case Sum() as data if data.is_monotonic:
                return _simple(CounterMetricFamily, Kind.COUNTER, measured, data)
            case Sum() | Gauge() as data:
                return _simple(GaugeMetricFamily, Kind.GAUGE, measured, data)
            case _:
                return None

    def _histogram(self, measured: Measured, data: Histogram) -> Metric:
        labels = _labels(data.data_points)
        name, unit = plain(measured.name), prometheus_unit(measured.unit or "", Kind.HISTOGRAM)
        family = HistogramMetricFamily(name, _text_of(measured), labels=labels, unit=unit)
        for point in data.data_points:
            values = _values(point.attributes, labels)
            family.add_metric(values, self._buckets(name, values, point), point.sum)
        return family

    def _buckets(self, name: str, values: list[str], point: HistogramDataPoint) -> list[Any]:
        """Upper bound, sum of all up to it, and an exemplar if there is one."""
        for taken in point.exemplars:
            if taken.trace_id and taken.span_id:
                bucket = _bucket_of(taken.value, point.explicit_bounds)
                self._exemplars[name, tuple(values), bucket] = Exemplar(
                    {
                        "trace_id": format_trace_id(taken.trace_id),
                        "span_id": format_span_id(taken.span_id),
                    },
                    taken.value,
                    taken.time_unix_nano / _NANOSECONDS,
                )
        total, buckets = 0, []
        bounds = [*map(str, point.explicit_bounds), "+Inf"]
        for index, (bound, count) in enumerate(zip(bounds, point.bucket_counts, strict=True)):
            total += count
            kept = self._exemplars.get((name, tuple(values), index))
            buckets.append((bound, total, kept))
        return buckets


class ScrapedMeterProvider(MeterProvider):
    """A provider that can be scraped."""

    def __init__(self, scraper: Scraper, readers: Iterable[MetricReader], **given: Any) -> None:
        super().__init__((scraper, *readers), **given)
        self.scraper: Final = scraper


def scraper_of_process() -> Scraper | None:
    """What this process measures; None where nobody configured it."""
    provider = metrics.get_meter_provider()
    return provider.scraper if isinstance(provider, ScrapedMeterProvider) else None


class _Collected(Collector):
    """What the encoders take."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _simple(
    make: type[CounterMetricFamily] | type[GaugeMetricFamily],
    kind: Kind,
    measured: Measured,
    data: Sum | Gauge,
) -> Metric:
    labels = _labels(data.data_points)
    unit = prometheus_unit(measured.unit or "", kind)
    family = make(plain(measured.name), _text_of(measured), labels=labels, unit=unit)
    for point in data.data_points:
        family.add_metric(_values(point.attributes, labels), point.value)
    return family


def _labels(points: Iterable[HistogramDataPoint | NumberDataPoint]) -> list[str]:
    return sorted({plain(key) for point in points for key in point.attributes or ()})


def _text_of(measured: Measured) -> str:
    return measured.description or measured.name


def _values(attributes: Mapping[str, Any] | None, labels: list[str]) -> list[str]:
    """Values in the order of the labels; those of a point that lacks one are empty."""
    # What came after the SDK's limit of series is one series, and says so.
    given = {plain(key): _text(value) for key, value in (attributes or {}).items()}
    return [given.get(label, "") for label in labels]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _bucket_of(value: float, bounds: Iterable[float]) -> int:
    return sum(1 for bound in bounds if value > bound)
