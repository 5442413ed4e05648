"""Delete: a request that has ended is taken from its tenant's sight; one that runs ends first.

RequestDeleted comes after the end of the request, by compare-and-set: a deletion that meets the
completion finds the stream changed and looks again, and nothing brings a deleted request back.
The bytes are removed by the artifact service, which reads of it in the log.
"""

import asyncio
from contextlib import aclosing
from datetime import datetime
from typing import Final

from fastvideo.clock import Clock, milliseconds
from fastvideo.errors import Conflict, NotFound, Unavailable
from fastvideo.events.catalog import new_event
from fastvideo.events.metadata import request_metadata
from fastvideo.events.records import AppendCommand, StreamAppend
from fastvideo.events.store import Appends
from fastvideo.ids import new_id
from fastvideo.requests.events import RequestDeleted
from fastvideo.requests.standing import Standings
from fastvideo.requests.state import is_terminal, stream_of
from fastvideo.requests.types import RequestState
from fastvideo.rpc.identity import current_caller
from fastvideo.scheduling.work import CancelScope, CancelScopeKind
from fastvideo.telemetry.tracing import current_traceparent
from fastvideo_gateway.cancellation import Canceller
from fastvideo_gateway.places import Places
from fastvideo_gateway.watching import WatchHub

CANCEL_S_MAX: Final = 30.0
"""How long a deletion waits for the end of a request that runs."""
WAITING_MAX: Final = 128
# The sweeper may write to the stream meanwhile; each try sees a newer version.
TRIES_MAX: Final = 8


class Deleter:
    """Turns delete calls into RequestDeleted events."""

    def __init__(
        self,
        appender: Appends,
        standings: Standings,
        canceller: Canceller,
        watches: WatchHub,
        clock: Clock,
        *,
        cancel_s_max: float = CANCEL_S_MAX,
        share: float = 1.0,
    ) -> None:
        self._appender = appender
        self._standings = standings
        self._canceller = canceller
        self._watches = watches
        self._clock = clock
        self._cancel_s_max = cancel_s_max
        self._places = Places("deletions", WAITING_MAX, share, "try again")

    async def delete(
        self, request_id: str, tenant_id: str, *, subject: str = "request_id"
    ) -> datetime:
        """Delete a request; when it was deleted. Again it answers the same.

        Raises NotFound, and Unavailable with the reason DELETE_PENDING when the request was
        cancelled and has not ended in time: nothing is deleted then.
        """
        state = await self._state(request_id, tenant_id, subject)
        if not is_terminal(state):
            state = await self._ended(request_id, tenant_id, subject)
        for _ in range(TRIES_MAX):
            if state.deleted_at is not None:
                return state.deleted_at
            now = self._clock.now()
            metadata = request_metadata(state.spec, now, current_traceparent())
            payload = RequestDeleted(deleted_by=current_caller().key_id)
            event = new_event(new_id("evt", milliseconds(now)), payload, metadata)
            append = StreamAppend(stream_of(request_id), (event,), state.last_sequence)
            try:
                await self._appender.append(AppendCommand(streams=(append,)))
            except Conflict:
                state = await self._state(request_id, tenant_id, subject)
            else:
                return now
        raise Conflict(f"request {request_id} has too many writers", subject=subject)

    async def _state(self, request_id: str, tenant_id: str, subject: str) -> RequestState:
        """The request, deleted or not. Raises NotFound."""
        state = await self._standings.read(request_id)
        if state is None or state.spec.tenant_id != tenant_id:
            raise NotFound(f"request {request_id} does not exist", subject=subject)
        return state

    async def _ended(self, request_id: str, tenant_id: str, subject: str) -> RequestState:
        """Cancel the request and wait for its end, whatever that is."""
        scope = CancelScope(kind=CancelScopeKind.REQUEST, target_id=request_id)
        with self._places.taken(tenant_id):
            try:
                await self._canceller.cancel(scope, "deleted", tenant_id)
                async with asyncio.timeout(self._cancel_s_max):
                    await self._watch_end(request_id, tenant_id)
            except NotFound:
                # Somebody else deleted it meanwhile: it has ended.
                pass
            except TimeoutError as error:
                raise Unavailable(
                    f"request {request_id} is cancelled and has not ended yet; delete it again",
                    reason="DELETE_PENDING",
                    subject=subject,
                ) from error
        return await self._state(request_id, tenant_id, subject)

    async def _watch_end(self, request_id: str, tenant_id: str) -> None:
        async with aclosing(self._watches.watch(request_id, 0, tenant_id)) as events:
            async for _ in events:
                pass
