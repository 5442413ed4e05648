"""What the gateway keeps for lists: a projection of the log that may be thrown away.

The port has two adapters: one in memory and one in Postgres. Both take the log's events in the
order of each partition, any number of times, and remember how far they came.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Protocol

from fastvideo.errors import CorruptLog, FastVideoError
from fastvideo.events.catalog import event_of
from fastvideo.events.projections.projector import Projection
from fastvideo.events.records import StoredEvent
from fastvideo.events.types import Event
from fastvideo.events.views import event_for_view
from fastvideo.requests.events import RequestCancelled, RequestCompleted, RequestFailed
from fastvideo.requests.state import STREAM_PREFIX, evolve
from fastvideo.requests.types import RequestState, RequestStatus, TextPart
from fastvideo.rpc.paging import PagePosition
from fastvideo.scheduling.events import LeaderElected, WorkerAttached, WorkerLost
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)

_WORKER_TYPES: Final = frozenset(
    {WorkerAttached.__name__, WorkerLost.__name__, LeaderElected.__name__}
)

_ENDS: Final[Mapping[str, RequestStatus]] = MappingProxyType(
    {
        RequestCompleted.__name__: RequestStatus.COMPLETED,
        RequestFailed.__name__: RequestStatus.FAILED,
        RequestCancelled.__name__: RequestStatus.CANCELLED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """Which requests to list, newest first."""

    tenant_id: str
    limit: int
    # None lists all.
    statuses: frozenset[RequestStatus] | None = None
    # Empty lists all.
    session_id: str = ""
    model_id: str = ""
    # Lower case; each must occur in the id, the model's id or a text of the request.
    words: tuple[str, ...] = ()
    after: PagePosition | None = None
    oldest_first: bool = False
    # Only those that make a video.
    videos: bool = False


class RequestIndex(Projection, Protocol):
    """Requests by time, status and session, and the workers that are attached."""

    async def list_requests(self, query: ListQuery) -> tuple[RequestState, ...]:
        """The requests of a query that are not deleted, newest first."""
        ...

    async def find_requests(
        self, tenant_id: str, request_ids: Sequence[str], *, deleted_too: bool = False
    ) -> tuple[RequestState, ...]:
        """Those of a tenant with these ids, in no order; unknown ones are left out.

        Deleted ones are unknown but to those who compare the rows with the log.
        """
        ...

    async def under_way(self, limit: int) -> tuple[RequestState, ...]:
        """The requests of all tenants that have not ended, the oldest ones first."""
        ...

    async def attached_workers(self) -> tuple[WorkerAttached, ...]:
        """The workers that are attached now."""
        ...

    async def close(self) -> None:
        """Give back what the index holds."""
        ...


@dataclass(frozen=True, slots=True)
class Changes:
    """What some events change."""

    requests: Mapping[str, RequestState]
    # None for a worker that is gone.
    workers: Mapping[str, WorkerAttached | None]


def searched_text(state: RequestState) -> str:
    """What the words of a query are looked for in, lower case."""
    spec = state.spec
    texts = (part.text for part in spec.inputs if isinstance(part, TextPart))
    # Postgres has no text with a zero byte in it.
    return "\n".join((spec.request_id, spec.model_id, *texts)).lower().replace("\0", " ")


def touched_requests(events: Iterable[StoredEvent]) -> list[str]:
    """Ids of the requests whose streams the events are in."""
    ids = (
        stored.stream_id.removeprefix(STREAM_PREFIX)
        for stored in events
        if stored.stream_id.startswith(STREAM_PREFIX)
    )
    return list(dict.fromkeys(ids))


def touched_workers(events: Iterable[StoredEvent]) -> bool:
    """Whether a worker came or went."""
    return any(stored.type in _WORKER_TYPES for stored in events)


def fold_changes(
    events: Iterable[StoredEvent],
    requests: Mapping[str, RequestState],
    workers: Mapping[str, WorkerAttached],
) -> Changes:
    """What the events make of the requests and workers that they touch.

    A list is a view, not the truth: a request that does not fold is left out and told of in the
    log, so that it does not stop all others.
    """
    new_requests: dict[str, RequestState] = {}
    new_workers: dict[str, WorkerAttached | None] = {}
    for stored in events:
        if stored.stream_id.startswith(STREAM_PREFIX):
            request_id = stored.stream_id.removeprefix(STREAM_PREFIX)
            before = new_requests.get(request_id, requests.get(request_id))
            after = _evolved(before, stored)
            if after is not None:
                new_requests[request_id] = after
        elif stored.type in _WORKER_TYPES:
            _fold_worker(stored, workers, new_workers)
    return Changes(new_requests, new_workers)


def _evolved(before: RequestState | None, stored: StoredEvent) -> RequestState | None:
    try:
        event = _read(stored)
        return _passed_over(before, stored) if event is None else evolve(before, event)
    except FastVideoError as error:
        _LOG.error("request left out of lists", stream=stored.stream_id, error=error.message)
        return None


def _read(stored: StoredEvent) -> Event | None:
    """The event; None when it cannot be read."""
    try:
        return event_for_view(stored, "requests")
    except CorruptLog as error:
        _LOG.error("event left out of lists", stream=stored.stream_id, error=error.message)
        return None


def _passed_over(before: RequestState | None, stored: StoredEvent) -> RequestState | None:
    """The request after an event that cannot be read: one that has ended has ended."""
    if before is None:
        return None
    status = _ENDS.get(stored.type, before.status)
    return replace(before, status=status, last_sequence=stored.stream_version)


def _fold_worker(
    stored: StoredEvent,
    workers: Mapping[str, WorkerAttached],
    changed: dict[str, WorkerAttached | None],
) -> None:
    payload = event_of(stored).payload
    if isinstance(payload, WorkerAttached):
        changed[payload.worker_id] = payload
    elif isinstance(payload, WorkerLost):
        known = changed.get(payload.worker_id, workers.get(payload.worker_id))
        # Its next incarnation may have attached before the loss of the last was told.
        if known is not None and payload.incarnation in ("", known.incarnation):
            changed[payload.worker_id] = None
    elif isinstance(payload, LeaderElected) and payload.anew:
        # Nobody will tell of losses of before; whoever lives attaches again.
        changed.update(dict.fromkeys((*workers, *changed)))
