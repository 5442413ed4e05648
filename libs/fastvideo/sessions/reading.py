"""A session read from the log: the truth, at the moment of reading."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from fastvideo.events.catalog import event_of
from fastvideo.events.store import EventLog
from fastvideo.sessions.events import SessionTextPushed
from fastvideo.sessions.state import evolve, stream_of
from fastvideo.sessions.types import PushedText, SessionState

EVENTS_PER_READ: Final = 500


@dataclass(frozen=True, slots=True)
class SessionAt:
    """A session and the version of its stream; version 0 when there is none."""

    state: SessionState | None
    version: int


async def read_session(log: EventLog, session_id: str) -> SessionAt:
    """The session as it stands."""
    state: SessionState | None = None
    version = 0
    while True:
        page = await log.read_stream(stream_of(session_id), version, EVENTS_PER_READ)
        for stored in page:
            state = evolve(state, event_of(stored))
            version = stored.stream_version
        if len(page) < EVENTS_PER_READ:
            return SessionAt(state, version)


async def read_pushes(log: EventLog, session_id: str) -> AsyncIterator[PushedText]:
    """The texts that the session was ever given, oldest first, also those that it forgot."""
    version = 0
    while page := await log.read_stream(stream_of(session_id), version, EVENTS_PER_READ):
        for stored in page:
            payload = event_of(stored).payload
            if isinstance(payload, SessionTextPushed):
                yield payload.pushed
        version = page[-1].stream_version
