"""OpenTelemetry traces that cross gRPC, the event log and the bus as a W3C traceparent."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from traceback import format_exception
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from fastvideo.errors import FastVideoError
from fastvideo.telemetry.redaction import redact, redact_text

AttributeValue = str | bool | int | float

SCOPE: Final = "fastvideo"
TRACEPARENT: Final = "traceparent"
TEXT_CHARACTERS_MAX: Final = 1_000
# Of a longer text only the start is looked at, so that no caller's input costs much to write down.
_LOOKED_AT_CHARACTERS_MAX: Final = 16_384

_PROPAGATOR: Final = TraceContextTextMapPropagator()


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


def fail(span: Span, reason: str, message: str) -> None:
    """Mark a span failed by an error that was told, not raised; secrets are redacted."""
    text = redact_text(f"{reason}: {message}"[:_LOOKED_AT_CHARACTERS_MAX])
    span.set_status(Status(StatusCode.ERROR, text[:TEXT_CHARACTERS_MAX]))
    span.set_attribute("fastvideo.error.reason", reason)


def set_attributes(span: Span, attributes: Mapping[str, AttributeValue]) -> None:
    """Put attributes on a span, secrets redacted by name and inside texts."""
    span.set_attributes(safe_attributes(attributes))


def safe_attributes(attributes: Mapping[str, AttributeValue] | None) -> dict[str, AttributeValue]:
    """The attributes with secrets redacted; the last part of a dotted name decides."""
    return {name: _safe(name, value) for name, value in (attributes or {}).items()}


def _safe(name: str, value: AttributeValue) -> AttributeValue:
    shown = redact(value, name.rpartition(".")[2])
    return shown if isinstance(shown, str | bool | int | float) else str(shown)


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
