"""Requests as they stand, and until they have ended."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from starlette.requests import Request

from fastvideo.errors import Cancelled, FastVideoError, NotFound
from fastvideo.requests.failures import error_of
from fastvideo.requests.reading import read_request
from fastvideo.requests.types import RequestState, RequestStatus
from fastvideo.rpc.identity import DEFAULT_TENANT
from fastvideo.scheduling.work import CancelScope, CancelScopeKind
from fastvideo_gateway.service import GatewayParts


class Waiting:
    """Reads and waits."""

    def __init__(self, gateway: GatewayParts) -> None:
        self._gateway = gateway

    async def state(self, video_id: str) -> RequestState:
        """Where a request stands. Raises NotFound."""
        # Read from the log, not from the index: what was accepted is found at once.
        state = await read_request(self._gateway.log, video_id)
        if state is None or state.spec.tenant_id != DEFAULT_TENANT:
            raise NotFound(f"video {video_id} does not exist", subject="video_id")
        return state

    async def ended(self, video_id: str) -> RequestState:
        """The request once it has ended. Raises NotFound."""
        async with aclosing(self._gateway.watches.watch(video_id, 0, DEFAULT_TENANT)) as events:
            async for _ in events:
                pass
        return await self.state(video_id)

    async def all_of(
        self, request: Request, submitted: Sequence[RequestState]
    ) -> list[RequestState]:
        """All of them once they have ended; a caller that goes away takes them with it."""
        ids = [state.spec.request_id for state in submitted]
        ending = asyncio.create_task(self._all(ids))
        gone = asyncio.create_task(_gone(request))
        try:
            await asyncio.wait({ending, gone}, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                return ending.result()
            await self._cancel(ids)
            raise Cancelled("the caller went away")
        finally:
            ending.cancel()
            gone.cancel()
            await asyncio.gather(ending, gone, return_exceptions=True)

    async def _all(self, ids: Sequence[str]) -> list[RequestState]:
        return await asyncio.gather(*map(self.ended, ids))

    async def _cancel(self, ids: Sequence[str]) -> None:
        for request_id in ids:
            scope = CancelScope(kind=CancelScopeKind.REQUEST, target_id=request_id)
            await self._gateway.canceller.cancel(scope, "its caller went away", DEFAULT_TENANT)


def require_completed(state: RequestState) -> None:
    """Raise what a request failed of, or Cancelled; nothing when it completed."""
    if state.status is RequestStatus.COMPLETED:
        return
    if state.error is not None:
        raise error_of(state.error)
    if state.status is RequestStatus.CANCELLED:
        raise Cancelled(f"video {state.spec.request_id} was cancelled", subject="video_id")
    raise FastVideoError(f"video {state.spec.request_id} has not ended")


async def _gone(request: Request) -> None:
    """Return when the caller has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
