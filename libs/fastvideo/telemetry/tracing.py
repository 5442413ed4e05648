"""OpenTelemetry traces that cross gRPC, the event log and the bus as a W3C traceparent."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from traceback import format_exception
from typing import Final

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricReader,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from fastvideo.errors import FastVideoError
from fastvideo.telemetry.redaction import redact, redact_text

AttributeValue = str | bool | int | float

SCOPE: Final = "fastvideo"
TRACEPARENT: Final = "traceparent"
# When the receiver is slow or away, spans past the queue are dropped, never waited for.
QUEUE_SPANS_MAX: Final = 4096
BATCH_SPANS_MAX: Final = 512
EXPORT_DELAY_MS: Final = 500
EXPORT_MS_MAX: Final = 5_000
METRICS_EVERY_MS: Final = 10_000
SHUTDOWN_S_MAX: Final = 2.0
TEXT_CHARACTERS_MAX: Final = 1_000
# Of a longer text only the start is looked at, so that no caller's input costs much to write down.
_LOOKED_AT_CHARACTERS_MAX: Final = 16_384

_PROPAGATOR: Final = TraceContextTextMapPropagator()


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
    otlp_endpoint: str | None = None,
    *,
    attributes: Mapping[str, AttributeValue] | None = None,
    exporter: SpanExporter | None = None,
) -> Telemetry:
    """Make this process's tracer and meter the global ones; call once, in a composition root.

    `otlp_endpoint` is a gRPC address such as "http://127.0.0.1:4317". Without it nothing is
    sent, but spans have ids all the same, so events and logs still name their trace. An
    `exporter` takes the endpoint's place for spans.
    """
    telemetry = build(service_name, otlp_endpoint, attributes=attributes, exporter=exporter)
    trace.set_tracer_provider(telemetry.tracer_provider)
    metrics.set_meter_provider(telemetry.meter_provider)
    return telemetry


def build(
    service_name: str,
    otlp_endpoint: str | None = None,
    *,
    attributes: Mapping[str, AttributeValue] | None = None,
    exporter: SpanExporter | None = None,
) -> Telemetry:
    """As `configure`, without making it global."""
    resource = Resource({"service.name": service_name, **(attributes or {})})
    tracer_provider = TracerProvider(
        resource=resource,
        span_limits=SpanLimits(max_attribute_length=TEXT_CHARACTERS_MAX),
        shutdown_on_exit=False,
    )
    readers: list[MetricReader] = []
    exporters: list[SpanExporter | MetricExporter] = []
    if otlp_endpoint is not None:
        # Costs most of a command line's start, and is needed only here.
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        insecure = not otlp_endpoint.startswith("https://")
        timeout_s = EXPORT_MS_MAX / 1000
        exporter = exporter or OTLPSpanExporter(otlp_endpoint, insecure, timeout=timeout_s)
        metric_exporter = OTLPMetricExporter(otlp_endpoint, insecure, timeout=timeout_s)
        exporters.append(metric_exporter)
        readers.append(
            PeriodicExportingMetricReader(
                metric_exporter,
                export_interval_millis=METRICS_EVERY_MS,
                export_timeout_millis=EXPORT_MS_MAX,
            )
        )
    if exporter is not None:
        exporters.append(exporter)
        tracer_provider.add_span_processor(_batching(exporter))
    meter_provider = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
    return Telemetry(tracer_provider, meter_provider, tuple(exporters))


def _batching(exporter: SpanExporter) -> BatchSpanProcessor:
    return BatchSpanProcessor(
        exporter,
        max_queue_size=QUEUE_SPANS_MAX,
        max_export_batch_size=BATCH_SPANS_MAX,
        schedule_delay_millis=EXPORT_DELAY_MS,
        export_timeout_millis=EXPORT_MS_MAX,
    )


def current_traceparent() -> str:
    """The W3C traceparent of the current span; empty outside any span."""
    return traceparent_of(trace.get_current_span())


def traceparent_of(span: Span) -> str:
    """The W3C traceparent of a span; empty when the span records no trace."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
    return carrier.get(TRACEPARENT, "")


def current_trace_id() -> str:
    """The current trace's id, 32 hexadecimal digits; empty outside any span."""
    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else ""


@contextmanager
def span(
    name: str,
    attributes: Mapping[str, AttributeValue] | None = None,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
) -> Iterator[Span]:
    """A span under the current one, current inside the block; an exception marks it failed."""
    with _open(name, attributes, kind, None) as opened:
        yield opened


@contextmanager
def span_from(
    traceparent: str,
    name: str,
    attributes: Mapping[str, AttributeValue] | None = None,
    *,
    kind: SpanKind = SpanKind.CONSUMER,
) -> Iterator[Span]:
    """A span under one of another process or another time, named by its traceparent.

    An empty or malformed traceparent starts a new trace.
    """
    with _open(name, attributes, kind, context_from(traceparent)) as opened:
        yield opened


def context_from(traceparent: str) -> Context:
    """The context that a traceparent names, with nothing else in it."""
    return _PROPAGATOR.extract({TRACEPARENT: traceparent}, context=Context())


def link(span: Span, traceparent: str) -> None:
    """Link a span to one of another time, named by its traceparent; an empty one links nothing."""
    context = trace.get_current_span(context_from(traceparent)).get_span_context()
    if context.is_valid:
        span.add_link(context)


def record_error(span: Span, error: BaseException) -> None:
    """Mark a span failed by an error: its reason, its subject, and a message without secrets.

    A FastVideoError is an answer, so it leaves no stack; anything else does.
    """
    message = redact_text(str(error)[:_LOOKED_AT_CHARACTERS_MAX])[:TEXT_CHARACTERS_MAX]
    span.set_status(Status(StatusCode.ERROR, message))
    span.set_attribute("error.type", type(error).__name__)
    if isinstance(error, FastVideoError):
        details = {f"fastvideo.error.{key}": value for key, value in error.attributes.items()}
        set_attributes(
            span,
            {"fastvideo.error.reason": error.reason, "fastvideo.error.subject": error.subject}
            | details,
        )
        return
    span.add_event(
        "exception",
        {
            "exception.type": type(error).__qualname__,
            "exception.message": message,
            # The end of a stack says where it broke.
            "exception.stacktrace": redact_text("".join(format_exception(error)))[
                -TEXT_CHARACTERS_MAX:
            ],
        },
    )


def set_attributes(span: Span, attributes: Mapping[str, AttributeValue]) -> None:
    """Put attributes on a span, secrets redacted by name and inside texts."""
    span.set_attributes(safe_attributes(attributes))


def safe_attributes(attributes: Mapping[str, AttributeValue] | None) -> dict[str, AttributeValue]:
    """The attributes with secrets redacted; the last part of a dotted name decides."""
    safe: dict[str, AttributeValue] = {}
    for name, value in (attributes or {}).items():
        shown = redact(value, name.rpartition(".")[2])
        safe[name] = shown if isinstance(shown, (str, bool, int, float)) else str(shown)
    return safe


def _tracer() -> trace.Tracer:
    return trace.get_tracer(SCOPE)


@contextmanager
def _open(
    name: str,
    attributes: Mapping[str, AttributeValue] | None,
    kind: SpanKind,
    context: Context | None,
) -> Iterator[Span]:
    with _tracer().start_as_current_span(
        name,
        context=context,
        kind=kind,
        attributes=safe_attributes(attributes),
        record_exception=False,
        set_status_on_exception=False,
    ) as opened:
        try:
            yield opened
        except Exception as error:
            record_error(opened, error)
            raise
