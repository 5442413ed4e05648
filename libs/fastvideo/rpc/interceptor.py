"""The server interceptor that turns exceptions into statuses."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
from grpc_status import rpc_status
from opentelemetry import trace

from fastvideo.errors import FastVideoError
from fastvideo.rpc.errors import to_status
from fastvideo.telemetry import metrics
from fastvideo.telemetry.grpc_handlers import rewrap
from fastvideo.telemetry.instruments import ERRORS, REASON, reason_label
from fastvideo.telemetry.logging import get_logger
from fastvideo.telemetry.tracing import record_error

_LOG: Final = get_logger(__name__)


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Ends a call whose handler raised with the error's status and details.

    A FastVideoError answers with its own kind. Any other exception is a bug: it is logged with
    its stack, and the caller learns only that it is internal.
    """

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        method = handler_call_details.method
        return rewrap(handler, lambda context: _answering(method, context))


@asynccontextmanager
async def _answering(method: str, context: Any) -> AsyncIterator[None]:
    try:
        yield
    except grpc.aio.AbortError:
        raise
    except grpc.aio.InternalError:
        # Nothing can be sent any more: the client is gone, in the middle of an answer.
        raise asyncio.CancelledError from None
    except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets a status
        record_error(trace.get_current_span(), error)
        status = to_status(error)
        reason = error.reason if isinstance(error, FastVideoError) else "INTERNAL"
        metrics.counter(ERRORS).add(1, {REASON: reason_label(reason)})
        if (
            not isinstance(error, FastVideoError)
            or status.code == grpc.StatusCode.INTERNAL.value[0]
        ):
            _LOG.exception("rpc failed", method=method)
        await context.abort_with_status(rpc_status.to_status(status))
