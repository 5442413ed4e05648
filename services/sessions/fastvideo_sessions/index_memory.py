"""The index in a dictionary: for unit tests."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from fastvideo.events.projections.projector import fresh_events
from fastvideo.events.records import StoredEvent
from fastvideo.events.sealing.erasures import erasures
from fastvideo.sessions.erasing import without_prompts
from fastvideo.sessions.types import SessionState
from fastvideo_sessions.index import ListQuery, expires_at, fold_changes


class MemoryIndex:
    """A `SessionIndex` that forgets everything when the process ends."""

    def __init__(self) -> None:
        self._positions: dict[int, int] = {}
        self._sessions: dict[str, SessionState] = {}
        self._erased: dict[str, datetime] = {}

    async def positions(self) -> Mapping[int, int]:
        return dict(self._positions)

    async def apply(self, events: Sequence[StoredEvent]) -> None:
        if not events:
            return
        partition = events[0].partition
        fresh = fresh_events(events, self._positions.get(partition, 0))
        self._sessions.update(fold_changes(fresh, self._sessions))
        self._erased.update(erasures(fresh))
        for session_id, state in self._sessions.items():
            if state.tenant_id in self._erased:
                before = self._erased[state.tenant_id]
                self._sessions[session_id] = without_prompts(state, before)
        if fresh:
            self._positions[partition] = fresh[-1].offset

    async def list_sessions(self, query: ListQuery) -> tuple[SessionState, ...]:
        found = [state for state in self._sessions.values() if _matches(state, query)]
        found.sort(key=lambda state: (state.created_at, state.session_id), reverse=True)
        return tuple(found[: query.limit])

    async def list_expired(self, now: datetime, limit: int) -> tuple[str, ...]:
        due = [
            (at, state.session_id)
            for state in self._sessions.values()
            if (at := expires_at(state)) is not None and at <= now
        ]
        return tuple(session_id for _, session_id in sorted(due)[:limit])

    async def close(self) -> None:
        """Nothing is held."""


def _matches(state: SessionState, query: ListQuery) -> bool:
    after = query.after
    return state.tenant_id == query.tenant_id and (
        after is None or (state.created_at, state.session_id) < (after.at, after.item_id)
    )
