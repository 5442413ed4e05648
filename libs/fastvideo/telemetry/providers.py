"""The tracer and the meter of a process, from its configuration to their orderly end."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricReader,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from fastvideo.telemetry.config import TelemetryConfig
from fastvideo.telemetry.tracing import TEXT_CHARACTERS_MAX, AttributeValue

# When the receiver is slow or away, spans past the queue are dropped, never waited for.
QUEUE_SPANS_MAX: Final = 4096
BATCH_SPANS_MAX: Final = 512
# Each export wakes a thread in every process, so a few spans are not sent at once.
EXPORT_DELAY_MS: Final = 2_000
EXPORT_MS_MAX: Final = 5_000
METRICS_EVERY_MS: Final = 10_000
SHUTDOWN_S_MAX: Final = 2.0
# A request's span links to every batch of another trace that it ran in.
LINKS_MAX: Final = 512


@dataclass(frozen=True)
class Telemetry:
    """The tracer and meter of a process; `shutdown` sends what is left."""

    tracer_provider: TracerProvider
    meter_provider: MeterProvider
    exporters: tuple[SpanExporter | MetricExporter, ...] = ()

    def flush(self, timeout_ms: int = EXPORT_MS_MAX) -> bool:
        """Send what has ended so far; False when it took longer than allowed."""
        return self.tracer_provider.force_flush(timeout_ms)

    def shutdown(self) -> None:
        """Send what is left and stop the exporting threads, within SHUTDOWN_S_MAX and a bit.

        A receiver that is away costs the spans that are left, never a slow stop.
        """
        give_up = threading.Timer(SHUTDOWN_S_MAX, self._close_exporters)
        give_up.daemon = True
        give_up.start()
        self.tracer_provider.shutdown()
        self.meter_provider.shutdown()
        give_up.cancel()

    def _close_exporters(self) -> None:
        # A closed exporter ends its retries and refuses further batches at once.
        for exporter in self.exporters:
            exporter.shutdown()


def configure(
    service_name: str,
    config: TelemetryConfig | None = None,
    *,
    attributes: Mapping[str, AttributeValue] | None = None,
    scraped: bool = False,
) -> Telemetry:
    """Make this process's tracer and meter the global ones; call once, in a composition root.

    Spans have ids also where none are sent, so events and logs name their trace. `scraped` lets
    `exposition.scraper_of_process` have the metrics.
    """
    telemetry = build(service_name, config, attributes=attributes, scraped=scraped)
    trace.set_tracer_provider(telemetry.tracer_provider)
    metrics.set_meter_provider(telemetry.meter_provider)
    return telemetry


def build(
    service_name: str,
    config: TelemetryConfig | None = None,
    *,
    attributes: Mapping[str, AttributeValue] | None = None,
    scraped: bool = False,
) -> Telemetry:
    """As `configure`, without making it global."""
    config = config or TelemetryConfig()
    resource = Resource({"service.name": service_name, **(attributes or {})})
    tracer_provider = TracerProvider(
        resource=resource,
        sampler=ParentBased(TraceIdRatioBased(config.trace_sample)),
        span_limits=SpanLimits(max_attribute_length=TEXT_CHARACTERS_MAX, max_links=LINKS_MAX),
        shutdown_on_exit=False,
    )
    readers: list[MetricReader] = []
    exporters: list[SpanExporter | MetricExporter] = []
    if config.otlp_endpoint is not None:
        spans, measures = _otlp(config.otlp_endpoint)
        exporters += [spans, measures]
        tracer_provider.add_span_processor(_batching(spans))
        readers.append(
            PeriodicExportingMetricReader(
                measures,
                export_interval_millis=METRICS_EVERY_MS,
                export_timeout_millis=EXPORT_MS_MAX,
            )
        )
    if config.trace_folder is not None:
        from fastvideo.telemetry.span_files import SpanFiles

        name = str((attributes or {}).get("service.instance.id", service_name))
        kept = SpanFiles(config.trace_folder, name)
        exporters.append(kept)
        tracer_provider.add_span_processor(_batching(kept))
    meter_provider = _meter_provider(readers, resource, scraped)
    return Telemetry(tracer_provider, meter_provider, tuple(exporters))


def _otlp(endpoint: str) -> tuple[SpanExporter, MetricExporter]:
    # Costs most of a command line's start, and is needed only here.
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    insecure = not endpoint.startswith("https://")
    timeout_s = EXPORT_MS_MAX / 1000
    spans = OTLPSpanExporter(endpoint, insecure, timeout=timeout_s)
    return spans, OTLPMetricExporter(endpoint, insecure, timeout=timeout_s)


def _meter_provider(
    readers: list[MetricReader], resource: Resource, scraped: bool
) -> MeterProvider:
    if not scraped:
        return MeterProvider(readers, resource=resource, shutdown_on_exit=False)
    from fastvideo.telemetry.exposition import ScrapedMeterProvider, Scraper

    return ScrapedMeterProvider(Scraper(), readers, resource=resource, shutdown_on_exit=False)


def _batching(exporter: SpanExporter) -> BatchSpanProcessor:
    return BatchSpanProcessor(
        exporter,
        max_queue_size=QUEUE_SPANS_MAX,
        max_export_batch_size=BATCH_SPANS_MAX,
        schedule_delay_millis=EXPORT_DELAY_MS,
        export_timeout_millis=EXPORT_MS_MAX,
    )
