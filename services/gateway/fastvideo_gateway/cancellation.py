"""Cancel: what a user asks for becomes an event; the scheduler decides where it lands."""

from typing import Final

from fastvideo.clock import Clock, milliseconds
from fastvideo.errors import Conflict, InvalidField, NotFound
from fastvideo.events.catalog import new_event
from fastvideo.events.metadata import request_metadata
from fastvideo.events.records import AppendCommand, StreamAppend
from fastvideo.events.store import Appends, EventLog
from fastvideo.ids import new_id
from fastvideo.requests.events import RequestCancelRequested
from fastvideo.requests.reading import read_request
from fastvideo.requests.state import is_terminal, stream_of
from fastvideo.requests.types import RequestState
from fastvideo.rpc.names import require_name
from fastvideo.scheduling.work import CancelScope, CancelScopeKind
from fastvideo.sessions.reading import read_session
from fastvideo.telemetry.tracing import current_traceparent
from fastvideo_gateway.listing import Lister

REASON_CHARACTERS_MAX: Final = 500
# A running request writes progress meanwhile; each try sees a newer version.
TRIES_MAX: Final = 8

SCOPES: Final = (CancelScopeKind.REQUEST, CancelScopeKind.SESSION)


class Canceller:
    """Turns cancel calls into RequestCancelRequested events."""

    def __init__(self, log: EventLog, appender: Appends, lister: Lister, clock: Clock) -> None:
        self._log = log
        self._appender = appender
        self._lister = lister
        self._clock = clock

    async def cancel(self, scope: CancelScope, reason: str, tenant_id: str) -> RequestState | None:
        """Ask for the scope's cancellation.

        Gives the request's state; for a session, that of its newest running request, and None
        when none runs. A request that has ended, or whose cancellation was asked for before, is
        left as it is. Raises NotFound and InvalidField.
        """
        if scope.kind not in SCOPES:
            allowed = " or ".join(SCOPES)
            raise InvalidField("scope.kind", scope.kind.value, allowed, reason="SCOPE_UNSUPPORTED")
        require_name("scope.target_id", scope.target_id, f"the id of a {scope.kind.value}")
        if len(reason) > REASON_CHARACTERS_MAX:
            allowed = f"at most {REASON_CHARACTERS_MAX} characters"
            raise InvalidField("reason", f"{len(reason)} characters", allowed)
        if scope.kind is CancelScopeKind.REQUEST:
            return await self._cancel_request(scope.target_id, scope, reason, tenant_id)
        return await self._cancel_session(scope, reason, tenant_id)

    async def _cancel_session(
        self, scope: CancelScope, reason: str, tenant_id: str
    ) -> RequestState | None:
        session = (await read_session(self._log, scope.target_id)).state
        if session is None or session.tenant_id != tenant_id:
            raise NotFound(f"session {scope.target_id} does not exist", subject="scope.target_id")
        newest = None
        for request_id in await self._lister.active_requests(tenant_id, scope.target_id):
            state = await self._cancel_request(request_id, scope, reason, tenant_id)
            newest = newest or state
        return newest

    async def _cancel_request(
        self, request_id: str, scope: CancelScope, reason: str, tenant_id: str
    ) -> RequestState:
        for attempt in range(1, TRIES_MAX + 1):
            state = await read_request(self._log, request_id)
            if state is None or state.spec.tenant_id != tenant_id:
                raise NotFound(f"request {request_id} does not exist", subject="scope.target_id")
            if is_terminal(state) or state.cancel_requested:
                return state
            # The last try takes any version: a cancel that comes after the end changes nothing.
            expected = state.last_sequence if attempt < TRIES_MAX else None
            try:
                await self._appender.append(self._command(state, scope, reason, expected))
            except Conflict:
                if attempt == TRIES_MAX:
                    raise
                continue
            break
        return await self._state_of(request_id)

    def _command(
        self, state: RequestState, scope: CancelScope, reason: str, expected: int | None
    ) -> AppendCommand:
        now = self._clock.now()
        spec = state.spec
        metadata = request_metadata(spec, now, current_traceparent())
        payload = RequestCancelRequested(scope=scope, reason=reason)
        event = new_event(new_id("evt", milliseconds(now)), payload, metadata)
        return AppendCommand(
            streams=(StreamAppend(stream_of(spec.request_id), (event,), expected),)
        )

    async def _state_of(self, request_id: str) -> RequestState:
        state = await read_request(self._log, request_id)
        assert state is not None  # It was read a moment ago, and nothing is ever deleted.
        return state
