"""The server interceptor that says who calls."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc

from fastvideo.rpc.identity import ANYBODY, Caller, calling
from fastvideo.telemetry.grpc_handlers import rewrap

Identify = Callable[[Mapping[str, str]], Awaitable[Caller]]
"""From the text metadata of a call to its caller; raises Unauthenticated."""

# Probes and reflection tell nothing of anybody.
_OPEN_SERVICES: Final = ("/grpc.health.v1.Health/", "/grpc.reflection.")


class CallerInterceptor(grpc.aio.ServerInterceptor):
    """Runs each call for the caller that its metadata tells of."""

    def __init__(self, identify: Identify) -> None:
        self._identify = identify

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or handler_call_details.method.startswith(_OPEN_SERVICES):
            return handler
        return rewrap(handler, self._calling)

    @asynccontextmanager
    async def _calling(self, context: Any) -> AsyncIterator[None]:
        texts = {
            key: value
            for key, value in context.invocation_metadata() or ()
            if isinstance(value, str)
        }
        with calling(await self._identify(texts)):
            yield


async def anybody(metadata: Mapping[str, str]) -> Caller:
    """Every caller of a stack that is open."""
    return ANYBODY
