"""Bytes that are not the message that a method takes: refused as bad input.

gRPC itself would answer UNKNOWN with the name of a Python exception, and log a stack.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from fastvideo.errors import InvalidField


@dataclass(frozen=True, slots=True)
class _Malformed:
    """Stands for a message that could not be read."""

    size_bytes: int
    cause: DecodeError


class DecodingInterceptor(grpc.aio.ServerInterceptor):
    """Makes a malformed message an InvalidField; goes inside whatever answers typed errors."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_deserializer is None:
            return handler
        # The bytes are read before any handler is called, outside of all interceptors.
        return _guarded(handler)


def _guarded(handler: Any) -> Any:
    make = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[(bool(handler.request_streaming), bool(handler.response_streaming))]
    behavior: Any = (
        handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    )
    check = _checked_stream if handler.request_streaming else _checked
    guard = _streaming if handler.response_streaming else _single
    return make(
        guard(behavior, check),
        request_deserializer=_reading(handler.request_deserializer),
        response_serializer=handler.response_serializer,
    )


def _reading(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError as error:
            return _Malformed(len(data), error)

    return read


def _single(behavior: Any, check: Callable[[Any], Any]) -> Any:
    async def handle(request: Any, context: Any) -> Any:
        return await behavior(check(request), context)

    return handle


def _streaming(behavior: Any, check: Callable[[Any], Any]) -> Any:
    def handle(request: Any, context: Any) -> Any:
        return behavior(check(request), context)

    return handle


def _checked(message: Any) -> Any:
    if isinstance(message, _Malformed):
        raise InvalidField(
            "message",
            f"{message.size_bytes} bytes",
            f"a message of the method's type; {message.cause}",
            reason="MESSAGE_MALFORMED",
        ) from message.cause
    return message


async def _checked_stream(messages: AsyncIterator[Any]) -> AsyncIterator[Any]:
    try:
        async for message in messages:
            yield _checked(message)
    finally:
        if isinstance(messages, AsyncGenerator):
            await messages.aclose()
