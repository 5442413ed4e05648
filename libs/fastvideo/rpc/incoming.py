"""Reading a client's stream of messages: silence ends it, and a client that is gone is no end."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import grpc

from fastvideo.errors import Cancelled, DeadlineExceeded

SILENCE_S_MAX: Final = 60.0
"""A client that sends nothing for so long is given up, seconds."""

MessageT = TypeVar("MessageT")


@asynccontextmanager
async def incoming(messages: AsyncIterable[MessageT]) -> AsyncIterator[AsyncIterator[MessageT]]:
    """A client's messages, for `next_message`; closed at the end, though some were not read."""
    iterator = aiter(messages)
    try:
        yield iterator
    finally:
        # What gRPC hands in is a generator; one that is left open outlives its event loop.
        if isinstance(iterator, AsyncGenerator):
            await iterator.aclose()


async def next_message(messages: AsyncIterator[MessageT]) -> MessageT | None:
    """The next message; None at the end. Raises DeadlineExceeded after too long a silence."""
    try:
        async with asyncio.timeout(SILENCE_S_MAX):
            return await anext(messages, None)
    except TimeoutError as error:
        raise DeadlineExceeded(f"nothing was sent for {SILENCE_S_MAX:g} s") from error


async def require_present(context: Any) -> None:
    """Raise Cancelled when the call is no more.

    A stream of messages ends alike when the client ends it and when the client dies. Only a
    call that lives takes initial metadata, so sending it tells the two apart: without this, an
    upload that broke in the middle would pass for a short one.
    """
    try:
        await context.send_initial_metadata(())
    except grpc.aio.BaseError as error:
        raise Cancelled("the client left before the end of its messages") from error
