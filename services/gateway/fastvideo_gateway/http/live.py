"""What changes, as it changes: the list of requests, and the events of one."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fastvideo.errors import InvalidField
from fastvideo.rpc.identity import current_tenant
from fastvideo.rpc.names import require_name
from fastvideo_gateway.http.queries import Given, read_query
from fastvideo_gateway.http.requests import Version
from fastvideo_gateway.http.rows import event_row, request_row
from fastvideo_gateway.http.streams import Streams, message
from fastvideo_gateway.listing import Lister
from fastvideo_gateway.watching import WatchHub

# What happens within it comes in one message; nobody reads faster.
GATHER_S: Final = 0.25


class WatchGiven(Given):
    """Where a watch begins."""

    after: Version = 0


class LiveRoutes:
    """Streams that last as long as somebody looks."""

    def __init__(self, watches: WatchHub, lister: Lister, streams: Streams) -> None:
        self._watches = watches
        self._lister = lister
        self._streams = streams

    @property
    def routes(self) -> list[Route]:
        """Every path of these."""
        return [
            Route("/api/live", self._live, methods=["GET"]),
            Route("/api/requests/{request_id}/live", self._watch, methods=["GET"]),
        ]

    async def _live(self, _: Request) -> Response:
        return self._streams.answer(self._changes())

    async def _changes(self) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._watches.touched()) as touched:
            async for request_ids in touched:
                found = await self._lister.find(current_tenant(), request_ids)
                if found:
                    yield message("requests", {"requests": [request_row(one) for one in found]})
                await asyncio.sleep(GATHER_S)

    async def _watch(self, request: Request) -> Response:
        request_id = str(request.path_params["request_id"])
        require_name("request_id", request_id, "the id of a request")
        after = read_query(request, WatchGiven).after
        # A browser that lost its connection says how far it came.
        resumed = request.headers.get("last-event-id", "")
        if resumed:
            if not resumed.isdecimal() or len(resumed) > 18:
                raise InvalidField("Last-Event-ID", resumed, "a version")
            after = int(resumed)
        return self._streams.answer(self._events(request_id, after))

    async def _events(self, request_id: str, after: int) -> AsyncGenerator[bytes, None]:
        watched = self._watches.watch(request_id, after, current_tenant())
        async with aclosing(watched) as events:
            async for stored in events:
                yield message("event", event_row(stored), str(stored.stream_version))
        # Said, so that a browser does not begin again.
        yield message("end", {})
