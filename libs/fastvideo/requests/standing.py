"""Where requests stand: what the log says at the moment of asking, folded once."""

from collections import OrderedDict
from dataclasses import replace
from typing import Final

from fastvideo.clock import Clock, SystemClock
from fastvideo.errors import NotFound
from fastvideo.events.catalog import event_of
from fastvideo.events.records import StoredEvent
from fastvideo.events.store import EventLog
from fastvideo.requests.events import RequestAccepted
from fastvideo.requests.lifetimes import as_of
from fastvideo.requests.reading import read_events
from fastvideo.requests.state import evolve, stream_of
from fastvideo.requests.types import RequestState

STATES_MAX: Final = 1_024
# Shorter histories are read again as fast.
EVENTS_MIN: Final = 8


class Standings:
    """Requests as they stand; callers that ask again and again cost little.

    What is kept of a request is the fold of its first events, which stay what they are. Every
    question asks the log for the events after those, so it is never behind; and for the first
    event, since what a tenant wrote is in that one alone and goes when the tenant is erased.
    """

    def __init__(
        self, log: EventLog, clock: Clock | None = None, *, states_max: int = STATES_MAX
    ) -> None:
        self._log = log
        self._clock = clock or SystemClock()
        self._states_max = states_max
        # The one asked for last is the last.
        self._folded: OrderedDict[str, RequestState] = OrderedDict()

    async def read(self, request_id: str) -> RequestState | None:
        """The request as it stands; None when there is none with this id."""
        state = await self._begun(request_id)
        after = 0 if state is None else state.last_sequence
        async for stored in read_events(self._log, request_id, after):
            state = evolve(state, event_of(stored))
        if state is not None and state.last_sequence >= EVENTS_MIN:
            self._keep(request_id, state)
        return state

    async def visible(
        self, request_id: str, tenant_id: str, *, subject: str = "request_id"
    ) -> RequestState:
        """The request as its tenant may see it now; `subject` is the caller's name for the id.

        Raises NotFound for one that is not there, is another tenant's, or was deleted.
        """
        state = await self.read(request_id)
        if state is None or state.spec.tenant_id != tenant_id or state.deleted_at is not None:
            raise NotFound(f"request {request_id} does not exist", subject=subject)
        return as_of(state, self._clock.now())

    async def _begun(self, request_id: str) -> RequestState | None:
        """What is kept of a request, with its texts as the log has them now."""
        folded = self._folded.get(request_id)
        if folded is None:
            return None
        first = await self._log.read_stream(stream_of(request_id), 0, 1)
        return None if not first else _with_texts(folded, first[0])

    def _keep(self, request_id: str, state: RequestState) -> None:
        self._folded[request_id] = state
        self._folded.move_to_end(request_id)
        if len(self._folded) > self._states_max:
            self._folded.popitem(last=False)


def _with_texts(state: RequestState, first: StoredEvent) -> RequestState | None:
    payload = event_of(first).payload
    return replace(state, spec=payload.spec) if isinstance(payload, RequestAccepted) else None
