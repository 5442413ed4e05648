"""Every HTTP request is a span under its caller's, and a duration with bounded labels."""

from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fastvideo.telemetry import tracing
from fastvideo_gateway.http.tracing import Traced
from tests.spans import recorded_spans

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    with recorded_spans() as exporter:
        yield exporter


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> InMemoryMetricReader:
    kept = InMemoryMetricReader()
    provider = MeterProvider([kept], shutdown_on_exit=False)
    monkeypatch.setattr("opentelemetry.metrics.get_meter", provider.get_meter)
    return kept


async def _video(request: Request) -> Response:
    with tracing.span("look up"):
        if request.path_params["video_id"] == "broken":
            raise RuntimeError("a defect")
        return Response("found")


def _app() -> Traced:
    async def fine(_: Request) -> Response:
        return Response("fine")

    routes = [Route("/v1/videos/{video_id}", _video), Route("/health/live", fine)]
    return Traced(Starlette(routes=routes))


async def ask(path: str, method: str = "GET", traceparent: str = "") -> int:
    """The status of an answer; a defect is what the server above would make of it."""
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "scheme": "http",
        "query_string": b"key=secret",
        "headers": [(b"traceparent", traceparent.encode())] if traceparent else [],
    }
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    try:
        await _app()(scope, receive, send)
    except RuntimeError:
        assert sent[0]["status"] == 500
    return int(sent[0]["status"])


def named(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    (span,) = [span for span in spans.get_finished_spans() if span.name == name]
    return span


async def test_a_callers_trace_goes_on_in_here(spans: InMemorySpanExporter) -> None:
    assert await ask("/v1/videos/req_1", traceparent=CALLER) == 200
    door, inner = named(spans, "GET /v1/videos/{video_id}"), named(spans, "look up")
    assert door.kind is SpanKind.SERVER
    assert f"{door.context.trace_id:032x}" == CALLER.split("-")[1]
    assert door.parent is not None
    assert f"{door.parent.span_id:016x}" == CALLER.split("-")[2]
    assert inner.parent is not None
    assert inner.parent.span_id == door.context.span_id
    attributes = dict(door.attributes or {})
    assert attributes["http.route"] == "/v1/videos/{video_id}"
    assert attributes["http.response.status_code"] == 200
    assert "secret" not in str(attributes)


@pytest.mark.parametrize("given", ["", "00-zz-zz-01", "ff" * 40, "00-" + "0" * 32 + "-1-01"])
async def test_without_a_traceparent_that_is_one_a_trace_begins(
    spans: InMemorySpanExporter, given: str
) -> None:
    assert await ask("/v1/videos/req_1", traceparent=given) == 200
    assert named(spans, "GET /v1/videos/{video_id}").parent is None


async def test_a_defect_fails_the_span_and_a_refusal_does_not(spans: InMemorySpanExporter) -> None:
    assert await ask("/v1/videos/broken") == 500
    assert await ask("/nothing/here") == 404
    failed, refused = named(spans, "GET /v1/videos/{video_id}"), named(spans, "GET")
    assert failed.status.status_code is StatusCode.ERROR
    assert refused.status.status_code is StatusCode.UNSET


async def test_probes_are_not_traced(spans: InMemorySpanExporter) -> None:
    assert await ask("/health/live") == 200
    assert spans.get_finished_spans() == ()


async def test_labels_are_those_of_routes_whatever_is_asked(reader: InMemoryMetricReader) -> None:
    for path in (*(f"/v1/videos/req_{index}" for index in range(20)), "/a", "/b", "/c/d"):
        await ask(path)
    await ask("/v1/videos/req_1", method="BREW")
    data = reader.get_metrics_data()
    assert data is not None
    (metric,) = data.resource_metrics[0].scope_metrics[0].metrics
    points: Any = metric.data.data_points
    told = {
        tuple(str(value) for _, value in sorted((point.attributes or {}).items())): point.count
        for point in points
    }
    assert told == {
        ("GET", "200", "/v1/videos/{video_id}"): 20,
        ("GET", "404", ""): 3,
        ("_OTHER", "405", "/v1/videos/{video_id}"): 1,
    }
