"""Requests as they stand, and until they have ended."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, aclosing
from typing import Any, Final, TypeAlias, TypeVar

from starlette.requests import Request

from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.errors import Cancelled, FastVideoError, NotFound, Unavailable
from fastvideo.events.records import StoredEvent
from fastvideo.requests.failures import error_of
from fastvideo.requests.types import RequestState, RequestStatus
from fastvideo.rpc.errors import RETRY_AFTER
from fastvideo.rpc.identity import Caller, current_caller, current_tenant
from fastvideo.scheduling.work import CancelScope, CancelScopeKind
from fastvideo_gateway.http.openai.holding import Holds
from fastvideo_gateway.places import Places
from fastvideo_gateway.service import GatewayParts
from fastvideo_gateway.submission import Submitted

CALLERS_MAX: Final = 128
"""Callers that wait at a time; health is asked over the same connections."""
CANCEL_S_MAX: Final = 30.0
# How often it is looked whether who waits may still do so.
LOOK_EVERY_S: Final = 15.0

T = TypeVar("T")
Submit: TypeAlias = gateway_pb2.SubmitRequestRequest


class Waiting:
    """Reads and waits."""

    def __init__(
        self,
        gateway: GatewayParts,
        check_still: Callable[[Caller], None],
        closing: asyncio.Event,
        *,
        share: float = 1.0,
    ) -> None:
        self._gateway = gateway
        self._check_still = check_still
        self._closing = closing
        self._holds = Holds(self._cancel)
        self._places = Places("callers", CALLERS_MAX, share, "poll instead")

    async def state(self, video_id: str) -> RequestState:
        """Where a request stands. Raises NotFound."""
        # Read from the log, not from the index: what was accepted is found at once.
        try:
            return await self._gateway.standings.visible(video_id, current_tenant())
        except NotFound as error:
            raise NotFound(f"video {video_id} does not exist", subject="video_id") from error

    def place(self) -> AbstractContextManager[None]:
        """A place among those who wait. Raises ResourceExhausted when all are taken, or as many
        as the caller's tenant may have."""
        return self._places.taken(current_tenant())

    async def cancelled(self, video_id: str) -> RequestState:
        """Ask for a cancellation; the request once it has landed, or as it stands after a while."""
        await self.state(video_id)
        with self.place():
            await self._cancel(video_id, "cancelled over HTTP")
            try:
                async with asyncio.timeout(CANCEL_S_MAX):
                    return await self.unless_stopping(self.ended(video_id))
            except TimeoutError:
                return await self.state(video_id)

    async def unless_stopping(self, work: Coroutine[Any, Any, T]) -> T:
        """What the work gives. Raises Unavailable when the gateway stops before; the work ends."""
        working = asyncio.create_task(work)
        stopping = asyncio.create_task(self._closing.wait())
        try:
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise _stops("ask again")
        finally:
            for task in (working, stopping):
                task.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)

    async def ended(self, video_id: str) -> RequestState:
        """The request once it has ended. Raises NotFound."""
        async with aclosing(self._gateway.watches.watch(video_id, 0, current_tenant())) as events:
            async for _ in events:
                pass
        return await self.state(video_id)

    async def all_of(self, request: Request, submits: Sequence[Submit]) -> list[RequestState]:
        """Submit, and give all of them once they have ended.

        None is made unless the quotas have let in all (ResourceExhausted, InvalidField). A caller
        that goes away, or whose key ends (Unauthenticated), and a submit that fails after that
        take the others with them. A gateway that stops takes nothing with it (Unavailable).
        """
        ids: list[str] = []
        held: list[str] = []
        with self.place():
            ended = False
            try:
                submitter = self._gateway.submitter
                async with aclosing(submitter.submit_all(submits, current_tenant())) as all_made:
                    async for made in all_made:
                        ids.append(self._hold(made, held))
                states = await self._while_there(request, ids)
                ended = True
                return states
            finally:
                self._release(held, current_caller(), ended=ended)

    async def told(
        self, request: Request, submit: Submit
    ) -> AsyncGenerator[StoredEvent | None, None]:
        """Submit, and give what happens to the request as it does, to its end.

        It is accepted before anything is given, so that a refusal is raised here. A caller that
        goes away takes its request with it, also while nothing is sent.
        """
        held: list[str] = []
        events = self._told(request, await self._begin(submit, held), held)
        # Begun, it lets go by itself even where nobody ever asks for more of it.
        await anext(events)
        return events

    async def _told(
        self, request: Request, request_id: str, held: list[str]
    ) -> AsyncGenerator[StoredEvent | None, None]:
        caller, ended = current_caller(), False
        watched = self._gateway.watches.watch(request_id, 0, caller.tenant_id)
        leaving = asyncio.create_task(self._leave_with(request, held, caller))
        try:
            yield None
            async with aclosing(watched) as events:
                async for stored in events:
                    yield stored
            ended = True
        finally:
            leaving.cancel()
            self._release(held, caller, ended=ended)

    def _release(self, held: Sequence[str], caller: Caller, *, ended: bool) -> None:
        """Hold no longer. Where the gateway stops, its callers are there still: all goes on."""
        self._holds.release(held, caller, ended=ended or self._closing.is_set())

    async def _leave_with(self, request: Request, held: list[str], caller: Caller) -> None:
        """Let go once the caller has gone, however long nothing is to be sent."""
        await _gone(request)
        gone, held[:] = list(held), []
        self._holds.release(gone, caller, ended=False)

    async def _begin(self, submit: Submit, held: list[str]) -> str:
        """Make a request and hold it; its id."""
        return self._hold(await self._gateway.submitter.submit(submit, current_tenant()), held)

    def _hold(self, made: Submitted, held: list[str]) -> str:
        request_id = made.state.spec.request_id
        if self._holds.hold(request_id, made_before=made.repeated):
            held.append(request_id)
        return request_id

    async def _while_there(self, request: Request, ids: Sequence[str]) -> list[RequestState]:
        ending = asyncio.create_task(self._all(ids))
        gone = asyncio.create_task(_gone(request))
        stopping = asyncio.create_task(self._closing.wait())
        looked_for = (ending, gone, stopping)
        try:
            while not any(task.done() for task in looked_for):
                await asyncio.wait(
                    looked_for, timeout=LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED
                )
                self._check_still(current_caller())
            if ending.done():
                return ending.result()
            if gone.done():
                raise Cancelled("the caller went away")
            # Who gave no key has nothing else to ask for it by.
            paths = ", ".join(f"/v1/videos/{request_id}" for request_id in ids)
            raise _stops(f"ask with the same Idempotency-Key, or get {paths}")
        finally:
            for task in looked_for:
                task.cancel()
            await asyncio.gather(*looked_for, return_exceptions=True)

    async def _all(self, ids: Sequence[str]) -> list[RequestState]:
        return await asyncio.gather(*map(self.ended, ids))

    async def _cancel(self, request_id: str, reason: str) -> None:
        scope = CancelScope(kind=CancelScopeKind.REQUEST, target_id=request_id)
        await self._gateway.canceller.cancel(scope, reason, current_tenant())


def _stops(what_to_do: str) -> Unavailable:
    return Unavailable(
        f"this gateway stops; what was asked goes on: {what_to_do}",
        reason="GATEWAY_STOPS",
        attributes={RETRY_AFTER: "1"},
    )


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
