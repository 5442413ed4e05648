"""What goes into the event log and comes out of it, as bytes that the log does not read."""

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from fastvideo.errors import CorruptLog, InvalidField


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event that is not yet in the log. Its id is unique in the log for ever."""

    event_id: str
    # Past-tense name of the payload, such as "RequestAccepted".
    type: str
    schema_version: int
    payload: bytes
    metadata: bytes = b""


@dataclass(frozen=True, slots=True)
class StreamAppend:
    """Events for the end of one stream.

    `expected_version` is the version that the stream must have: 0 when it must not exist yet,
    None when any will do.
    """

    stream_id: str
    events: tuple[NewEvent, ...]
    expected_version: int | None = None


@dataclass(frozen=True, slots=True)
class Fence:
    """The right to write that a lease gives: refused once the lease has a newer epoch."""

    lease: str
    epoch: int


@dataclass(frozen=True, slots=True)
class InboxMark:
    """The note that a consumer has seen an event, kept in the transaction of its effect."""

    consumer: str
    event_id: str


@dataclass(frozen=True, slots=True)
class AppendCommand:
    """One atomic append: all of it is committed or none.

    `result` is kept under the idempotency key and given back to whoever repeats the command.
    """

    streams: tuple[StreamAppend, ...] = ()
    fence: Fence | None = None
    idempotency_key: str | None = None
    result: bytes = b""
    inbox: InboxMark | None = None


class EventPosition(NamedTuple):
    """Where an event stands: in its partition and in its stream, both gapless from 1."""

    partition: int
    offset: int
    stream_id: str
    stream_version: int


@dataclass(frozen=True, slots=True)
class AppendResult:
    """What an append did.

    `positions` are those of the command's events in order, and empty when the command was a
    repeat (its idempotency key or its inbox mark was there) and appended nothing.
    """

    positions: tuple[EventPosition, ...]
    repeated: bool
    result: bytes


class StoredEvent(NamedTuple):
    """An event of the log.

    A tuple, since a rebuild makes millions of them: one is made in a quarter of the time that a
    frozen dataclass of as many fields takes.
    """

    partition: int
    # Gapless within the partition, from 1, in the order of commits.
    offset: int
    stream_id: str
    # Gapless within the stream, from 1.
    stream_version: int
    event_id: str
    type: str
    schema_version: int
    payload: bytes
    payload_sha256: bytes
    metadata: bytes
    # Epoch of the lease under which it was written; 0 when no fence was given.
    fence_epoch: int
    # The database's clock, UTC; it rises with the offset, also when that clock is set back.
    recorded_at: datetime
    # Rises when the log is restored from a backup, so that old offsets are not trusted.
    log_epoch: int

    @property
    def position(self) -> EventPosition:
        """Where the event stands."""
        return EventPosition(self.partition, self.offset, self.stream_id, self.stream_version)

    @property
    def is_whole(self) -> bool:
        """Whether the payload is the one that was written."""
        return payload_digest(self.payload) == self.payload_sha256


LEASE_TTL_S_MAX: Final = 120.0
"""How long a lease may be given for: one that ends later is of before the clock was set back."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A name held by one holder until a moment on the store's clock.

    The epoch rises by one at every change of holder. A holder names one incarnation of a
    process, so that a restarted process never shares an epoch with its dead self.
    """

    name: str
    holder: str
    epoch: int
    expires_at: datetime

    def runs_at(self, now: datetime) -> bool:
        """Whether it keeps others out at a moment of the store's clock."""
        return now < self.expires_at <= now + timedelta(seconds=LEASE_TTL_S_MAX)

    @property
    def fence(self) -> Fence:
        """What the holder's appends carry."""
        return Fence(self.name, self.epoch)


@dataclass(frozen=True, slots=True)
class QuarantinedEvent:
    """An event that a consumer could not handle and passed over."""

    consumer: str
    event_id: str
    partition: int
    offset: int
    type: str
    attempts: int
    error: str
    quarantined_at: datetime


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A folded state, as bytes that the store does not read."""

    # That of the last event of the folded stream.
    version: int
    body: bytes


SNAPSHOTS_KEPT = 3
"""How many snapshots of a name a store keeps: the newest."""


@dataclass(frozen=True, slots=True)
class LogLimits:
    """The bounds of one append and one read."""

    events_per_append_max: int = 10_000
    payload_bytes_max: int = 1 << 20
    append_bytes_max: int = 64 << 20
    events_per_read_max: int = 10_000


def check_ttl(ttl_s: float) -> None:
    """Raise InvalidField for a lease that would be too long."""
    if ttl_s > LEASE_TTL_S_MAX:
        raise InvalidField("ttl_s", ttl_s, f"at most {LEASE_TTL_S_MAX:g}")


def payload_digest(payload: bytes) -> bytes:
    """SHA-256 of a payload, which the log keeps beside it."""
    return hashlib.sha256(payload).digest()


class DamagedEvent(CorruptLog):
    """A payload is not the one that was written: it does not have its digest.

    `stored` is the event as it was found.
    """

    default_reason = "WRONG_DIGEST"

    def __init__(self, stored: StoredEvent) -> None:
        super().__init__(
            f"the payload of event {stored.event_id} does not have its digest",
            subject=stored.event_id,
            attributes={
                "partition": str(stored.partition),
                "offset": str(stored.offset),
                "stream_id": stored.stream_id,
                "type": stored.type,
            },
        )
        self.stored = stored
