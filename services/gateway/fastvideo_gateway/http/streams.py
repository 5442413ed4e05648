"""Streams of server-sent events: bounded in number, ended with the gateway, never silent."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Final, TypeAlias

from starlette.responses import StreamingResponse

from fastvideo.errors import FastVideoError
from fastvideo.rpc.identity import Caller, current_caller, current_tenant
from fastvideo_gateway.http.answers import error_record, to_json
from fastvideo_gateway.http.views import Refused
from fastvideo_gateway.places import Places

STREAMS_MAX: Final = 1_024
# A proxy or a browser gives up on what says nothing.
HEARTBEAT_S: Final = 15.0
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def message(event: str, value: Any, event_id: str = "") -> bytes:
    """One event of a stream."""
    told = f"id: {event_id}\n" if event_id else ""
    return f"{told}event: {event}\ndata: ".encode() + to_json(value) + b"\n\n"


Failing: TypeAlias = Callable[[FastVideoError], object]


def _refused(error: FastVideoError) -> Refused:
    return Refused(error_record(error))


class Streams:
    """Hands out streams while there are not too many."""

    def __init__(
        self,
        closing: asyncio.Event,
        check_still: Callable[[Caller], None] | None = None,
        *,
        share: float = 1.0,
    ) -> None:
        self._closing = closing
        self._check_still = check_still
        self._places = Places("streams", STREAMS_MAX, share, "close one")

    def answer(
        self, messages: AsyncGenerator[bytes, None], failed: Failing = _refused
    ) -> StreamingResponse:
        """A stream of what the iterator makes, until either side goes.

        Raises ResourceExhausted when there are too many, or too many of the caller's tenant. A
        typed error of the iterator's becomes an event `error`, which ends the stream; `failed`
        puts it in the API's words.
        """
        self._places.require(current_tenant())
        return StreamingResponse(
            self._counted(messages, failed), media_type="text/event-stream", headers=_HEADERS
        )

    async def _counted(
        self, messages: AsyncGenerator[bytes, None], failed: Failing
    ) -> AsyncGenerator[bytes, None]:
        with self._places.held(current_tenant()):
            async with aclosing(self._until_closed(messages, failed)) as sent:
                async for one in sent:
                    yield one

    def _check_caller(self) -> None:
        """Raise Unauthenticated when who reads may not any more; seen within a heartbeat."""
        if self._check_still is not None:
            self._check_still(current_caller())

    async def _until_closed(
        self, messages: AsyncGenerator[bytes, None], failed: Failing
    ) -> AsyncGenerator[bytes, None]:
        closed = asyncio.create_task(self._closing.wait())
        coming: asyncio.Task[bytes] | None = None
        # The head goes out at once, with something behind it.
        yield b": open\n\n"
        try:
            while not closed.done():
                coming = coming or asyncio.create_task(_next(messages))
                await asyncio.wait(
                    {coming, closed}, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED
                )
                if coming.done():
                    told, coming = coming, None
                    self._check_caller()
                    yield told.result()
                elif not closed.done():
                    self._check_caller()
                    yield b": still here\n\n"
        except _Ended:
            return
        except FastVideoError as error:
            yield message("error", failed(error))
        finally:
            tasks = [task for task in (closed, coming) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await messages.aclose()


async def _next(messages: AsyncGenerator[bytes, None]) -> bytes:
    async for one in messages:
        return one
    raise _Ended


class _Ended(Exception):
    """There is nothing more to tell; a task cannot end with StopAsyncIteration."""
