"""The server interceptor that says who calls, and keeps out who may not."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import grpc

from fastvideo.rpc.identity import (
    ANYBODY,
    DEFAULT_TENANT,
    Access,
    Caller,
    Role,
    calling,
    require_operator,
)
from fastvideo.rpc.outgoing import TENANT
from fastvideo.telemetry.grpc_handlers import rewrap

Entering = Callable[[Mapping[str, str]], AbstractAsyncContextManager[Caller]]
"""From the text metadata of a call to its caller, for as long as the call may run.

Entering raises Unauthenticated; so does leaving when the caller's time ended meanwhile."""

# A probe tells nothing of anybody, and is over at once.
_PROBE: Final = "/grpc.health.v1.Health/Check"
# Nor do these; but they last, and there are only so many calls at a time.
_OF_THE_SERVER: Final = ("/grpc.health.v1.Health/", "/grpc.reflection.")


class CallerInterceptor(grpc.aio.ServerInterceptor):
    """Runs each call for the caller that its metadata tells of.

    `access` says by method ("/package.Service/Method") who may call it; what it does not name is
    for operators. Without it every caller may call everything.
    """

    def __init__(self, entering: Entering, access: Mapping[str, Access] | None = None) -> None:
        self._entering = entering
        self._access = access

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method == _PROBE:
            return handler
        access = Access.TENANT
        if self._access is not None and not method.startswith(_OF_THE_SERVER):
            access = self._access.get(method, Access.OPERATOR)
        if access is Access.PUBLIC:
            return handler
        return rewrap(handler, lambda context: self._calling(context, access))

    @asynccontextmanager
    async def _calling(self, context: Any, access: Access) -> AsyncIterator[None]:
        texts = {
            key: value
            for key, value in context.invocation_metadata() or ()
            if isinstance(value, str)
        }
        async with self._entering(texts) as caller:
            with calling(caller):
                if access is Access.OPERATOR:
                    require_operator()
                yield


@asynccontextmanager
async def anybody(metadata: Mapping[str, str]) -> AsyncIterator[Caller]:
    """Every caller of a stack that is open."""
    yield ANYBODY


@asynccontextmanager
async def service_caller(metadata: Mapping[str, str]) -> AsyncIterator[Caller]:
    """A service that calls for a tenant, which its metadata names; the default one without.

    For services that only other services reach.
    """
    tenant_id = metadata.get(TENANT, DEFAULT_TENANT)
    yield Caller(tenant_id=tenant_id, role=Role.OPERATOR)


def tenant_of(context: Any) -> str | None:
    """The tenant that a service calls for; None when it calls for itself, as workers do."""
    found = (value for key, value in context.invocation_metadata() or () if key == TENANT)
    tenant_id = next(found, None)
    return tenant_id if isinstance(tenant_id, str) else None
