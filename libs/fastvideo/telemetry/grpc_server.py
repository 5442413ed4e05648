"""A server interceptor for grpc.aio: one span a call, under the caller's, and its duration."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from opentelemetry import trace
from opentelemetry.metrics import Histogram
from opentelemetry.trace import SpanKind, Status, StatusCode

from fastvideo.telemetry import metrics
from fastvideo.telemetry.grpc_handlers import rewrap
from fastvideo.telemetry.instruments import RPC_DURATION
from fastvideo.telemetry.rpc_spans import is_traced, rpc_attributes, rpc_name
from fastvideo.telemetry.tracing import SCOPE, TRACEPARENT, context_from, record_error

# What a caller must answer for is not a failure of this server.
_SERVER_FAULTS = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.DATA_LOSS,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)


class TracingInterceptor(grpc.aio.ServerInterceptor):
    """Runs each handler inside a span named by its RPC; the outermost interceptor."""

    def __init__(self) -> None:
        self._duration = metrics.histogram(RPC_DURATION)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not is_traced(method):
            return handler
        traceparent = _traceparent(handler_call_details)
        return rewrap(
            handler, lambda call: _span_of_call(method, traceparent, call, self._duration)
        )


@asynccontextmanager
async def _span_of_call(
    method: str, traceparent: str, context: Any, duration: Histogram
) -> AsyncIterator[None]:
    begun_s = time.perf_counter()
    status = grpc.StatusCode.OK
    with trace.get_tracer(SCOPE).start_as_current_span(
        rpc_name(method),
        context=context_from(traceparent),
        kind=SpanKind.SERVER,
        attributes=rpc_attributes(method),
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except grpc.aio.AbortError:
            status = context.code()
            span.set_attribute("rpc.grpc.status_code", status.value[0])
            if status in _SERVER_FAULTS:
                span.set_status(Status(StatusCode.ERROR, status.name))
            raise
        except asyncio.CancelledError:
            status = grpc.StatusCode.CANCELLED
            raise
        except Exception as error:
            status = grpc.StatusCode.UNKNOWN
            record_error(span, error)
            raise
        finally:
            labels = {"rpc.method": rpc_name(method), "rpc.response.status_code": status.name}
            duration.record(time.perf_counter() - begun_s, labels)


def _traceparent(details: grpc.HandlerCallDetails) -> str:
    for key, value in details.invocation_metadata or ():
        if key == TRACEPARENT and isinstance(value, str):
            return value
    return ""
