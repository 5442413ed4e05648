"""The port of the event log: what a store of events must do, whatever it is made of.

An append is atomic, fenced, compare-and-set and idempotent. Inside a partition offsets are
gapless and their order is the order of commits, so that a reader that polls misses nothing.
A stream lives in one partition, chosen by the hash of its id.

All methods raise `Unavailable` when the store does not answer. After that error the outcome
of an append is unknown: `fastvideo.events.appender` finds it out.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from fastvideo.events.records import (
    AppendCommand,
    AppendResult,
    EventPosition,
    Fence,
    Lease,
    QuarantinedEvent,
    Snapshot,
    StoredEvent,
)


def partition_of(stream_id: str, partition_count: int) -> int:
    """The partition that a stream lives in: the same on every machine and for ever."""
    if partition_count == 1:
        return 0
    digest = hashlib.blake2b(stream_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest) % partition_count


class Appends(Protocol):
    """Whoever commits appends: a store, or an appender that gathers them."""

    async def append(self, command: AppendCommand) -> AppendResult:
        """Commit a command, or give back what its first run did.

        Raises Fenced (its lease has a newer epoch), Conflict (a stream is at another version),
        AlreadyExists (an event id is in the log) and InvalidField (a limit is passed).
        """
        ...


class PartitionReads(Protocol):
    """Read as the log grows."""

    async def read_partition(
        self, partition: int, after_offset: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        """The events of a partition after an offset, oldest first, at most `limit`."""
        ...

    async def head(self, partition: int) -> int:
        """The offset of a partition's last event; 0 when there is none."""
        ...

    async def heads(self) -> Mapping[int, int]:
        """The head of every partition."""
        ...


class EventLog(Appends, PartitionReads, Protocol):
    """Append and read."""

    @property
    def partition_count(self) -> int:
        """How many partitions the log has; fixed when the log is made."""
        ...

    async def append_many(self, commands: Sequence[AppendCommand]) -> tuple[AppendResult, ...]:
        """Commit several commands in one transaction, in their order: all or none.

        Raises as `append` does, and Conflict with the reason REPEATED when one of several
        commands is a repeat; the caller then appends them one by one.
        """
        ...

    async def read_stream(
        self, stream_id: str, after_version: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        """The events of a stream after a version, oldest first, at most `limit`."""
        ...

    async def stream_version(self, stream_id: str) -> int:
        """The version of a stream's last event; 0 when there is none."""
        ...

    async def stream_ids(self, prefix: str, after: str = "", limit: int = 1000) -> tuple[str, ...]:
        """The ids of streams that begin with a prefix and sort after another id, in order."""
        ...

    async def log_epoch(self) -> int:
        """The log's epoch, which rises when the log is restored from a backup."""
        ...

    async def position_of(self, event_id: str) -> EventPosition | None:
        """Where the event with an id stands; None when it is not in the log."""
        ...


class Leases(Protocol):
    """Names that one holder at a time has, on the store's clock."""

    async def acquire_lease(self, name: str, holder: str, ttl_s: float) -> Lease | None:
        """Take a free or expired lease; None while another holder has it.

        One that would run longer than any is given for counts as expired: the store's clock was
        set back since. The epoch rises by one at every change of holder. A holder that asks again
        while its lease runs gets it prolonged, in the same epoch. Raises InvalidField for more
        than LEASE_TTL_S_MAX.
        """
        ...

    async def renew_lease(self, lease: Lease, ttl_s: float) -> Lease:
        """Prolong a lease that nobody else took meanwhile. Raises Fenced when it is lost."""
        ...

    async def release_lease(self, lease: Lease) -> None:
        """Give a lease back at once; nothing happens when it is already lost."""
        ...

    async def read_lease(self, name: str) -> Lease | None:
        """Who held the name last; None when nobody ever did."""
        ...


class Checkpoints(Protocol):
    """How far a reader of the log has come."""

    async def load_checkpoint(self, name: str) -> Mapping[int, int]:
        """The offset by partition up to which the named reader is done; absent means 0."""
        ...

    async def save_checkpoint(
        self, name: str, partition: int, offset: int, fence: Fence | None = None
    ) -> None:
        """Move a checkpoint, forwards or back. Raises Fenced when the lease is lost."""
        ...


class Snapshots(Protocol):
    """Folded states that spare a reader the beginning of a stream; nothing is lost with them."""

    async def save_snapshot(
        self, name: str, snapshot: Snapshot, fence: Fence | None = None
    ) -> None:
        """Keep a snapshot, and of the name's older ones the newest few.

        Raises Fenced when the lease is lost.
        """
        ...

    async def load_snapshots(self, name: str) -> tuple[Snapshot, ...]:
        """The kept snapshots of a name, newest first."""
        ...


class Inbox(Protocol):
    """Which events a consumer has handled; marks are written by `append`."""

    async def inbox_seen(self, consumer: str, event_id: str) -> bool:
        """Whether the consumer's effect of an event is committed."""
        ...

    async def forget_inbox(self, consumer: str, before: datetime) -> int:
        """Drop marks older than a moment, once no redelivery can come; how many went."""
        ...


class Quarantine(Protocol):
    """Events that a consumer could not handle."""

    async def quarantine(self, event: QuarantinedEvent) -> None:
        """Put an event aside; a second time for the same consumer and event changes nothing."""
        ...

    async def list_quarantined(
        self, consumer: str | None = None, limit: int = 100
    ) -> tuple[QuarantinedEvent, ...]:
        """What was put aside, newest first."""
        ...


class EventStore(EventLog, Leases, Checkpoints, Snapshots, Inbox, Quarantine, Protocol):
    """The log and what its readers and writers coordinate by."""

    async def close(self) -> None:
        """Give back connections. Open calls may fail with Unavailable."""
        ...
