"""Is the log as it must be? Everything is read again, and each fault is told with where it stands.

It does not stop at the first fault, trusts no digest that it did not compute, and keeps nothing of
what it has read: what concerns the whole log (streams, ids, heads) is asked of the database.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

from google.protobuf.message import DecodeError

from fastvideo.api.events.v1 import events_pb2
from fastvideo.errors import CorruptLog
from fastvideo.events.catalog import UPCASTERS, is_unknown
from fastvideo.events.reading.entries import payload_fields
from fastvideo.events.records import StoredEvent, payload_digest

CHUNK: Final = 1_000
CLOCK_ALLOWANCE: Final = timedelta(seconds=1)
"""How far the database's clock may be set back between two events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFault:
    """Something in the log that is not as it must be."""

    # "gap", "payload_digest", "stream_version", "duplicate_id", "unreadable", "recorded_at",
    # "head", "archive_digest" or "append_only".
    kind: str
    partition: int = 0
    offset: int = 0
    stream_id: str = ""
    event_id: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyProgress:
    """How far the checking is, and the faults found since it last told."""

    events_checked: int
    events_total: int
    faults: tuple[LogFault, ...] = ()
    complete: bool = False
    seconds: float = 0.0


class LogInspection(Protocol):
    """The log's rows as they are, and what a database can say of all of them."""

    async def bounds(self) -> Mapping[int, tuple[int, int]]:
        """By partition, the first offset that is in the database, and the head."""
        ...

    async def read_raw(
        self, partition: int, after_offset: int, limit: int
    ) -> tuple[StoredEvent, ...]:
        """As `EventLog.read_partition`, without a look at digests."""
        ...

    def whole_log_faults(self) -> AsyncIterator[tuple[LogFault, ...]]:
        """What is wrong with streams, ids, heads and the protection of the tables, by check."""
        ...


class ArchiveChecks(Protocol):
    """Whoever keeps ranges of the log outside of the database."""

    def archive_faults(self) -> AsyncIterator[tuple[LogFault, ...]]:
        """What is wrong with the archives, some at a time; empty when one is as it must be."""
        ...


@dataclass(slots=True)
class PartitionCheck:
    """What the next event of a partition must agree with."""

    partition: int
    offset: int
    latest: datetime | None = None
    checked: int = field(default=0)

    def take(self, events: Sequence[StoredEvent]) -> list[LogFault]:
        """The faults of the events that follow."""
        faults: list[LogFault] = []
        for stored in events:
            if stored.offset != self.offset + 1:
                faults.append(
                    fault("gap", stored, f"offset {self.offset} is followed by {stored.offset}")
                )
            self.offset = stored.offset
            if self.latest is not None and stored.recorded_at < self.latest - CLOCK_ALLOWANCE:
                back_s = (self.latest - stored.recorded_at).total_seconds()
                faults.append(
                    fault("recorded_at", stored, f"recorded {back_s:.3f} s before the one before")
                )
            self.latest = stored.recorded_at
            faults += payload_faults(stored)
        self.checked += len(events)
        return faults


def payload_faults(stored: StoredEvent) -> list[LogFault]:
    """Whether the payload is what was written, and can be read today."""
    if payload_digest(stored.payload) != stored.payload_sha256:
        return [fault("payload_digest", stored, f"the {stored.type}'s payload has another SHA-256")]
    try:
        payload = UPCASTERS.bring_up(stored.type, stored.schema_version, stored.payload)
        _event_with(stored.type, payload).metadata.ParseFromString(stored.metadata)
    except CorruptLog as error:
        # What a newer program wrote is for that program to read.
        return [] if is_unknown(error) else [fault("unreadable", stored, error.message)]
    except DecodeError as error:
        return [fault("unreadable", stored, f"it is not a {stored.type}: {error}")]
    return []


def fault(kind: str, stored: StoredEvent, message: str) -> LogFault:
    """A fault of an event."""
    return LogFault(
        kind=kind,
        partition=stored.partition,
        offset=stored.offset,
        stream_id=stored.stream_id,
        event_id=stored.event_id,
        message=message,
    )


class Verifier:
    """Checks a log through its inspection, and what is archived of it by its keepers."""

    def __init__(self, inspection: LogInspection, archives: Sequence[ArchiveChecks] = ()) -> None:
        self._inspection = inspection
        self._archives = tuple(archives)

    async def verify(
        self, after: Mapping[int, int] | None = None
    ) -> AsyncGenerator[VerifyProgress, None]:
        """Check events up to where the log ends now, from the beginning or after positions.

        With positions only the events themselves are checked; without, also streams, ids, heads,
        append-only and archives. The last thing told is complete.
        """
        begun = time.monotonic()
        bounds = await self._inspection.bounds()
        begins = {p: max(first - 1, (after or {}).get(p, 0)) for p, (first, _) in bounds.items()}
        total = sum(max(0, head - begins[p]) for p, (_, head) in bounds.items())
        checked = 0

        def told(faults: Sequence[LogFault] = (), *, complete: bool = False) -> VerifyProgress:
            return VerifyProgress(
                events_checked=checked,
                events_total=total,
                faults=tuple(faults),
                complete=complete,
                seconds=time.monotonic() - begun,
            )

        yield told()
        for partition, (_, head) in sorted(bounds.items()):
            check = PartitionCheck(partition, begins[partition])
            while check.offset < head:
                limit = min(CHUNK, head - check.offset)
                events = await self._inspection.read_raw(partition, check.offset, limit)
                if not events:
                    missing = f"nothing is there between offset {check.offset} and the head {head}"
                    yield told([LogFault(kind="gap", partition=partition, message=missing)])
                    break
                # In a thread: whoever else is served here is answered meanwhile.
                faults = await asyncio.to_thread(check.take, events)
                checked += len(events)
                yield told(faults)
        if not after:
            for checks in (
                self._inspection.whole_log_faults(),
                *(archive.archive_faults() for archive in self._archives),
            ):
                async for found in checks:
                    yield told(found)
        yield told(complete=True)


def _event_with(type_: str, payload: bytes) -> events_pb2.Event:
    message = events_pb2.Event()
    getattr(message, payload_fields()[type_]).ParseFromString(payload)
    return message
