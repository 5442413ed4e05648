"""What a new leader finds in the log: the requests that have not ended.

A checkpoint keeps, for each partition, the low-water mark: below it every request has ended, so
a leader reads from there and not from the beginning.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from fastvideo.events.catalog import TERMINAL, check_known, payload_of
from fastvideo.events.records import StoredEvent
from fastvideo.events.store import EventLog
from fastvideo.events.types import EventMetadata
from fastvideo.requests.events import (
    RequestAccepted,
    RequestCancelRequested,
    RequestProgressed,
    RequestStarted,
)
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.inputs import RequestSubmitted
from fastvideo.wire import decode
from fastvideo_scheduler.saved_term import Acceptance

READ_MAX = 1_000


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
    metadata = decode(EventMetadata, stored.metadata)
    return LiveRecord(
        spec=payload.spec,
        accepted_at=stored.recorded_at,
        event_id=stored.event_id,
        partition=stored.partition,
        offset=stored.offset,
        traceparent=metadata.traceparent,
    )


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


class LowWater:
    """Up to where, in each partition, every request has ended, by what the log itself says."""

    def __init__(self, cursors: Mapping[int, int], live: Iterable[Acceptance] = ()) -> None:
        self._cursors = dict(cursors)
        # Offsets rise within a partition, so each dict is in order.
        self._live: dict[int, dict[str, int]] = {partition: {} for partition in cursors}
        for known in sorted(live, key=lambda known: known.offset):
            self._live[known.partition][known.request_id] = known.offset

    def accepted(self, request_id: str, partition: int, offset: int) -> None:
        """A request begins there."""
        self._live[partition][request_id] = offset

    def ended(self, request_id: str, partition: int) -> None:
        """Its terminal event is in the log."""
        self._live[partition].pop(request_id, None)

    def read(self, partition: int, offset: int) -> None:
        """All up to the offset was read."""
        self._cursors[partition] = max(offset, self._cursors[partition])

    @property
    def cursors(self) -> Mapping[int, int]:
        """By partition, the offset up to which all was read."""
        return dict(self._cursors)

    @property
    def marks(self) -> Mapping[int, int]:
        """The low-water mark of each partition."""
        return {
            partition: next(iter(self._live[partition].values()), cursor + 1) - 1
            for partition, cursor in self._cursors.items()
        }


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was found, and up to where it was read."""

    # By the time of acceptance.
    live: tuple[LiveRecord, ...]
    cursors: Mapping[int, int]


async def rebuild(log: EventLog, marks: Mapping[int, int]) -> Rebuilt:
    """Read the log from the low-water marks to its end."""
    live: list[LiveRecord] = []
    cursors = {}
    for partition in range(log.partition_count):
        found, cursor = await _read_partition(log, partition, marks.get(partition, 0))
        live.extend(found)
        cursors[partition] = cursor
    live.sort(key=lambda record: (record.accepted_at, record.partition, record.offset))
    return Rebuilt(tuple(live), cursors)


async def _read_partition(
    log: EventLog, partition: int, cursor: int
) -> tuple[Iterable[LiveRecord], int]:
    live: dict[str, LiveRecord] = {}
    while events := await log.read_partition(partition, cursor, READ_MAX):
        for stored in events:
            fold_record(live, stored)
        cursor = events[-1].offset
    return live.values(), cursor


def fold_record(live: dict[str, LiveRecord], stored: StoredEvent) -> None:
    """Take one event into the records, by stream."""
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
        # Raises for an event that only a newer program knows.
        check_known(stored)
