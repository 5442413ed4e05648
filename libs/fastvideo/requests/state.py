"""What the log says of a request: a pure fold over its stream.

The stream `request-<id>` holds the request's own events and those of its artifacts and media.
The same fold serves the gateway's reads, its projection, the in-process engine and replay.

Invariant: no IO and no clock. Times are those that the events carry.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from fastvideo.artifacts.events import (
    ArtifactCompleted,
    ArtifactCreated,
    ArtifactDeleted,
    ArtifactUpdated,
)
from fastvideo.artifacts.types import ArtifactRecord
from fastvideo.errors import CorruptLog
from fastvideo.events.types import Event
from fastvideo.requests.events import (
    RequestAccepted,
    RequestCancelled,
    RequestCancelRequested,
    RequestCompleted,
    RequestDeleted,
    RequestExpired,
    RequestFailed,
    RequestProgressed,
    RequestQueued,
    RequestStarted,
)
from fastvideo.requests.lifetimes import expiry
from fastvideo.requests.types import RequestMetrics, RequestState, RequestStatus
from fastvideo.scheduling.work import CancelScopeKind

STREAM_PREFIX: Final = "request-"

TERMINAL_STATUSES: Final = frozenset(
    {RequestStatus.COMPLETED, RequestStatus.FAILED, RequestStatus.CANCELLED}
)


def stream_of(request_id: str) -> str:
    """The id of a request's stream."""
    return f"{STREAM_PREFIX}{request_id}"


def is_terminal(state: RequestState) -> bool:
    """Whether the request has ended."""
    return state.status in TERMINAL_STATUSES


def fold(events: Iterable[Event], state: RequestState | None = None) -> RequestState | None:
    """The state after all events, from `state` on; None when there is no event at all."""
    for event in events:
        state = evolve(state, event)
    return state


def evolve(state: RequestState | None, event: Event) -> RequestState:
    """The state after one more event of the request's stream.

    Progress never goes down. Once the request has ended, its status, times, error and figures
    stay as they are; artifacts that arrive later are still listed, and so is what goes.

    Raises CorruptLog when the event is not the next of the stream, or the stream does not begin
    with RequestAccepted.
    """
    _check_next(state, event)
    if state is None:
        return _begin(event)
    if isinstance(event.payload, RequestProgressed):
        # Most of a stream: one copy of the state instead of two.
        return _progressed(state, event.payload.fraction, event.stream_version)
    state = replace(state, last_sequence=event.stream_version)
    match event.payload:
        case ArtifactCreated(record=record):
            return _with_record(state, record, replaces=False)
        case ArtifactCompleted(record=record):
            return _with_record(state, record, replaces=True)
        case ArtifactUpdated() as updated:
            return _with_size(state, updated)
        case ArtifactDeleted() as deleted:
            return _without_bytes(state, deleted)
        case RequestExpired(expires_at=expires_at):
            return replace(state, expired_at=expires_at)
        case RequestDeleted():
            return replace(state, deleted_at=event.metadata.occurred_at)
    return state if is_terminal(state) else _evolve_running(state, event)


def _evolve_running(state: RequestState, event: Event) -> RequestState:
    match event.payload:
        case RequestQueued(reason=reason):
            return replace(state, status=RequestStatus.QUEUED, queue_reason=reason)
        case RequestStarted():
            started_at = state.started_at or event.metadata.occurred_at
            state = replace(state, status=RequestStatus.RUNNING, queue_reason="")
            return replace(state, started_at=started_at)
        case RequestCancelRequested(scope=scope):
            whole = scope.kind not in (CancelScopeKind.LOOP, CancelScopeKind.STREAM)
            return replace(state, cancel_requested=state.cancel_requested or whole)
        case RequestCancelled(metrics=metrics):
            return _ended(state, event, RequestStatus.CANCELLED, metrics)
        case RequestFailed(metrics=metrics, error=error):
            return replace(_ended(state, event, RequestStatus.FAILED, metrics), error=error)
        case RequestCompleted(metrics=metrics, latents_digest=digest):
            ended = _ended(state, event, RequestStatus.COMPLETED, metrics)
            return replace(ended, progress=1.0, latents_digest=digest)
    return state


def _progressed(state: RequestState, fraction: float, sequence: int) -> RequestState:
    # A restart elsewhere begins again below; what a user saw does not go back.
    progress = state.progress if is_terminal(state) else min(1.0, max(state.progress, fraction))
    return replace(state, last_sequence=sequence, progress=progress)


def _check_next(state: RequestState | None, event: Event) -> None:
    expected = 1 if state is None else state.last_sequence + 1
    if event.stream_version != expected:
        raise CorruptLog(
            f"stream {event.stream_id} goes on at version {event.stream_version}, "
            f"not at {expected}",
            reason="STREAM_GAP",
            subject=event.stream_id,
        )


def _begin(event: Event) -> RequestState:
    if not isinstance(event.payload, RequestAccepted):
        raise CorruptLog(
            f"stream {event.stream_id} begins with {event.type}, not with RequestAccepted",
            reason="STREAM_BEGIN",
            subject=event.stream_id,
        )
    return RequestState(
        spec=event.payload.spec,
        status=RequestStatus.ACCEPTED,
        last_sequence=event.stream_version,
        accepted_at=event.metadata.occurred_at,
    )


def _ended(
    state: RequestState, event: Event, status: RequestStatus, metrics: RequestMetrics
) -> RequestState:
    ended_at = event.metadata.occurred_at
    return replace(
        state,
        status=status,
        queue_reason="",
        metrics=metrics,
        ended_at=ended_at,
        expires_at=expiry(ended_at, state.spec.outputs.ttl_s),
    )


def _with_record(state: RequestState, record: ArtifactRecord, *, replaces: bool) -> RequestState:
    """Put a record in its place, or at the end when it is new."""
    records = {known.artifact_id: known for known in state.artifacts}
    # A re-run after a crash creates the same artifact again; its completed record stays.
    if replaces or record.artifact_id not in records:
        records[record.artifact_id] = record
    return replace(state, artifacts=tuple(records.values()))


def _with_size(state: RequestState, updated: ArtifactUpdated) -> RequestState:
    def grown(record: ArtifactRecord) -> ArtifactRecord:
        if record.artifact_id != updated.artifact_id or record.digest:
            return record
        return replace(record, size_bytes=updated.size_bytes)

    return replace(state, artifacts=tuple(map(grown, state.artifacts)))


def _without_bytes(state: RequestState, deleted: ArtifactDeleted) -> RequestState:
    def given_up(record: ArtifactRecord) -> ArtifactRecord:
        if record.artifact_id != deleted.artifact_id:
            return record
        return replace(record, deleted_at=deleted.deleted_at)

    return replace(state, artifacts=tuple(map(given_up, state.artifacts)))
