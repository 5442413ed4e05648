"""Client interceptors for grpc.aio: one span a call, its traceparent in the metadata.

grpc.aio dispatches an interceptor by one class, so there is one for each kind of call.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import grpc
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from fastvideo.telemetry.rpc_spans import is_traced, rpc_attributes, rpc_name
from fastvideo.telemetry.tracing import SCOPE, TRACEPARENT, record_error, traceparent_of

Continuation = Callable[..., Any]


def client_interceptors() -> list[grpc.aio.ClientInterceptor]:
    """The interceptors that a channel needs to carry the current trace in every call."""
    return [_UnaryUnary(), _UnaryStream(), _StreamUnary(), _StreamStream()]


class _Tracing:
    """Starts the span of a call and ends it when the call does."""

    def __init__(self) -> None:
        # asyncio keeps no strong reference to a task.
        self._ending: Final[set[asyncio.Task[None]]] = set()

    async def _traced(
        self, continuation: Continuation, details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        method = _text(details.method)
        if not is_traced(method):
            return await continuation(details, request)
        span = trace.get_tracer(SCOPE).start_span(
            rpc_name(method), kind=SpanKind.CLIENT, attributes=rpc_attributes(method)
        )
        try:
            call = await continuation(_with_traceparent(details, span), request)
        except BaseException as error:
            record_error(span, error)
            span.end()
            raise
        call.add_done_callback(lambda done: self._end_later(done, span))
        return call

    def _end_later(self, call: Any, span: Span) -> None:
        task = asyncio.ensure_future(_end(call, span))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


class _UnaryUnary(_Tracing, grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(
        self,
        continuation: Continuation,
        client_call_details: grpc.aio.ClientCallDetails,
        request: Any,
    ) -> Any:
        return await self._traced(continuation, client_call_details, request)


class _UnaryStream(_Tracing, grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(
        self,
        continuation: Continuation,
        client_call_details: grpc.aio.ClientCallDetails,
        request: Any,
    ) -> Any:
        return await self._traced(continuation, client_call_details, request)


class _StreamUnary(_Tracing, grpc.aio.StreamUnaryClientInterceptor):
    async def intercept_stream_unary(
        self,
        continuation: Continuation,
        client_call_details: grpc.aio.ClientCallDetails,
        request_iterator: Any,
    ) -> Any:
        return await self._traced(continuation, client_call_details, request_iterator)


class _StreamStream(_Tracing, grpc.aio.StreamStreamClientInterceptor):
    async def intercept_stream_stream(
        self,
        continuation: Continuation,
        client_call_details: grpc.aio.ClientCallDetails,
        request_iterator: Any,
    ) -> Any:
        return await self._traced(continuation, client_call_details, request_iterator)


def _with_traceparent(
    details: grpc.aio.ClientCallDetails, span: Span
) -> grpc.aio.ClientCallDetails:
    metadata = grpc.aio.Metadata(*(details.metadata or ()))
    traceparent = traceparent_of(span)
    if traceparent:
        metadata[TRACEPARENT] = traceparent
    return grpc.aio.ClientCallDetails(
        details.method,
        details.timeout,
        metadata,
        details.credentials,
        details.wait_for_ready,
    )


async def _end(call: Any, span: Span) -> None:
    code: grpc.StatusCode = await call.code()
    span.set_attribute("rpc.grpc.status_code", code.value[0])
    # A caller that has read enough cancels: that is no failure.
    if code not in (grpc.StatusCode.OK, grpc.StatusCode.CANCELLED):
        span.set_status(Status(StatusCode.ERROR, code.name))
    span.end()


def _text(method: str | bytes) -> str:
    return method.decode() if isinstance(method, bytes) else method
