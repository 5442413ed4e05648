"""A server interceptor for grpc.aio: one span a call, under the caller's."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from fastvideo.telemetry.grpc_handlers import rewrap
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
        return rewrap(handler, lambda context: _span_of_call(method, traceparent, context))


@asynccontextmanager
async def _span_of_call(method: str, traceparent: str, context: Any) -> AsyncIterator[None]:
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
            code = context.code()
            span.set_attribute("rpc.grpc.status_code", code.value[0])
            if code in _SERVER_FAULTS:
                span.set_status(Status(StatusCode.ERROR, code.name))
            raise
        except Exception as error:
            record_error(span, error)
            raise


def _traceparent(details: grpc.HandlerCallDetails) -> str:
    for key, value in details.invocation_metadata or ():
        if key == TRACEPARENT and isinstance(value, str):
            return value
    return ""
