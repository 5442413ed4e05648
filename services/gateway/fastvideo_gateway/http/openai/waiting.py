"""Requests as they stand, and until they have ended."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Final, TypeAlias

from starlette.requests import Request

from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.errors import Cancelled, FastVideoError, NotFound, ResourceExhausted
from fastvideo.requests.failures import error_of
from fastvideo.requests.types import RequestState, RequestStatus
from fastvideo.rpc.identity import current_tenant
from fastvideo.scheduling.work import CancelScope, CancelScopeKind
from fastvideo_gateway.service import GatewayParts

CALLERS_MAX: Final = 128
"""Callers that wait at a time; health is asked over the same connections."""
CANCEL_S_MAX: Final = 30.0

Submit: TypeAlias = gateway_pb2.SubmitRequestRequest


class Waiting:
    """Reads and waits."""

    def __init__(self, gateway: GatewayParts) -> None:
        self._gateway = gateway
        self._callers = 0

    async def state(self, video_id: str) -> RequestState:
        """Where a request stands. Raises NotFound."""
        # Read from the log, not from the index: what was accepted is found at once.
        state = await self._gateway.standings.read(video_id)
        if state is None or state.spec.tenant_id != current_tenant():
            raise NotFound(f"video {video_id} does not exist", subject="video_id")
        return state

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place among those who wait. Raises ResourceExhausted when all are taken."""
        if self._callers >= CALLERS_MAX:
            raise ResourceExhausted(
                f"{CALLERS_MAX} callers wait for their videos; poll instead", subject="callers"
            )
        self._callers += 1
        try:
            yield
        finally:
            self._callers -= 1

    async def cancelled(self, video_id: str) -> RequestState:
        """Ask for a cancellation; the request once it has landed, or as it stands after a while."""
        await self.state(video_id)
        with self.place():
            await self._cancel([video_id], "cancelled over HTTP")
            try:
                async with asyncio.timeout(CANCEL_S_MAX):
                    return await self.ended(video_id)
            except TimeoutError:
                return await self.state(video_id)

    async def ended(self, video_id: str) -> RequestState:
        """The request once it has ended. Raises NotFound."""
        async with aclosing(self._gateway.watches.watch(video_id, 0, current_tenant())) as events:
            async for _ in events:
                pass
        return await self.state(video_id)

    async def all_of(self, request: Request, submits: Sequence[Submit]) -> list[RequestState]:
        """Submit, and give all of them once they have ended.

        A caller that goes away, and a submit that is refused, take the others with them.
        """
        ids: list[str] = []
        with self.place():
            try:
                for submit in submits:
                    made = await self._gateway.submitter.submit(submit, current_tenant())
                    ids.append(made.state.spec.request_id)
                return await self._while_there(request, ids)
            except BaseException:
                await asyncio.shield(self._cancel(ids, "its caller went away"))
                raise

    async def _while_there(self, request: Request, ids: Sequence[str]) -> list[RequestState]:
        ending = asyncio.create_task(self._all(ids))
        gone = asyncio.create_task(_gone(request))
        try:
            await asyncio.wait({ending, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not ending.done():
                raise Cancelled("the caller went away")
            return ending.result()
        finally:
            ending.cancel()
            gone.cancel()
            await asyncio.gather(ending, gone, return_exceptions=True)

    async def _all(self, ids: Sequence[str]) -> list[RequestState]:
        return await asyncio.gather(*map(self.ended, ids))

    async def _cancel(self, ids: Sequence[str], reason: str) -> None:
        for request_id in ids:
            scope = CancelScope(kind=CancelScopeKind.REQUEST, target_id=request_id)
            await self._gateway.canceller.cancel(scope, reason, current_tenant())


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
