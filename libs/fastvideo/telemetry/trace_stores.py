"""What trace stores answer, as spans: Jaeger's JSON, and OTLP's as Tempo and Jaeger wrap it."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from fastvideo.errors import FailedPrecondition
from fastvideo.telemetry.spans import SpanLink, SpanRecord, Value, hex_id, spans_of_otlp

# Where OTLP's document is in an answer: of Tempo (v2), of Jaeger (v3).
_WRAPPINGS: Final = ("trace", "result")


def spans_of_answer(document: object) -> tuple[SpanRecord, ...]:
    """The spans of an answer. Raises FailedPrecondition for one that is of no known shape."""
    try:
        if not isinstance(document, Mapping):
            raise TypeError("an object is expected")
        if isinstance(document.get("data"), list):
            return tuple(span for trace in document["data"] for span in _spans_of_jaeger(trace))
        inner = next((document[name] for name in _WRAPPINGS if name in document), document)
        if not {"resourceSpans", "batches"} & set(inner):
            raise KeyError("resourceSpans")
        return tuple(spans_of_otlp(inner))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise FailedPrecondition(
            f"the trace store answered neither as Jaeger nor as OTLP: {error!r}",
            reason="UNKNOWN_ANSWER",
            subject="FASTVIDEO_TRACE_QUERY_URL",
        ) from error


def _spans_of_jaeger(trace: Mapping[str, Any]) -> Iterable[SpanRecord]:
    processes = trace.get("processes", {})
    for span in trace["spans"]:
        process = processes.get(span.get("processID", ""), {})
        about, tags = _tags(process.get("tags", ())), _tags(span.get("tags", ()))
        start_ns = int(span["startTime"]) * 1_000
        references = span.get("references") or ()
        parent = next((ref for ref in references if ref.get("refType") == "CHILD_OF"), None)
        yield SpanRecord(
            service=str(process.get("serviceName", "")),
            instance=str(about.get("service.instance.id", "")),
            name=str(span["operationName"]),
            trace_id=_padded(span["traceID"], 32),
            span_id=_padded(span["spanID"], 16),
            parent_id=_padded(parent["spanID"], 16) if parent is not None else "",
            kind=str(tags.pop("span.kind", "internal")),
            start_ns=start_ns,
            end_ns=start_ns + int(span["duration"]) * 1_000,
            links=tuple(
                SpanLink(trace_id=_padded(ref["traceID"], 32), span_id=_padded(ref["spanID"], 16))
                for ref in references
                if ref is not parent
            ),
            failed=bool(tags.pop("error", False)) or tags.get("otel.status_code") == "ERROR",
            message=str(tags.pop("otel.status_description", "")),
            attributes=tags,
        )


def _tags(tags: Iterable[Mapping[str, Any]]) -> dict[str, Value]:
    return {str(tag["key"]): tag["value"] for tag in tags}


def _padded(text: str, digits: int) -> str:
    """An id; Jaeger leaves out zeros in front."""
    return hex_id(text.zfill(digits), digits)
