"""Run every kind of grpc.aio method handler inside an async context manager."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

import grpc

Around = Callable[[Any], AbstractAsyncContextManager[None]]


def rewrap(handler: Any, around: Around) -> Any:
    """The same handler with `around(servicer_context)` entered for as long as a call runs.

    The handler is a coroutine function or an async generator function.
    """
    make = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[(bool(handler.request_streaming), bool(handler.response_streaming))]
    behavior: Any = (
        handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    )
    wrap = _streaming if handler.response_streaming else _single
    return make(
        wrap(behavior, around),
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


def _single(behavior: Any, around: Around) -> Any:
    async def handle(request: Any, context: Any) -> Any:
        async with around(context):
            return await behavior(request, context)

    return handle


def _streaming(behavior: Any, around: Around) -> Any:
    # Written through the context, not yielded: a call that is cancelled between two messages
    # then unwinds here and now, in its own task, instead of when a generator is collected.
    async def handle(request: Any, context: Any) -> None:
        async with around(context):
            answer = behavior(request, context)
            if not hasattr(answer, "__aiter__"):
                await answer
                return
            async with aclosing(answer):
                async for message in answer:
                    await context.write(message)

    return handle
