"""What the service keeps for lists and timeouts: a projection that may be thrown away.

The port has two adapters: one in memory and one in Postgres.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from fastvideo.errors import FastVideoError
from fastvideo.events.projections.projector import Projection
from fastvideo.events.records import StoredEvent
from fastvideo.events.views import event_for_view
from fastvideo.rpc.paging import PagePosition
from fastvideo.sessions.state import STREAM_PREFIX, evolve, is_open
from fastvideo.sessions.types import SessionState
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """Which sessions to list, newest first."""

    tenant_id: str
    limit: int
    after: PagePosition | None = None


class SessionIndex(Projection, Protocol):
    """Sessions by time, and by the moment at which they will have been quiet for too long."""

    async def list_sessions(self, query: ListQuery) -> tuple[SessionState, ...]:
        """The sessions of a query, newest first."""
        ...

    async def list_expired(self, now: datetime, limit: int) -> tuple[str, ...]:
        """Ids of open sessions whose time is up, the longest quiet first."""
        ...

    async def close(self) -> None:
        """Give back what the index holds."""
        ...


def touched_sessions(events: Iterable[StoredEvent]) -> list[str]:
    """Ids of the sessions whose streams the events are in."""
    ids = (
        stored.stream_id.removeprefix(STREAM_PREFIX)
        for stored in events
        if stored.stream_id.startswith(STREAM_PREFIX)
    )
    return list(dict.fromkeys(ids))


def fold_changes(
    events: Iterable[StoredEvent], sessions: Mapping[str, SessionState]
) -> dict[str, SessionState]:
    """What the events make of the sessions that they touch.

    A session that does not fold is left out and told of in the log, so that it does not stop all
    others: a list is a view, not the truth.
    """
    changed: dict[str, SessionState] = {}
    for stored in events:
        if not stored.stream_id.startswith(STREAM_PREFIX):
            continue
        session_id = stored.stream_id.removeprefix(STREAM_PREFIX)
        before = changed.get(session_id, sessions.get(session_id))
        try:
            event = event_for_view(stored, "sessions")
            if event is not None:
                changed[session_id] = evolve(before, event)
        except FastVideoError as error:
            _LOG.error("session left out of lists", stream=stored.stream_id, error=error.message)
    return changed


def expires_at(state: SessionState) -> datetime | None:
    """When the session will have been quiet for too long; None while it cannot be."""
    if not is_open(state) or state.cancel_scopes:
        return None
    return state.last_active_at + timedelta(seconds=state.inactivity_timeout_s)
