"""Traces over gRPC, and out to an OTLP receiver."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from fastvideo.api.artifacts.v1 import artifacts_pb2, artifacts_pb2_grpc
from fastvideo.errors import NotFound
from fastvideo.rpc.channel import open_channel
from fastvideo.rpc.server import Server, Service
from fastvideo.telemetry import providers, tracing
from fastvideo.telemetry.config import TelemetryConfig
from tests.otlp import otlp_receiver
from tests.spans import recorded_spans

SERVICE = "fastvideo.artifacts.v1.ArtifactService"
DEADLINE_S = 60.0


class Artifacts(artifacts_pb2_grpc.ArtifactServiceServicer):
    """Works inside a span of its own, so that the chain of parents can be seen."""

    async def StatArtifact(self, request: Any, context: Any) -> Any:
        with tracing.span("look up"):
            if request.artifact_id == "missing":
                raise NotFound("no artifact missing", subject="missing")
        return artifacts_pb2.StatArtifactResponse()

    async def GetArtifact(self, request: Any, context: Any) -> AsyncIterator[Any]:
        for _ in range(3):
            with tracing.span("read"):
                yield artifacts_pb2.GetArtifactResponse(chunk=b"x")

    async def PutArtifact(self, request_iterator: Any, context: Any) -> Any:
        async for _ in request_iterator:
            with tracing.span("write"):
                pass
        return artifacts_pb2.PutArtifactResponse()


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    with recorded_spans() as exporter:
        yield exporter


@pytest.fixture
async def stub() -> AsyncIterator[artifacts_pb2_grpc.ArtifactServiceStub]:
    service = Service.of(
        artifacts_pb2.DESCRIPTOR,
        "ArtifactService",
        artifacts_pb2_grpc.add_ArtifactServiceServicer_to_server,
        Artifacts(),
    )
    async with Server("127.0.0.1:0", [service]) as server, open_channel(server.address) as channel:
        yield artifacts_pb2_grpc.ArtifactServiceStub(channel)


async def ended(spans: InMemorySpanExporter, count: int) -> list[ReadableSpan]:
    """The spans, oldest first, once so many have ended."""
    async with asyncio.timeout(DEADLINE_S):
        while len(spans.get_finished_spans()) < count:
            await asyncio.sleep(0.005)
    return sorted(spans.get_finished_spans(), key=lambda span: span.start_time or 0)


def chain(spans: list[ReadableSpan]) -> list[tuple[str, SpanKind, str]]:
    """Name, kind and parent's name of each span; all are of one trace."""
    assert len({span.context.trace_id for span in spans}) == 1
    names = {span.context.span_id: span.name for span in spans}
    return [
        (span.name, span.kind, names[span.parent.span_id] if span.parent else "") for span in spans
    ]


async def test_one_trace_runs_from_the_caller_into_the_handler(
    stub: Any, spans: InMemorySpanExporter
) -> None:
    with tracing.span("generate"):
        await stub.StatArtifact(artifacts_pb2.StatArtifactRequest(), timeout=DEADLINE_S)
    method = f"{SERVICE}/StatArtifact"
    assert chain(await ended(spans, 4)) == [
        ("generate", SpanKind.INTERNAL, ""),
        (method, SpanKind.CLIENT, "generate"),
        (method, SpanKind.SERVER, method),
        ("look up", SpanKind.INTERNAL, method),
    ]


async def test_a_server_stream_is_one_span_that_ends_with_it(
    stub: Any, spans: InMemorySpanExporter
) -> None:
    with tracing.span("fetch"):
        call = stub.GetArtifact(artifacts_pb2.GetArtifactRequest(), timeout=DEADLINE_S)
        assert [message.chunk async for message in call] == [b"x"] * 3
    names = [name for name, _, _ in chain(await ended(spans, 6))]
    method = f"{SERVICE}/GetArtifact"
    assert names == ["fetch", method, method, "read", "read", "read"]


async def test_a_client_stream_is_one_span(stub: Any, spans: InMemorySpanExporter) -> None:
    async def chunks() -> AsyncIterator[artifacts_pb2.PutArtifactRequest]:
        for _ in range(2):
            yield artifacts_pb2.PutArtifactRequest(chunk=b"x")

    with tracing.span("store"):
        await stub.PutArtifact(chunks(), timeout=DEADLINE_S)
    names = [name for name, _, _ in chain(await ended(spans, 5))]
    method = f"{SERVICE}/PutArtifact"
    assert names == ["store", method, method, "write", "write"]


async def test_a_failed_call_marks_both_sides(stub: Any, spans: InMemorySpanExporter) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await stub.StatArtifact(
            artifacts_pb2.StatArtifactRequest(artifact_id="missing"), timeout=DEADLINE_S
        )
    client, server, _ = await ended(spans, 3)
    for span in (client, server):
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes is not None
        assert span.attributes["rpc.grpc.status_code"] == grpc.StatusCode.NOT_FOUND.value[0]
    assert server.attributes is not None
    assert server.attributes["fastvideo.error.reason"] == "NOT_FOUND"
    assert server.attributes["fastvideo.error.subject"] == "missing"


async def test_a_stream_that_its_reader_has_enough_of_is_no_failure(
    stub: Any, spans: InMemorySpanExporter
) -> None:
    call = stub.GetArtifact(artifacts_pb2.GetArtifactRequest(), timeout=DEADLINE_S)
    await call.read()
    call.cancel()
    async with asyncio.timeout(DEADLINE_S):
        while SpanKind.CLIENT not in {span.kind for span in spans.get_finished_spans()}:
            await asyncio.sleep(0.005)
    found = spans.get_finished_spans()
    (client,) = [span for span in found if span.kind is SpanKind.CLIENT]
    assert client.attributes is not None
    assert client.attributes["rpc.grpc.status_code"] == grpc.StatusCode.CANCELLED.value[0]
    assert [span for span in found if span.status.status_code is StatusCode.ERROR] == []


def test_spans_and_metrics_reach_an_otlp_receiver() -> None:
    with otlp_receiver() as receiver:
        telemetry = providers.build("scheduler", TelemetryConfig(otlp_endpoint=receiver.endpoint))
        with telemetry.tracer_provider.get_tracer("t").start_as_current_span("decide"):
            telemetry.meter_provider.get_meter("t").create_counter("fastvideo.decisions").add(1)
        telemetry.shutdown()
        (span,) = receiver.spans
    assert (span.service, span.name) == ("scheduler", "decide")
    assert "fastvideo.decisions" in receiver.metrics


def test_a_receiver_that_is_away_costs_neither_spans_time_nor_a_hang() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    telemetry = providers.build("worker", TelemetryConfig(otlp_endpoint=f"http://127.0.0.1:{port}"))
    tracer = telemetry.tracer_provider.get_tracer("t")
    # More than the queue holds: the rest is dropped, nobody waits.
    for _ in range(providers.QUEUE_SPANS_MAX + 100):
        tracer.start_span("step").end()
    started = time.monotonic()
    telemetry.shutdown()
    assert time.monotonic() - started < providers.SHUTDOWN_S_MAX + 10
