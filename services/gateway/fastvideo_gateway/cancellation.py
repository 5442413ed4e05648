"""Cancel: what a user asks for becomes an event; the scheduler decides where it lands."""

from dataclasses import dataclass
from typing import Final

from fastvideo.clock import Clock, milliseconds
from fastvideo.deployment.catalog import Catalog
from fastvideo.errors import Conflict, InvalidField, NotFound, ResourceExhausted
from fastvideo.events.catalog import event_of, new_event
from fastvideo.events.metadata import request_metadata
from fastvideo.events.records import AppendCommand, StreamAppend
from fastvideo.events.store import Appends, EventLog
from fastvideo.ids import new_id
from fastvideo.requests.events import RequestCancelRequested
from fastvideo.requests.reading import read_events
from fastvideo.requests.state import evolve, is_terminal, stream_of
from fastvideo.requests.types import RequestState
from fastvideo.rpc.names import require_name
from fastvideo.scheduling.work import CancelScope, CancelScopeKind
from fastvideo.sessions.reading import read_session
from fastvideo.telemetry.tracing import current_traceparent
from fastvideo_gateway.listing import Lister

REASON_CHARACTERS_MAX: Final = 500
# A running request writes progress meanwhile; each try sees a newer version.
TRIES_MAX: Final = 8

# Loops and streams of one request whose cancellation is asked for one by one.
PARTS_MAX: Final = 64

SCOPES: Final = tuple(CancelScopeKind)
WHOLE: Final = (CancelScopeKind.REQUEST, CancelScopeKind.SESSION)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request as it stands, and the parts of it whose cancellation was asked for."""

    state: RequestState
    parts: frozenset[CancelScope]


class Canceller:
    """Turns cancel calls into RequestCancelRequested events."""

    def __init__(
        self, log: EventLog, appender: Appends, lister: Lister, catalog: Catalog, clock: Clock
    ) -> None:
        self._log = log
        self._appender = appender
        self._lister = lister
        self._catalog = catalog
        self._clock = clock

    async def cancel(self, scope: CancelScope, reason: str, tenant_id: str) -> RequestState | None:
        """Ask for the scope's cancellation.

        Gives the request's state; for a session, that of its newest running request, and None
        when none runs. A request that has ended, or whose cancellation was asked for before, is
        left as it is. Raises NotFound, InvalidField and, for too many parts of one request,
        ResourceExhausted.
        """
        require_name("scope.target_id", scope.target_id, f"the id of a {scope.kind.value}")
        if len(reason) > REASON_CHARACTERS_MAX:
            allowed = f"at most {REASON_CHARACTERS_MAX} characters"
            raise InvalidField("reason", f"{len(reason)} characters", allowed)
        if scope.kind is CancelScopeKind.SESSION:
            return await self._cancel_session(scope, reason, tenant_id)
        request_id, part = _parts_of(scope)
        return await self._cancel_request(request_id, scope, reason, tenant_id, part)

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
        self, request_id: str, scope: CancelScope, reason: str, tenant_id: str, part: str = ""
    ) -> RequestState:
        for attempt in range(1, TRIES_MAX + 1):
            asked = await self._read(request_id)
            if asked is None or asked.state.spec.tenant_id != tenant_id or asked.state.deleted_at:
                raise NotFound(f"request {request_id} does not exist", subject="scope.target_id")
            state = asked.state
            if is_terminal(state) or state.cancel_requested or scope in asked.parts:
                return state
            if part:
                self._check_part(asked, scope, part)
            # The last try takes any version: a cancel that comes after the end changes nothing.
            expected = state.last_sequence if attempt < TRIES_MAX else None
            try:
                await self._appender.append(self._command(state, scope, reason, expected))
            except Conflict:
                if attempt == TRIES_MAX:
                    raise
                continue
            break
        asked = await self._read(request_id)
        assert asked is not None  # It was read a moment ago, and no event is ever deleted.
        return asked.state

    def _check_part(self, asked: _Asked, scope: CancelScope, part: str) -> None:
        """Raise NotFound for a loop that the request's program does not have."""
        if len(asked.parts) >= PARTS_MAX:
            raise ResourceExhausted(
                f"{PARTS_MAX} parts of the request are cancelled; cancel the request",
                subject="scope.target_id",
            )
        spec = asked.state.spec
        program = self._catalog.get(spec.model_id).programs.get(spec.program_id)
        nodes = [node.node_id for node in program.nodes] if program is not None else [part]
        if scope.kind is CancelScopeKind.LOOP and part not in nodes:
            raise NotFound(
                f"request {spec.request_id} has no loop {part!r}; its loops: {', '.join(nodes)}",
                subject="scope.target_id",
            )

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

    async def _read(self, request_id: str) -> _Asked | None:
        state: RequestState | None = None
        parts = set()
        async for stored in read_events(self._log, request_id):
            event = event_of(stored)
            state = evolve(state, event)
            payload = event.payload
            if isinstance(payload, RequestCancelRequested) and payload.scope.kind not in WHOLE:
                parts.add(payload.scope)
        return _Asked(state, frozenset(parts)) if state is not None else None


def _parts_of(scope: CancelScope) -> tuple[str, str]:
    """The request that a scope means, and the loop or stream of it."""
    if scope.kind is CancelScopeKind.REQUEST:
        return scope.target_id, ""
    request_id, _, part = scope.target_id.rpartition("/")
    if not request_id or not part:
        allowed = f"request/{'node' if scope.kind is CancelScopeKind.LOOP else 'name'}"
        raise InvalidField("scope.target_id", scope.target_id, allowed)
    return request_id, part
