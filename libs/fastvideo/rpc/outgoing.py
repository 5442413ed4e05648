"""Metadata that a channel adds to every call: whose key it is, and whose call it is.

grpc.aio dispatches an interceptor by one class, so there is one for each kind of call.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import grpc

from fastvideo.rpc.identity import current_tenant

AUTHORIZATION: Final = "authorization"

TENANT: Final = "fastvideo-tenant"
"""Between services: the tenant that a call is made for."""

AddedMetadata = Callable[[], Mapping[str, str]]


def with_key(api_key: str) -> list[grpc.aio.ClientInterceptor]:
    """Interceptors that show a key; none for an empty one."""
    shown = dict(metadata_of(api_key))
    return _adding(lambda: shown) if api_key else []


def metadata_of(api_key: str) -> tuple[tuple[str, str], ...]:
    """What shows a key, for channels without interceptors; nothing for an empty one."""
    return ((AUTHORIZATION, f"Bearer {api_key}"),) if api_key else ()


def with_tenant() -> list[grpc.aio.ClientInterceptor]:
    """Interceptors that hand on whose call it is that makes this one.

    Where no door said so the call raises Unauthenticated: without a tenant it would be taken for a
    service's own, which sees every tenant's.
    """
    return _adding(_tenant)


def _tenant() -> Mapping[str, str]:
    return {TENANT: current_tenant()}


def _adding(added: AddedMetadata) -> list[grpc.aio.ClientInterceptor]:
    return [_UnaryUnary(added), _UnaryStream(added), _StreamUnary(added), _StreamStream(added)]


class _Adding:
    """Hands a call on with more metadata."""

    def __init__(self, added: AddedMetadata) -> None:
        self._added = added

    async def _with_more(
        self, continuation: Callable[..., Any], details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        metadata = grpc.aio.Metadata(*(details.metadata or ()))
        for key, value in self._added().items():
            metadata[key] = value
        more = grpc.aio.ClientCallDetails(
            details.method,
            details.timeout,
            metadata,
            details.credentials,
            details.wait_for_ready,
        )
        return await continuation(more, request)


class _UnaryUnary(_Adding, grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(
        self,
        continuation: Callable[..., Any],
        client_call_details: grpc.aio.ClientCallDetails,
        request: Any,
    ) -> Any:
        return await self._with_more(continuation, client_call_details, request)


class _UnaryStream(_Adding, grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(
        self,
        continuation: Callable[..., Any],
        client_call_details: grpc.aio.ClientCallDetails,
        request: Any,
    ) -> Any:
        return await self._with_more(continuation, client_call_details, request)


class _StreamUnary(_Adding, grpc.aio.StreamUnaryClientInterceptor):
    async def intercept_stream_unary(
        self,
        continuation: Callable[..., Any],
        client_call_details: grpc.aio.ClientCallDetails,
        request_iterator: Any,
    ) -> Any:
        return await self._with_more(continuation, client_call_details, request_iterator)


class _StreamStream(_Adding, grpc.aio.StreamStreamClientInterceptor):
    async def intercept_stream_stream(
        self,
        continuation: Callable[..., Any],
        client_call_details: grpc.aio.ClientCallDetails,
        request_iterator: Any,
    ) -> Any:
        return await self._with_more(continuation, client_call_details, request_iterator)
