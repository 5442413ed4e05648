"""What the log says of a request, as far as a scheduler that begins with it must know.

A new leader finds these in the log; a replay of its decisions finds the same.
"""

from collections.abc import MutableMapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from fastvideo.events.catalog import TERMINAL, check_known, metadata_of, payload_of
from fastvideo.events.records import StoredEvent
from fastvideo.requests.events import (
    RequestAccepted,
    RequestCancelRequested,
    RequestProgressed,
    RequestStarted,
)
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.inputs import CancelRequested, RequestSubmitted
from fastvideo.scheduling.work import CancelScope, CancelScopeKind

_HISTORY: Final = frozenset({RequestStarted.__name__, RequestProgressed.__name__})


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRecord:
    """A request of the log that has not ended."""

    spec: RequestSpec
    accepted_at: datetime
    event_id: str
    partition: int
    offset: int
    # W3C traceparent of the span that accepted it.
    traceparent: str
    attempts: int = 0
    progress: float = 0.0
    started_at: datetime | None = None
    # The cancellations that were asked for, each with the id of its event.
    cancels: tuple[tuple[str, RequestCancelRequested], ...] = ()


def accepted_record(stored: StoredEvent) -> LiveRecord:
    """The record of a RequestAccepted event."""
    payload = payload_of(stored)
    assert isinstance(payload, RequestAccepted)
    metadata = metadata_of(stored)
    return LiveRecord(
        spec=payload.spec,
        accepted_at=stored.recorded_at,
        event_id=stored.event_id,
        partition=stored.partition,
        offset=stored.offset,
        traceparent=metadata.traceparent,
    )


def fold_record(live: MutableMapping[str, LiveRecord], stored: StoredEvent) -> None:
    """Take one event into the records, by stream; a request that ends leaves them.

    Raises CorruptLog for an event that only a newer program knows.
    """
    if stored.type == RequestAccepted.__name__:
        live[stored.stream_id] = accepted_record(stored)
        return
    record = live.get(stored.stream_id)
    if record is None:
        return
    if stored.type in TERMINAL:
        del live[stored.stream_id]
    elif stored.type == RequestStarted.__name__:
        payload = payload_of(stored)
        assert isinstance(payload, RequestStarted)
        live[stored.stream_id] = replace(
            record,
            attempts=max(record.attempts, payload.attempt),
            started_at=record.started_at or stored.recorded_at,
        )
    elif stored.type == RequestProgressed.__name__:
        payload = payload_of(stored)
        assert isinstance(payload, RequestProgressed)
        live[stored.stream_id] = replace(record, progress=payload.fraction)
    elif stored.type == RequestCancelRequested.__name__:
        payload = payload_of(stored)
        assert isinstance(payload, RequestCancelRequested)
        cancels = (*record.cancels, (stored.event_id, payload))
        live[stored.stream_id] = replace(record, cancels=cancels)
    else:
        check_known(stored)


def had_gone_before(stored: StoredEvent, epoch: int) -> bool:
    """Whether an event tells how far a request had come when the term of an epoch began.

    Only earlier leaders write of that, each under its epoch; clocks have no part in it.
    """
    return 0 < stored.fence_epoch < epoch and stored.type in _HISTORY


def submitted(record: LiveRecord) -> RequestSubmitted:
    """The input that a live request is to a core that does not know it."""
    return RequestSubmitted(
        spec=record.spec,
        offset=record.offset,
        accepted_at=record.accepted_at,
        attempts=record.attempts,
        progress=record.progress,
        started_at=record.started_at,
    )


def cancel_requested(request_id: str, asked: RequestCancelRequested) -> CancelRequested:
    """The input that a cancellation in a request's stream is."""
    return CancelRequested(scope=scope_of(request_id, asked), reason=asked.reason)


def scope_of(request_id: str, asked: RequestCancelRequested) -> CancelScope:
    """What a cancellation in a request's stream is aimed at.

    One event a request: the gateway resolves a session's.
    """
    if asked.scope.kind is CancelScopeKind.SESSION:
        return CancelScope(kind=CancelScopeKind.REQUEST, target_id=request_id)
    return asked.scope
