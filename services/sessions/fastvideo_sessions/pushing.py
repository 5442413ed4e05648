"""Push: a text for an open session, once for each idempotency key."""

from dataclasses import dataclass

from fastvideo.api.sessions.v1 import sessions_pb2
from fastvideo.clock import Clock, milliseconds
from fastvideo.errors import CorruptLog, NotFound
from fastvideo.events.first_use import FirstUse, asked_digest, keyed_event_id, lookup, scoped_key
from fastvideo.events.records import AppendCommand, AppendResult, StreamAppend
from fastvideo.events.store import Appends, EventLog
from fastvideo.ids import new_id
from fastvideo.sessions.commands import PushText
from fastvideo.sessions.conditioning import check_push
from fastvideo.sessions.reading import read_pushes, read_session
from fastvideo.sessions.recording import session_event
from fastvideo.sessions.state import decide, stream_of
from fastvideo.sessions.types import PushedText, SessionState
from fastvideo_sessions.book import SessionBook


@dataclass(frozen=True, slots=True)
class Pushed:
    """The text that a push gave, and its session after it."""

    text: PushedText
    state: SessionState


class Pusher:
    """Gives sessions their texts."""

    def __init__(self, log: EventLog, appender: Appends, book: SessionBook, clock: Clock) -> None:
        self._log = log
        self._appender = appender
        self._book = book
        self._clock = clock

    async def push(self, message: sessions_pb2.PushTextRequest, tenant_id: str) -> Pushed:
        """The text as it was taken, or as its key had given it before.

        Raises InvalidField for a wrong role or text, NotFound for a session that the tenant has
        not, FailedPrecondition, SESSION_CLOSED, for one that is closed, AlreadyExists for a key
        that was used for something else, and Conflict when others keep writing the session.
        """
        check_push(message.role, message.text)
        key = scoped_key("push", tenant_id, message.idempotency_key)
        digest = asked_digest(message)
        if key is not None and await self._log.position_of(keyed_event_id(key)) is not None:
            return await self._first(
                message, tenant_id, digest, await self._appender.append(lookup(key))
            )
        return await self._append(message, tenant_id, key, digest)

    async def _append(
        self, message: sessions_pb2.PushTextRequest, tenant_id: str, key: str | None, digest: str
    ) -> Pushed:
        now = self._clock.now()
        text = PushedText(
            push_id=new_id("psh", milliseconds(now)), role=message.role, text=message.text, at=now
        )

        async def attempt() -> AppendResult:
            found = await read_session(self._log, message.session_id)
            state = found.state
            if state is None or state.tenant_id != tenant_id:
                raise NotFound(f"session {message.session_id} does not exist", subject="session_id")
            (payload,) = decide(state, PushText(pushed=text))
            event_id = keyed_event_id(key) if key else ""
            event = session_event(state, payload, now, event_id=event_id)
            command = AppendCommand(
                streams=(StreamAppend(stream_of(state.session_id), (event,), found.version),),
                idempotency_key=key,
                result=FirstUse(text.push_id, digest).encode(),
            )
            return await self._appender.append(command)

        result = await self._book.turns.take(message.session_id, attempt)
        if result.repeated and FirstUse.of(result).subject_id != text.push_id:
            return await self._first(message, tenant_id, digest, result)
        return Pushed(text, await self._book.read(message.session_id, tenant_id))

    async def _first(
        self,
        message: sessions_pb2.PushTextRequest,
        tenant_id: str,
        digest: str,
        result: AppendResult,
    ) -> Pushed:
        first = FirstUse.of(result)
        first.require_same(digest)
        state = await self._book.read(message.session_id, tenant_id)
        async for text in read_pushes(self._log, message.session_id):
            if text.push_id == first.subject_id:
                return Pushed(text, state)
        raise CorruptLog(f"a key names push {first.subject_id}, which is not in the log")
