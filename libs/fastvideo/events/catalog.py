"""The catalog of event types: wire name, public name, stored bytes.

The oneof of `fastvideo.events.v1.Event` is the list of types; this module adds the public
names of the design (`request.accepted`) and turns stored events into typed ones and back.
"""

import typing
from collections.abc import Mapping
from types import MappingProxyType

from google.protobuf.message import DecodeError

from fastvideo import wire
from fastvideo.api.events.v1 import events_pb2
from fastvideo.errors import CorruptLog, FastVideoError, InvalidField
from fastvideo.events.records import NewEvent, StoredEvent
from fastvideo.events.types import Event, EventMetadata, EventPayload
from fastvideo.events.upcasting import UNKNOWN_SCHEMA, Upcasters
from fastvideo.events.upcasts import UPCASTS

PAYLOADS: Mapping[str, type] = MappingProxyType(
    {cls.__name__: cls for cls in typing.get_args(EventPayload)}
)

UNREADABLE: typing.Final = "UNREADABLE"

UPCASTERS = Upcasters(PAYLOADS, UPCASTS)
"""From every released schema to today's; `tests/contract/histories` holds logs of them."""

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
        "ApiKeyCreated": "api_key.created",
        "ApiKeyRevoked": "api_key.revoked",
        "TenantPolicySet": "tenant.policy_set",
        "RequestDeleted": "request.deleted",
        "RequestExpired": "request.expired",
        "ArtifactDeleted": "artifact.deleted",
        "BlobRemovalDecided": "blob.removal_decided",
        "BlobRemoved": "blob.removed",
        "SessionTextPushed": "session.text_pushed",
    }
)

_PAYLOAD_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        field.message_type.name: field.name
        for field in events_pb2.Event.DESCRIPTOR.oneofs_by_name["payload"].fields
        if field.message_type is not None
    }
)

TERMINAL = frozenset({"RequestCancelled", "RequestFailed", "RequestCompleted"})


def new_event(event_id: str, payload: EventPayload, metadata: EventMetadata) -> NewEvent:
    """An event ready to be appended."""
    return NewEvent(
        event_id=event_id,
        type=type(payload).__name__,
        schema_version=UPCASTERS.version_of(type(payload).__name__),
        payload=wire.encode(payload),
        metadata=wire.encode(metadata),
    )


def payload_of(stored: StoredEvent, upcasters: Upcasters = UPCASTERS) -> EventPayload:
    """The typed payload of a stored event, whatever released schema it was written in.

    Raises CorruptLog with the reason UNKNOWN_SCHEMA when the type or its schema is newer than
    this program: whoever decides by the log must stop then, whoever shows it may pass over. With
    the reason UNREADABLE when the bytes are not what the type says.
    """
    try:
        payload = upcasters.bring_up(stored.type, stored.schema_version, stored.payload)
        return typing.cast(EventPayload, wire.decode(PAYLOADS[stored.type], payload))
    except (DecodeError, InvalidField) as error:
        raise _unreadable(stored, error) from error


def metadata_of(stored: StoredEvent) -> EventMetadata:
    """What a stored event is about; CorruptLog, UNREADABLE, for bytes that do not say it."""
    try:
        return wire.decode(EventMetadata, stored.metadata)
    except (DecodeError, InvalidField) as error:
        raise _unreadable(stored, error) from error


def check_known(stored: StoredEvent) -> None:
    """Raise as `payload_of` does when a newer program wrote the event."""
    UPCASTERS.check_known(stored.type, stored.schema_version)


def is_unknown(error: FastVideoError) -> bool:
    """Whether an event could not be read only because a newer program wrote it."""
    return error.reason == UNKNOWN_SCHEMA


def event_of(stored: StoredEvent) -> Event:
    """The typed event of a stored one, in today's schema. Raises as `payload_of` does."""
    payload = payload_of(stored)
    return Event(
        event_id=stored.event_id,
        partition=stored.partition,
        offset=stored.offset,
        stream_id=stored.stream_id,
        stream_version=stored.stream_version,
        type=stored.type,
        name=NAMES[stored.type],
        schema_version=UPCASTERS.version_of(stored.type),
        metadata=metadata_of(stored),
        recorded_at=stored.recorded_at,
        log_epoch=stored.log_epoch,
        payload=payload,
    )


def message_of(stored: StoredEvent) -> events_pb2.Event:
    """The message of a stored event, as it goes to the bus and to those who watch.

    One that a newer program wrote is an envelope without payload: what hands events on must not
    stop for what it cannot read. Its bytes are taken as they are, since what is only handed on
    need not be understood. Raises CorruptLog, UNREADABLE, for bytes that are no message at all.
    """
    try:
        message = _envelope(stored)
        try:
            payload = UPCASTERS.bring_up(stored.type, stored.schema_version, stored.payload)
        except CorruptLog as error:
            if not is_unknown(error):
                raise
            return message
        message.name = NAMES[stored.type]
        message.schema_version = UPCASTERS.version_of(stored.type)
        inner = getattr(message, _PAYLOAD_FIELDS[stored.type])
        inner.SetInParent()
        inner.MergeFromString(payload)
    except DecodeError as error:
        raise _unreadable(stored, error) from error
    return message


def encode_for_bus(stored: StoredEvent) -> bytes:
    """The bytes of a stored event as the relay publishes it."""
    return message_of(stored).SerializeToString(deterministic=True)


def typed(message: events_pb2.Event) -> Event:
    """The event of a message. Raises CorruptLog, UNKNOWN_SCHEMA, for a bare envelope."""
    if message.WhichOneof("payload") is None:
        raise CorruptLog(
            f"event {message.event_id} of type {message.type} is not known to this program",
            reason=UNKNOWN_SCHEMA,
            subject=message.type,
        )
    return wire.from_proto(Event, message)


def decode_from_bus(data: bytes) -> Event:
    """The event of a bus message. Raises as `typed` does."""
    return typed(events_pb2.Event.FromString(data))


def _unreadable(stored: StoredEvent, error: Exception) -> CorruptLog:
    return CorruptLog(
        f"event {stored.event_id} is not a {stored.type} of schema {stored.schema_version}: "
        f"{error}",
        reason=UNREADABLE,
        subject=stored.event_id,
    )


def _envelope(stored: StoredEvent) -> events_pb2.Event:
    envelope = events_pb2.Event(
        event_id=stored.event_id,
        partition=stored.partition,
        offset=stored.offset,
        stream_id=stored.stream_id,
        stream_version=stored.stream_version,
        type=stored.type,
        schema_version=stored.schema_version,
        log_epoch=stored.log_epoch,
    )
    envelope.metadata.ParseFromString(stored.metadata)
    envelope.recorded_at.FromDatetime(stored.recorded_at)
    return envelope
