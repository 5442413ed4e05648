"""Spans as OTLP/JSON, and what trace stores answer."""

import json

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from fastvideo.errors import FailedPrecondition, NotFound
from fastvideo.telemetry import tracing
from fastvideo.telemetry.spans import SpanLink, otlp_line, spans_of_otlp
from fastvideo.telemetry.trace_stores import spans_of_answer

OTHER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_what_is_written_is_read_again(spans: InMemorySpanExporter) -> None:
    about = {"steps": 20, "share": 0.5, "last": True}
    with tracing.span("outer", about, kind=SpanKind.PRODUCER), tracing.span("inner") as inner:
        tracing.link(inner, OTHER)
        tracing.record_error(inner, NotFound("no artifact", subject="art_1"))
    line = otlp_line(
        {"service.name": "worker", "service.instance.id": "worker-1"}, spans.get_finished_spans()
    )
    assert "\n" not in line
    read_inner, read_outer = spans_of_otlp(json.loads(line))
    assert (read_outer.service, read_outer.instance, read_outer.kind) == (
        "worker",
        "worker-1",
        "producer",
    )
    assert read_outer.attributes["steps"] == 20
    assert read_outer.attributes["share"] == 0.5
    assert read_outer.attributes["last"] is True
    assert read_inner.parent_id == read_outer.span_id
    assert read_outer.seconds >= read_inner.seconds >= 0
    assert (read_inner.failed, read_inner.message) == (True, "no artifact")
    assert read_inner.links == (SpanLink(trace_id=OTHER[3:35], span_id=OTHER[36:52]),)


JAEGER = {
    "data": [
        {
            "traceID": "af7651916cd43dd8448eb211c80319c",
            "spans": [
                {
                    "traceID": "af7651916cd43dd8448eb211c80319c",
                    "spanID": "1",
                    "operationName": "scheduler.batch",
                    "references": [
                        {"refType": "CHILD_OF", "traceID": "af", "spanID": "b7ad6b7169203331"},
                        {"refType": "FOLLOWS_FROM", "traceID": "2", "spanID": "3"},
                    ],
                    "startTime": 1_000_000,
                    "duration": 2_500,
                    "tags": [
                        {"key": "span.kind", "type": "string", "value": "producer"},
                        {"key": "error", "type": "bool", "value": True},
                        {"key": "otel.status_description", "value": "a unit failed"},
                        {"key": "fastvideo.batch.units", "type": "int64", "value": 3},
                    ],
                    "processID": "p1",
                }
            ],
            "processes": {"p1": {"serviceName": "scheduler", "tags": []}},
        }
    ]
}


def test_jaegers_answer_is_read() -> None:
    (span,) = spans_of_answer(JAEGER)
    assert (span.service, span.name, span.kind) == ("scheduler", "scheduler.batch", "producer")
    assert span.trace_id == "0af7651916cd43dd8448eb211c80319c"
    assert (span.span_id, span.parent_id) == ("0000000000000001", "b7ad6b7169203331")
    assert (span.seconds, span.failed, span.message) == (0.0025, True, "a unit failed")
    assert span.links == (SpanLink(trace_id=f"{2:032x}", span_id=f"{3:016x}"),)
    assert span.attributes == {"fastvideo.batch.units": 3}


@pytest.mark.parametrize("wrap", [{}, {"trace": None}, {"result": None}])
def test_otlp_is_read_as_tempo_and_jaeger_wrap_it(wrap: dict[str, None]) -> None:
    batch = {
        "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "gateway"}}]},
        "scopeSpans": [
            {
                "spans": [
                    {
                        # Tempo's ids are base64.
                        "traceId": "CvdlGRbNQ92ESOshHIAxnA==",
                        "spanId": "t61rcWkgMzE=",
                        "name": "POST /v1/videos",
                        "kind": "SPAN_KIND_SERVER",
                        "startTimeUnixNano": "5",
                        "endTimeUnixNano": "9",
                    }
                ]
            }
        ],
    }
    document = {"batches" if not wrap else "resourceSpans": [batch]}
    (span,) = spans_of_answer(dict.fromkeys(wrap, document) or document)
    assert (span.trace_id, span.span_id) == (OTHER[3:35], OTHER[36:52])
    assert (span.service, span.kind, span.end_ns) == ("gateway", "server", 9)


@pytest.mark.parametrize("answer", [[], {}, {"data": [{}]}, {"errors": ["no"]}, {"trace": 1}])
def test_another_answer_is_refused_by_what_it_is_not(answer: object) -> None:
    with pytest.raises(FailedPrecondition) as caught:
        spans_of_answer(answer)
    assert caught.value.reason == "UNKNOWN_ANSWER"
