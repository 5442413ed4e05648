"""A request's past: its events page by page, and its state after any of them.

The log has both; what is kept here is only for speed, and for a short while: states at every
`CHECKPOINT_EVERY` events of the requests that were looked at last, so that moving back and forth
in a long stream folds few events each time.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from fastvideo.clock import Clock
from fastvideo.errors import CorruptLog, InvalidField, NotFound
from fastvideo.events.catalog import event_of, metadata_of
from fastvideo.events.reading.entries import FoundEvent, read_versions
from fastvideo.events.records import StoredEvent
from fastvideo.events.seeking import version_before
from fastvideo.events.store import EventLog
from fastvideo.events.types import Event
from fastvideo.requests.standing import Standings
from fastvideo.requests.state import evolve, stream_of
from fastvideo.requests.types import RequestState

EVENTS_DEFAULT: Final = 200
EVENTS_MAX: Final = 1_000
EVENTS_PER_READ: Final = 500
CHECKPOINT_EVERY: Final = 500
REQUESTS_KEPT_MAX: Final = 16
# Folds of long streams; more wait for their turn.
AT_ONCE_MAX: Final = 2
# A tenant's texts are not kept for longer than somebody looks.
KEPT_FOR: Final = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class EventsPage:
    """Events of a stream, oldest first, and the version that the stream has."""

    events: tuple[FoundEvent, ...]
    stream_version: int


@dataclass(frozen=True, slots=True)
class PastState:
    """A request's state right after one of its events, that event, and the state before it."""

    event: Event
    state: RequestState
    # None for the first event.
    before: RequestState | None


@dataclass(slots=True)
class _Kept:
    kept_at: datetime
    # By the version of the last event that is in it.
    states: dict[int, RequestState] = field(default_factory=dict)


class RequestPast:
    """Reads what was; a request of another tenant does not exist."""

    def __init__(self, log: EventLog, clock: Clock, standings: Standings | None = None) -> None:
        self._log = log
        self._standings = standings or Standings(log, clock)
        self._clock = clock
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)

    async def events(
        self, request_id: str, tenant_id: str, *, after: int = 0, limit: int = 0
    ) -> EventsPage:
        """The events after a version. Raises NotFound, and InvalidField for a wrong limit."""
        if not 0 <= limit <= EVENTS_MAX:
            allowed = f"1 to {EVENTS_MAX}; 0 takes {EVENTS_DEFAULT}"
            raise InvalidField("limit", limit, allowed)
        version = await self._version(request_id, tenant_id)
        size = limit or EVENTS_DEFAULT
        events = await read_versions(self._log, stream_of(request_id), after, size)
        return EventsPage(events, max(version, events[-1].stream_version if events else 0))

    async def event(self, request_id: str, tenant_id: str, version: int) -> FoundEvent:
        """One event. Raises NotFound naming what does not exist."""
        last = await self._version(request_id, tenant_id)
        _check_version(version, last)
        (found,) = await read_versions(self._log, stream_of(request_id), version - 1, 1)
        return found

    async def version_at(self, request_id: str, tenant_id: str, moment: datetime) -> int:
        """The version of the last event that was recorded before a moment; 0 for none."""
        await self._version(request_id, tenant_id)
        return await version_before(self._log, stream_of(request_id), moment)

    async def state_at(self, request_id: str, tenant_id: str, version: int) -> PastState:
        """The state right after an event.

        Raises NotFound for an unknown request, InvalidField for a version that it has not
        reached, and CorruptLog when its stream does not fold.
        """
        last = await self._version(request_id, tenant_id)
        _check_version(version, last)
        kept = self._checkpoints(request_id)
        base = max((known for known in kept.states if known < version), default=0)
        state = kept.states.get(base)
        async with self._turns:
            while True:
                limit = min(EVENTS_PER_READ, version - base)
                page = await self._log.read_stream(stream_of(request_id), base, limit)
                # In a thread, since others want to be answered meanwhile.
                past, checkpoints = await asyncio.to_thread(_fold, state, page)
                kept.states.update(checkpoints)
                base, state = past.event.stream_version, past.state
                if base == version:
                    return past

    def _checkpoints(self, request_id: str) -> _Kept:
        now = self._clock.now()
        for known in [id_ for id_, one in self._kept.items() if one.kept_at + KEPT_FOR < now]:
            del self._kept[known]
        kept = self._kept.setdefault(request_id, _Kept(now))
        self._kept.move_to_end(request_id)
        if len(self._kept) > REQUESTS_KEPT_MAX:
            self._kept.popitem(last=False)
        return kept

    async def _version(self, request_id: str, tenant_id: str) -> int:
        """The version of the request's stream. Raises NotFound when it is no request of theirs."""
        stream_id = stream_of(request_id)
        first = await self._log.read_stream(stream_id, 0, 1)
        if (
            not first
            or metadata_of(first[0]).tenant_id != tenant_id
            or await self._is_deleted(request_id)
        ):
            raise NotFound(f"request {request_id} does not exist", subject="request_id")
        return await self._log.stream_version(stream_id)

    async def _is_deleted(self, request_id: str) -> bool:
        try:
            state = await self._standings.read(request_id)
        except CorruptLog:
            # Its events can be looked at all the more.
            return False
        return state is not None and state.deleted_at is not None


def _fold(
    state: RequestState | None, page: Sequence[StoredEvent]
) -> tuple[PastState, dict[int, RequestState]]:
    """Fold some events, at least one: the last one's state, and those at checkpoints."""
    past: PastState | None = None
    checkpoints: dict[int, RequestState] = {}
    for stored in page:
        event = event_of(stored)
        past = PastState(event, evolve(state, event), state)
        state = past.state
        if stored.stream_version % CHECKPOINT_EVERY == 0:
            checkpoints[stored.stream_version] = past.state
    if past is None:
        raise CorruptLog("a stream ended before its version", reason="STREAM_GAP")
    return past, checkpoints


def _check_version(version: int, last: int) -> None:
    if not 1 <= version <= last:
        raise InvalidField("version", version, f"1 to {last}")
