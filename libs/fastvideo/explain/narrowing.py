"""What of a shard's event matters to one request.

Most events of a busy shard are about others. Of those only the batches are wanted, without their
results; building the rest, plans above all, would take most of the time of an explanation.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from fastvideo import wire
from fastvideo.api.events.v1 import events_pb2
from fastvideo.errors import CorruptLog
from fastvideo.events.catalog import UPCASTERS, is_unknown, payload_of
from fastvideo.events.records import StoredEvent
from fastvideo.events.types import EventPayload
from fastvideo.scheduling.events import BatchExecuted, SchedulerDecided
from fastvideo.scheduling.notes import NOTE_TYPES

_ABOUT_WORKERS: Final = frozenset(
    {"LeaderElected", "WorkerAttached", "WorkerDetached", "WorkerLost", "WorkerReattached"}
)
_OF_RESULTS: Final = ("next_plan", "loop_result", "cache_lookups", "error")
_OF_DECISIONS: Final = ("dispatch_batch", "yield_batch")


@dataclass(frozen=True, slots=True)
class Sighting:
    """An event that matters, when it happened, and whose it is."""

    at: datetime
    payload: EventPayload
    # The tenant of every request in it; empty when they are several, or it names none.
    tenant_id: str


def narrow(stored: StoredEvent, request_id: str) -> Sighting | None:
    """The event as far as it matters to a request; None when it does not."""
    payload = _payload(stored, request_id)
    if payload is None:
        return None
    metadata = events_pb2.EventMetadata.FromString(stored.metadata)
    at = metadata.occurred_at.ToDatetime(tzinfo=UTC)
    return Sighting(at, payload, metadata.tenant_id)


def _payload(stored: StoredEvent, request_id: str) -> EventPayload | None:
    try:
        payload = UPCASTERS.bring_up(stored.type, stored.schema_version, stored.payload)
    except CorruptLog as error:
        # An explanation is a view: it says less, and does not stop.
        if is_unknown(error):
            return None
        raise
    if stored.type in NOTE_TYPES:
        return None
    if stored.type == BatchExecuted.__name__:
        return _batch(payload, request_id)
    if request_id.encode() in payload or stored.type in _ABOUT_WORKERS:
        return payload_of(stored)
    if stored.type == SchedulerDecided.__name__:
        return _decided(payload)
    return None


def _batch(payload: bytes, request_id: str) -> BatchExecuted:
    message = events_pb2.BatchExecuted.FromString(payload)
    for result in message.results:
        if result.loop.request_id == request_id:
            continue
        for name in _OF_RESULTS:
            result.ClearField(name)
    return wire.from_proto(BatchExecuted, message)


def _decided(payload: bytes) -> SchedulerDecided | None:
    message = events_pb2.SchedulerDecided.FromString(payload)
    kept = [one for one in message.decisions if one.WhichOneof("decision") in _OF_DECISIONS]
    if not kept:
        return None
    narrowed = events_pb2.SchedulerDecided(at=message.at, decisions=kept, epoch=message.epoch)
    return wire.from_proto(SchedulerDecided, narrowed)
