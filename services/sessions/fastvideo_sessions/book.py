"""Sessions in the log: read, decide, append; the stream's version guards against others."""

from collections.abc import Sequence

from fastvideo.clock import Clock
from fastvideo.errors import NotFound
from fastvideo.events.records import AppendCommand, NewEvent, StreamAppend
from fastvideo.events.store import Appends, EventLog
from fastvideo.sessions.commands import SessionCommand
from fastvideo.sessions.reading import SessionAt, read_session
from fastvideo.sessions.recording import Cause, session_event
from fastvideo.sessions.state import SessionEvent, decide, stream_of
from fastvideo.sessions.turns import SessionTurns
from fastvideo.sessions.types import SessionState


class SessionBook:
    """The sessions of the log, one at a time."""

    def __init__(self, log: EventLog, appender: Appends, clock: Clock) -> None:
        self._log = log
        self._appender = appender
        self._clock = clock
        # Everybody in this process who writes a session takes turns here.
        self.turns = SessionTurns()

    async def read(self, session_id: str, tenant_id: str) -> SessionState:
        """The session as it stands. Raises NotFound when the tenant has none with this id."""
        state = (await read_session(self._log, session_id)).state
        if state is None or state.tenant_id != tenant_id:
            raise NotFound(f"session {session_id} does not exist", subject="session_id")
        return state

    async def tell(self, session_id: str, command: SessionCommand) -> bool:
        """Do what a command leads to; whether it led to anything.

        Raises Conflict when others keep writing the session.
        """

        async def attempt() -> bool:
            found = await read_session(self._log, session_id)
            payloads = decide(found.state, command)
            if not payloads or found.state is None:
                return False
            await self._appender.append(self.append_of(found, payloads))
            return True

        return await self.turns.take(session_id, attempt)

    def append_of(
        self, found: SessionAt, payloads: Sequence[SessionEvent], cause: Cause | None = None
    ) -> AppendCommand:
        """The append of a session's next events, at the version that was read."""
        state = found.state
        assert state is not None  # `decide` refuses every command but a creation without one.
        events = tuple(self.event_of(state, payload, cause or Cause()) for payload in payloads)
        return AppendCommand(
            streams=(StreamAppend(stream_of(state.session_id), events, found.version),)
        )

    def event_of(
        self, state: SessionState, payload: SessionEvent, cause: Cause, event_id: str = ""
    ) -> NewEvent:
        """An event of a session, ready to be appended."""
        return session_event(state, payload, self._clock.now(), cause, event_id)
