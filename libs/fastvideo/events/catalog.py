"""The catalog of event types: wire name, public name, stored bytes.

The oneof of `fastvideo.events.v1.Event` is the list of types; this module adds the public
names of the design (`request.accepted`) and turns stored events into typed ones and back.
"""

import typing
from collections.abc import Mapping
from types import MappingProxyType

from fastvideo import wire
from fastvideo.api.events.v1 import events_pb2
from fastvideo.errors import CorruptLog
from fastvideo.events.records import NewEvent, StoredEvent
from fastvideo.events.types import Event, EventMetadata, EventPayload

SCHEMA_VERSION = 1

PAYLOADS: Mapping[str, type] = MappingProxyType(
    {cls.__name__: cls for cls in typing.get_args(EventPayload)}
)

NAMES: Mapping[str, str] = MappingProxyType(
    {
        "RequestAccepted": "request.accepted",
        "RequestQueued": "request.queued",
        "RequestStarted": "request.started",
        "RequestProgressed": "request.progress",
        "RequestCancelRequested": "request.cancel_requested",
        "RequestCancelled": "request.cancelled",
        "RequestFailed": "request.failed",
        "RequestCompleted": "request.completed",
        "RequestLogged": "request.log",
        "ArtifactCreated": "artifact.created",
        "ArtifactUpdated": "artifact.updated",
        "ArtifactCompleted": "artifact.completed",
        "MediaInitialized": "media.init",
        "MediaChunkAdded": "media.chunk",
        "MediaCompleted": "media.complete",
        "SessionCreated": "session.created",
        "SessionUpdated": "session.updated",
        "SessionClosed": "session.closed",
        "WorkerAttached": "worker.attached",
        "WorkerLost": "worker.lost",
        "LoopPrepared": "trace.loop",
        "LoopFailed": "trace.loop_failed",
        "BatchExecuted": "trace.step",
        "SchedulerDecided": "trace.scheduler",
        "LeaderElected": "scheduler.elected",
        "WorkerDraining": "worker.draining",
        "WorkerReattached": "worker.reattached",
        "RequestSnapshotted": "trace.snapshot",
        "WorkerDetached": "worker.detached",
        "CacheAccessed": "trace.cache",
        "TransferRecorded": "trace.transfer",
        "WeightsChanged": "weights.changed",
        "ParityChecked": "parity.checked",
        "ComponentsTraced": "trace.component",
        "BehaviorRecorded": "behavior.recorded",
        "NonFiniteFound": "trace.nan",
        "MemoryReported": "trace.memory",
        "GraphUsed": "trace.graph",
        "TenantErased": "tenant.erased",
    }
)

TERMINAL = frozenset({"RequestCancelled", "RequestFailed", "RequestCompleted"})


def new_event(event_id: str, payload: EventPayload, metadata: EventMetadata) -> NewEvent:
    """An event ready to be appended."""
    return NewEvent(
        event_id=event_id,
        type=type(payload).__name__,
        schema_version=SCHEMA_VERSION,
        payload=wire.encode(payload),
        metadata=wire.encode(metadata),
    )


def payload_of(stored: StoredEvent) -> EventPayload:
    """The typed payload of a stored event.

    Raises CorruptLog when the type is unknown or the schema is newer than this program.
    """
    cls = PAYLOADS.get(stored.type)
    if cls is None or stored.schema_version > SCHEMA_VERSION:
        raise CorruptLog(
            f"event {stored.event_id} has type {stored.type} of schema "
            f"{stored.schema_version}, which this program does not know",
            reason="UNKNOWN_SCHEMA",
            subject=stored.type,
        )
    return typing.cast(EventPayload, wire.decode(cls, stored.payload))


def event_of(stored: StoredEvent) -> Event:
    """The typed event of a stored one."""
    return Event(
        event_id=stored.event_id,
        partition=stored.partition,
        offset=stored.offset,
        stream_id=stored.stream_id,
        stream_version=stored.stream_version,
        type=stored.type,
        name=NAMES.get(stored.type, stored.type),
        schema_version=stored.schema_version,
        metadata=wire.decode(EventMetadata, stored.metadata),
        recorded_at=stored.recorded_at,
        log_epoch=stored.log_epoch,
        payload=payload_of(stored),
    )


def encode_for_bus(stored: StoredEvent) -> bytes:
    """The bytes of a stored event as the relay publishes it."""
    return wire.encode(event_of(stored))


def decode_from_bus(data: bytes) -> Event:
    """The event of a bus message."""
    return wire.from_proto(Event, events_pb2.Event.FromString(data))
