"""A session as a pure decider and fold: command to events, event to state.

Invariant: no IO and no clock. The moment comes in with the command and with the event.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Final

from fastvideo.errors import AlreadyExists, CorruptLog, FailedPrecondition, NotFound
from fastvideo.events.types import Event
from fastvideo.sessions.commands import (
    BeginRequest,
    CheckInactivity,
    CloseSession,
    CreateSession,
    EndRequest,
    ForgetRequest,
    PushText,
    SessionCommand,
)
from fastvideo.sessions.conditioning import PROMPT
from fastvideo.sessions.events import (
    SessionClosed,
    SessionCreated,
    SessionTextPushed,
    SessionUpdated,
)
from fastvideo.sessions.types import (
    PromptMemoryEntry,
    PushedText,
    SessionConditioning,
    SessionState,
    SessionStatus,
)

STREAM_PREFIX: Final = "session-"

# Artifact references kept in the state; older ones are found through the artifact service.
ARTIFACT_REFS_MAX: Final = 1_000
# Requests of one session that may run at a time.
ACTIVE_REQUESTS_MAX: Final = 1_000

REQUEST_BEGAN: Final = "request_began"
REQUEST_ENDED: Final = "request_ended"
REQUEST_FORGOTTEN: Final = "request_forgotten"
CLOSED: Final = "closed"
INACTIVE: Final = "inactive"

SessionEvent = SessionCreated | SessionUpdated | SessionTextPushed | SessionClosed
"""What happens to a session."""


def stream_of(session_id: str) -> str:
    """The id of a session's stream."""
    return f"{STREAM_PREFIX}{session_id}"


def scope_of(request_id: str) -> str:
    """The cancel scope that a running request of a session is."""
    return f"request/{request_id}"


def decide(state: SessionState | None, command: SessionCommand) -> tuple[SessionEvent, ...]:
    """What happens when a command meets a state; nothing when it has been done already.

    Raises AlreadyExists for a session that is created twice and NotFound for any other command
    to one that was never created; FailedPrecondition for a text that is pushed to a closed one.
    """
    if isinstance(command, CreateSession):
        return (_created(state, command),)
    if state is None:
        raise NotFound("the session does not exist", subject="session_id")
    match command:
        case BeginRequest():
            return _begun(state, command)
        case EndRequest():
            return _ended(state, command)
        case ForgetRequest(request_id=request_id):
            return _forgotten(state, request_id)
        case PushText(pushed=pushed):
            _check_open(state)
            return (SessionTextPushed(session_id=state.session_id, pushed=pushed),)
        case CloseSession():
            return _closed(state, CLOSED) if is_open(state) else ()
        case CheckInactivity(at=at):
            idle = at - state.last_active_at
            expired = idle >= timedelta(seconds=state.inactivity_timeout_s)
            quiet = is_open(state) and not state.cancel_scopes
            return _closed(state, INACTIVE) if quiet and expired else ()


def evolve(state: SessionState | None, event: Event) -> SessionState:
    """The state after one more event of the session's stream.

    Raises CorruptLog when the stream does not begin with SessionCreated, or begins twice.
    """
    if isinstance(event.payload, SessionCreated) and state is None:
        return event.payload.state
    if state is None or isinstance(event.payload, SessionCreated):
        raise CorruptLog(
            f"stream {event.stream_id} has {event.type} at version {event.stream_version}",
            reason="STREAM_BEGIN",
            subject=event.stream_id,
        )
    match event.payload:
        case SessionUpdated() as updated:
            return _with_update(state, updated, event)
        case SessionTextPushed(pushed=pushed):
            return _with_push(state, pushed, event)
        case SessionClosed() as closed:
            return _with_close(state, closed, event)
    return state


def fold(events: Iterable[Event], state: SessionState | None = None) -> SessionState | None:
    """The state after all events, from `state` on; None when there is no event at all."""
    for event in events:
        state = evolve(state, event)
    return state


def is_open(state: SessionState) -> bool:
    """Whether the session takes new requests."""
    return state.status is SessionStatus.OPEN


def begins_at_acceptance(state: SessionState) -> bool:
    """Whether a request and the session's memory of it are one append.

    Nobody else may begin such a request: its acceptance may be heard of again after its end.
    """
    return state.conditioning is SessionConditioning.MEMORY


def check_takes(state: SessionState | None, session_id: str, tenant_id: str, model_id: str) -> None:
    """Refuse a request that the session cannot take.

    Raises NotFound when there is no such session of the tenant, and FailedPrecondition when it
    is closed, bound to other models, or full.
    """
    if state is None or state.tenant_id != tenant_id:
        raise NotFound(f"session {session_id} does not exist", subject="session_id")
    _check_open(state)
    bound = [binding.model_id for binding in state.model_bindings]
    if bound and model_id not in bound:
        raise FailedPrecondition(
            f"session {session_id} is bound to {', '.join(bound)}, not to {model_id}",
            reason="MODEL_NOT_BOUND",
            subject="model_id",
        )
    if len(state.cancel_scopes) >= ACTIVE_REQUESTS_MAX:
        raise FailedPrecondition(
            f"session {session_id} has {ACTIVE_REQUESTS_MAX} requests running",
            reason="SESSION_FULL",
            subject="session_id",
        )


def _check_open(state: SessionState) -> None:
    if not is_open(state):
        raise FailedPrecondition(
            f"session {state.session_id} is closed ({state.close_reason}); open another",
            reason="SESSION_CLOSED",
            subject="session_id",
        )


def _created(state: SessionState | None, command: CreateSession) -> SessionCreated:
    if state is not None:
        raise AlreadyExists(f"session {command.session_id} exists", subject="session_id")
    return SessionCreated(
        state=SessionState(
            session_id=command.session_id,
            user_id=command.user_id,
            tenant_id=command.tenant_id,
            status=SessionStatus.OPEN,
            model_bindings=command.model_bindings,
            prompt_memory_limit=command.prompt_memory_limit,
            inactivity_timeout_s=command.inactivity_timeout_s,
            conditioning=command.conditioning,
            created_at=command.at,
            last_active_at=command.at,
        )
    )


def _begun(state: SessionState, command: BeginRequest) -> tuple[SessionEvent, ...]:
    if scope_of(command.request_id) in state.cancel_scopes:
        return ()
    remembered = None
    # What comes after the close finds nobody who would remember.
    if command.prompt and is_open(state):
        remembered = PromptMemoryEntry(
            request_id=command.request_id, prompt=command.prompt, at=command.at
        )
    updated = SessionUpdated(
        session_id=state.session_id,
        remembered=remembered,
        request_id=command.request_id,
        change=REQUEST_BEGAN,
    )
    return (updated,)


def _ended(state: SessionState, command: EndRequest) -> tuple[SessionEvent, ...]:
    if scope_of(command.request_id) not in state.cancel_scopes:
        return ()
    updated = SessionUpdated(
        session_id=state.session_id,
        request_id=command.request_id,
        change=REQUEST_ENDED,
        artifact_refs=command.artifact_ids,
    )
    return (updated,)


def _forgotten(state: SessionState, request_id: str) -> tuple[SessionEvent, ...]:
    """A prompt that was remembered goes with its request."""
    if all(entry.request_id != request_id for entry in state.prompt_memory):
        return ()
    updated = SessionUpdated(
        session_id=state.session_id, request_id=request_id, change=REQUEST_FORGOTTEN
    )
    return (updated,)


def _closed(state: SessionState, reason: str) -> tuple[SessionEvent, ...]:
    return (SessionClosed(session_id=state.session_id, reason=reason, memory_released=True),)


def _with_update(state: SessionState, updated: SessionUpdated, event: Event) -> SessionState:
    scope = scope_of(updated.request_id)
    program = event.metadata.program_id
    scopes, programs = list(state.cancel_scopes), list(state.active_programs)
    if updated.change == REQUEST_BEGAN:
        scopes.append(scope)
        programs.append(program)
    elif scope in scopes:
        at = scopes.index(scope)
        # The two lists run side by side: one program for each running request.
        del scopes[at], programs[at]
    memory = state.prompt_memory
    if updated.remembered is not None:
        memory = _remembering(state, updated.remembered)
    if updated.change == REQUEST_FORGOTTEN:
        memory = tuple(one for one in memory if one.request_id != updated.request_id)
    refs = dict.fromkeys((*state.artifact_refs, *updated.artifact_refs))
    return replace(
        state,
        cancel_scopes=tuple(scopes),
        active_programs=tuple(programs),
        prompt_memory=memory,
        artifact_refs=tuple(refs)[-ARTIFACT_REFS_MAX:],
        last_active_at=max(state.last_active_at, event.metadata.occurred_at),
    )


def _with_push(state: SessionState, pushed: PushedText, event: Event) -> SessionState:
    state = replace(state, last_active_at=max(state.last_active_at, event.metadata.occurred_at))
    if pushed.role == PROMPT:
        entry = PromptMemoryEntry(prompt=pushed.text, at=pushed.at, push_id=pushed.push_id)
        return replace(state, prompt_memory=_remembering(state, entry))
    contexts = (*state.context_texts, pushed)[-max(1, state.prompt_memory_limit) :]
    return replace(state, context_texts=contexts)


def _with_close(state: SessionState, closed: SessionClosed, event: Event) -> SessionState:
    if closed.memory_released:
        state = replace(state, prompt_memory=(), context_texts=())
    return replace(
        state,
        status=SessionStatus.CLOSED,
        closed_at=event.metadata.occurred_at,
        close_reason=closed.reason,
    )


def _remembering(state: SessionState, entry: PromptMemoryEntry) -> tuple[PromptMemoryEntry, ...]:
    return (*state.prompt_memory, entry)[-max(1, state.prompt_memory_limit) :]
