"""An event as a reader finds it: read, or named with the reason why it cannot be.

Readers of the log for people pass over nothing and stop for nothing: an event that a newer program
wrote, or whose bytes were changed, is told as such. Whoever decides by the log halts instead.
"""

from dataclasses import dataclass
from functools import cache
from operator import attrgetter

from google.protobuf.message import DecodeError

from fastvideo import wire
from fastvideo.api.events.v1 import events_pb2, log_pb2
from fastvideo.errors import CorruptLog
from fastvideo.events.catalog import NAMES, UPCASTERS, event_of, is_unknown
from fastvideo.events.past_damage import read_past
from fastvideo.events.records import DamagedEvent, StoredEvent
from fastvideo.events.store import EventLog
from fastvideo.events.types import Event
from fastvideo.events.upcasting import UNKNOWN_SCHEMA


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableEvent:
    """An event that this program cannot read: its type or its schema is newer, or it is broken."""

    event_id: str = ""
    partition: int = 0
    offset: int = 0
    stream_id: str = ""
    stream_version: int = 0
    type: str = ""
    schema_version: int = 0
    reason: str = ""


Entry = Event | UnreadableEvent
"""What a reader is given."""

FoundEvent = StoredEvent | UnreadableEvent
"""What was found in the log, not yet decoded."""


def entry_of(found: FoundEvent) -> Entry:
    """The typed event, or why there is none."""
    if isinstance(found, UnreadableEvent):
        return found
    try:
        return event_of(found)
    except CorruptLog as error:
        return unreadable(found, error)


def entry_message(found: FoundEvent) -> log_pb2.LogEntry:
    """The message of `entry_of`, made without the typed event between."""
    if isinstance(found, UnreadableEvent):
        return log_pb2.LogEntry(unreadable=wire.to_proto(found))
    try:
        return log_pb2.LogEntry(event=_event_message(found))
    except CorruptLog as error:
        return log_pb2.LogEntry(unreadable=wire.to_proto(unreadable(found, error)))


def typed_entry(message: log_pb2.LogEntry) -> Entry:
    """The entry of a message; what a newer server can read and this program cannot is told so."""
    if message.WhichOneof("entry") == "unreadable":
        return wire.from_proto(UnreadableEvent, message.unreadable)
    event = message.event
    if event.WhichOneof("payload") is not None:
        return wire.from_proto(Event, event)
    return UnreadableEvent(
        event_id=event.event_id,
        partition=event.partition,
        offset=event.offset,
        stream_id=event.stream_id,
        stream_version=event.stream_version,
        type=event.type,
        schema_version=event.schema_version,
        reason=UNKNOWN_SCHEMA,
    )


def unreadable(stored: StoredEvent, error: CorruptLog) -> UnreadableEvent:
    """What can be said of a stored event that cannot be read."""
    return UnreadableEvent(
        event_id=stored.event_id,
        partition=stored.partition,
        offset=stored.offset,
        stream_id=stored.stream_id,
        stream_version=stored.stream_version,
        type=stored.type,
        schema_version=stored.schema_version,
        reason=error.reason if is_unknown(error) else f"{error.reason}: {error.message}",
    )


async def read_offsets(
    log: EventLog, partition: int, after_offset: int, limit: int
) -> tuple[FoundEvent, ...]:
    """As `EventLog.read_partition`, but events whose bytes were changed come as unreadable."""

    async def read(after: int, count: int) -> tuple[StoredEvent, ...]:
        return await log.read_partition(partition, after, count)

    return tuple(map(_found, await read_past(read, attrgetter("offset"), after_offset, limit)))


async def read_versions(
    log: EventLog, stream_id: str, after_version: int, limit: int
) -> tuple[FoundEvent, ...]:
    """As `EventLog.read_stream`, but events whose bytes were changed come as unreadable."""

    async def read(after: int, count: int) -> tuple[StoredEvent, ...]:
        return await log.read_stream(stream_id, after, count)

    found = await read_past(read, attrgetter("stream_version"), after_version, limit)
    return tuple(map(_found, found))


def _found(one: StoredEvent | DamagedEvent) -> FoundEvent:
    return unreadable(one.stored, one) if isinstance(one, DamagedEvent) else one


@cache
def payload_fields() -> dict[str, str]:
    """By type, the name of its field in an event's message."""
    oneof = events_pb2.Event.DESCRIPTOR.oneofs_by_name["payload"]
    return {field.message_type.name: field.name for field in oneof.fields if field.message_type}


def _event_message(stored: StoredEvent) -> events_pb2.Event:
    """The event's message. Raises CorruptLog when it cannot be read."""
    payload = UPCASTERS.bring_up(stored.type, stored.schema_version, stored.payload)
    message = events_pb2.Event(
        event_id=stored.event_id,
        partition=stored.partition,
        offset=stored.offset,
        stream_id=stored.stream_id,
        stream_version=stored.stream_version,
        type=stored.type,
        name=NAMES[stored.type],
        schema_version=UPCASTERS.version_of(stored.type),
        log_epoch=stored.log_epoch,
    )
    try:
        message.metadata.ParseFromString(stored.metadata)
        field = getattr(message, payload_fields()[stored.type])
        field.SetInParent()
        field.ParseFromString(payload)
    except DecodeError as error:
        raise CorruptLog(
            f"event {stored.event_id} is not a {stored.type}: {error}", reason="UNREADABLE"
        ) from error
    message.recorded_at.FromDatetime(stored.recorded_at)
    return message
