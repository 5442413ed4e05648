"""The index in dictionaries: for unit tests."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from fastvideo.events.projections.projector import fresh_events
from fastvideo.events.records import StoredEvent
from fastvideo.events.sealing.erasures import erasures
from fastvideo.requests.erasing import without_texts
from fastvideo.requests.state import is_terminal
from fastvideo.requests.types import RequestState
from fastvideo.rpc.paging import PagePosition
from fastvideo.scheduling.events import WorkerAttached
from fastvideo_gateway.index import ListQuery, fold_changes, searched_text


class MemoryIndex:
    """A `RequestIndex` that forgets everything when the process ends."""

    def __init__(self) -> None:
        self._positions: dict[int, int] = {}
        self._requests: dict[str, RequestState] = {}
        self._workers: dict[str, WorkerAttached] = {}
        self._erased: dict[str, datetime] = {}

    async def positions(self) -> Mapping[int, int]:
        return dict(self._positions)

    async def apply(self, events: Sequence[StoredEvent]) -> None:
        if not events:
            return
        partition = events[0].partition
        fresh = fresh_events(events, self._positions.get(partition, 0))
        changes = fold_changes(fresh, self._requests, self._workers)
        self._requests.update(changes.requests)
        self._erased.update(erasures(fresh))
        for request_id, state in self._requests.items():
            if state.accepted_at < self._erased.get(state.spec.tenant_id, state.accepted_at):
                self._requests[request_id] = without_texts(state)
        for worker_id, worker in changes.workers.items():
            self._workers.pop(worker_id, None)
            if worker is not None:
                self._workers[worker_id] = worker
        if fresh:
            self._positions[partition] = fresh[-1].offset

    async def list_requests(self, query: ListQuery) -> tuple[RequestState, ...]:
        found = [state for state in self._requests.values() if _matches(state, query)]
        found.sort(
            key=lambda state: (state.accepted_at, state.spec.request_id),
            reverse=not query.oldest_first,
        )
        return tuple(found[: query.limit])

    async def find_requests(
        self, tenant_id: str, request_ids: Sequence[str], *, deleted_too: bool = False
    ) -> tuple[RequestState, ...]:
        found = (self._requests.get(request_id) for request_id in dict.fromkeys(request_ids))
        return tuple(
            state
            for state in found
            if state is not None
            and state.spec.tenant_id == tenant_id
            and (deleted_too or state.deleted_at is None)
        )

    async def under_way(self, limit: int) -> tuple[RequestState, ...]:
        found = [state for state in self._requests.values() if not is_terminal(state)]
        found.sort(key=lambda state: state.accepted_at)
        return tuple(found[:limit])

    async def attached_workers(self) -> tuple[WorkerAttached, ...]:
        return tuple(self._workers.values())

    async def close(self) -> None:
        """Nothing is held."""


def _matches(state: RequestState, query: ListQuery) -> bool:
    spec, after = state.spec, query.after
    if state.deleted_at is not None:
        return False
    text = searched_text(state) if query.words else ""
    return (
        spec.tenant_id == query.tenant_id
        and (query.statuses is None or state.status in query.statuses)
        and query.session_id in ("", spec.session_id)
        and query.model_id in ("", spec.model_id)
        and (not query.videos or spec.outputs.video)
        and all(word in text for word in query.words)
        and (after is None or _is_behind(state, after, oldest_first=query.oldest_first))
    )


def _is_behind(state: RequestState, after: PagePosition, *, oldest_first: bool) -> bool:
    own, other = (state.accepted_at, state.spec.request_id), (after.at, after.item_id)
    return own > other if oldest_first else own < other
