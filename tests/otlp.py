"""An OTLP receiver inside a test: what services export, kept in memory."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


@dataclass(frozen=True)
class ReceivedSpan:
    """One span as it came over the wire; ids are hexadecimal."""

    service: str
    name: str
    trace_id: str
    span_id: str
    # Empty for a root.
    parent_id: str
    attributes: dict[str, Any]
    linked_trace_ids: tuple[str, ...]
    failed: bool


class OtlpReceiver(
    trace_service_pb2_grpc.TraceServiceServicer, metrics_service_pb2_grpc.MetricsServiceServicer
):
    """Keeps spans and the names of metrics."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.metrics: set[str] = set()
        self._spans: list[ReceivedSpan] = []
        self._lock = threading.Lock()

    @property
    def spans(self) -> list[ReceivedSpan]:
        """All that has come so far."""
        with self._lock:
            return list(self._spans)

    def Export(self, request: Any, context: Any) -> Any:
        """Either service's one method."""
        if isinstance(request, metrics_service_pb2.ExportMetricsServiceRequest):
            with self._lock:
                self.metrics |= {
                    metric.name
                    for resource in request.resource_metrics
                    for scope in resource.scope_metrics
                    for metric in scope.metrics
                }
            return metrics_service_pb2.ExportMetricsServiceResponse()
        with self._lock:
            for resource in request.resource_spans:
                service = str(_values(resource.resource.attributes)["service.name"])
                self._spans += [
                    _received(service, span)
                    for scope in resource.scope_spans
                    for span in scope.spans
                ]
        return trace_service_pb2.ExportTraceServiceResponse()


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """A receiver on a free port of the loopback; its `endpoint` is what to configure."""
    receiver = OtlpReceiver()
    server = grpc.server(ThreadPoolExecutor(max_workers=2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(receiver, server)
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(receiver, server)
    port = server.add_insecure_port("127.0.0.1:0")
    receiver.endpoint = f"http://127.0.0.1:{port}"
    server.start()
    try:
        yield receiver
    finally:
        server.stop(0).wait()


def _received(service: str, span: Any) -> ReceivedSpan:
    return ReceivedSpan(
        service=service,
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        attributes=_values(span.attributes),
        linked_trace_ids=tuple(link.trace_id.hex() for link in span.links),
        failed=span.status.code == span.status.STATUS_CODE_ERROR,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {
        item.key: getattr(item.value, item.value.WhichOneof("value"))
        for item in attributes
        if item.value.WhichOneof("value")
    }
