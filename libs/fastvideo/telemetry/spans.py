"""Spans as they are kept and read: plain data, and OTLP's JSON of it."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode, format_span_id, format_trace_id

Value = str | bool | int | float

# OTLP's SpanKind and StatusCode by number.
_KINDS: Final = ("unspecified", "internal", "server", "client", "producer", "consumer")
_ERROR: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanLink:
    """Another span that a span has to do with, maybe of another trace."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRecord:
    """One span; ids are hexadecimal, times nanoseconds of Unix time."""

    service: str
    name: str
    trace_id: str
    span_id: str
    # Empty for a root.
    parent_id: str = ""
    kind: str = "internal"
    start_ns: int = 0
    end_ns: int = 0
    attributes: Mapping[str, Value] = field(default_factory=dict)
    links: tuple[SpanLink, ...] = ()
    failed: bool = False
    # What the status says of a failure.
    message: str = ""
    # Which process it was.
    instance: str = ""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return max(0, self.end_ns - self.start_ns) / 1e9


# -- out ---------------------------------------------------------------------------------


def otlp_line(resource: Mapping[str, Any], spans: Sequence[ReadableSpan]) -> str:
    """An OTLP/JSON export of spans of one process, as one line without its end."""
    document = {
        "resourceSpans": [
            {
                "resource": {"attributes": _key_values(resource)},
                "scopeSpans": [{"spans": [_span(span) for span in spans]}],
            }
        ]
    }
    return json.dumps(document, separators=(",", ":"))


def _span(span: ReadableSpan) -> dict[str, Any]:
    context = span.get_span_context()
    assert context is not None
    told: dict[str, Any] = {
        "traceId": format_trace_id(context.trace_id),
        "spanId": format_span_id(context.span_id),
        "name": span.name,
        "kind": span.kind.value + 1,
        "startTimeUnixNano": str(span.start_time),
        "endTimeUnixNano": str(span.end_time),
    }
    if span.parent is not None:
        told["parentSpanId"] = format_span_id(span.parent.span_id)
    if span.attributes:
        told["attributes"] = _key_values(span.attributes)
    if span.links:
        told["links"] = [
            {
                "traceId": format_trace_id(link.context.trace_id),
                "spanId": format_span_id(link.context.span_id),
            }
            for link in span.links
        ]
    if span.status.status_code is StatusCode.ERROR:
        told["status"] = {"code": _ERROR, "message": span.status.description or ""}
    return told


def _key_values(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: object) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": str(value)}


# -- in ----------------------------------------------------------------------------------


def spans_of_otlp(document: Mapping[str, Any]) -> Iterator[SpanRecord]:
    """The spans of an OTLP/JSON document, of a file's line, or of Tempo's or Jaeger's answer.

    Raises KeyError, TypeError or ValueError for what is none.
    """
    for resource in document.get("resourceSpans") or document.get("batches") or ():
        about = _attributes(resource.get("resource", {}).get("attributes", ()))
        service = str(about.get("service.name", ""))
        instance = str(about.get("service.instance.id", ""))
        for scope in resource.get("scopeSpans") or resource.get("instrumentationLibrarySpans", ()):
            for span in scope.get("spans", ()):
                yield _record(service, instance, span)


def _record(service: str, instance: str, span: Mapping[str, Any]) -> SpanRecord:
    status = span.get("status") or {}
    return SpanRecord(
        service=service,
        instance=instance,
        name=str(span["name"]),
        trace_id=hex_id(span["traceId"], 32),
        span_id=hex_id(span["spanId"], 16),
        parent_id=hex_id(span.get("parentSpanId", ""), 16),
        kind=_kind(span.get("kind", 0)),
        start_ns=int(span["startTimeUnixNano"]),
        end_ns=int(span.get("endTimeUnixNano", span["startTimeUnixNano"])),
        attributes=_attributes(span.get("attributes", ())),
        links=tuple(
            SpanLink(trace_id=hex_id(link["traceId"], 32), span_id=hex_id(link["spanId"], 16))
            for link in span.get("links", ())
        ),
        failed=status.get("code") in (_ERROR, "STATUS_CODE_ERROR"),
        message=str(status.get("message", "")),
    )


def hex_id(text: str, digits: int) -> str:
    """An id as hexadecimal digits; Tempo's are base64."""
    if len(text) in (0, digits):
        return text.lower()
    import base64

    return base64.b64decode(text, validate=True).hex()


def _kind(kind: object) -> str:
    if isinstance(kind, int):
        return _KINDS[kind] if 0 <= kind < len(_KINDS) else _KINDS[0]
    return str(kind).removeprefix("SPAN_KIND_").lower()


def _attributes(items: Iterable[Mapping[str, Any]]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for item in items:
        for kind, value in (item.get("value") or {}).items():
            values[str(item["key"])] = int(value) if kind == "intValue" else _plain(value)
    return values


def _plain(value: object) -> Value:
    return value if isinstance(value, str | bool | int | float) else str(value)
