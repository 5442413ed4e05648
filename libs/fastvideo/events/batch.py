"""Several append commands laid out as the columns of one transaction.

Both stores work from the same layout: distinct fences, idempotency keys, inbox marks,
partitions in ascending order, streams with the version each must have, and the events.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fastvideo.errors import Conflict, InvalidField
from fastvideo.events.records import (
    AppendCommand,
    AppendResult,
    EventPosition,
    InboxMark,
    LogLimits,
    NewEvent,
    payload_digest,
)
from fastvideo.events.store import partition_of

REPEATED = "REPEATED"
"""Reason of the Conflict that says: one of several commands was appended before."""


@dataclass(slots=True)
class StreamColumn:
    """One stream of a batch."""

    stream_id: str
    partition: int
    # The version before the batch, when a command demands one.
    expected_version: int | None
    count: int = 0


@dataclass(slots=True)
class EventColumns:
    """The events of a batch, one list a column; indexes count from 1 as SQL arrays do."""

    stream_ids: list[str] = field(default_factory=list)
    stream_indexes: list[int] = field(default_factory=list)
    stream_places: list[int] = field(default_factory=list)
    partition_indexes: list[int] = field(default_factory=list)
    partition_places: list[int] = field(default_factory=list)
    event_ids: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    schema_versions: list[int] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    metadata: list[bytes] = field(default_factory=list)
    fence_epochs: list[int] = field(default_factory=list)


class Batch:
    """The layout of some commands. Raises InvalidField past a limit.

    Raises Conflict when the commands contradict one another, such as two that expect one
    stream at the same version.
    """

    def __init__(
        self, commands: Sequence[AppendCommand], partition_count: int, limits: LogLimits
    ) -> None:
        self.commands = tuple(commands)
        self.fences = sorted({(c.fence.lease, c.fence.epoch) for c in commands if c.fence})
        self.keys = _distinct_keys(commands)
        self.inbox = _distinct_marks(commands)
        self.streams: dict[str, StreamColumn] = {}
        for command in commands:
            self._add_streams(command, partition_count)
        self.partitions = sorted({stream.partition for stream in self.streams.values()})
        self.partition_counts = [0] * len(self.partitions)
        self.events = EventColumns()
        self._add_events()
        self._check(limits)

    def results(
        self, offset_bases: Sequence[int], version_bases: Sequence[int]
    ) -> tuple[AppendResult, ...]:
        """The result of each command.

        `offset_bases[i]` is the first offset in `partitions[i]`; `version_bases[i]` the version
        of the i-th stream before the batch.
        """
        columns = self.events
        positions = [
            EventPosition(
                self.partitions[partition - 1],
                offset_bases[partition - 1] + place,
                stream_id,
                version_bases[stream - 1] + version,
            )
            for stream_id, stream, version, partition, place in zip(
                columns.stream_ids,
                columns.stream_indexes,
                columns.stream_places,
                columns.partition_indexes,
                columns.partition_places,
                strict=True,
            )
        ]
        results = []
        start = 0
        for command in self.commands:
            stop = start + sum(len(stream.events) for stream in command.streams)
            results.append(AppendResult(tuple(positions[start:stop]), False, command.result))
            start = stop
        return tuple(results)

    def _add_streams(self, command: AppendCommand, partition_count: int) -> None:
        for append in command.streams:
            stream_id, expected = append.stream_id, append.expected_version
            if not stream_id or not append.events:
                raise InvalidField("stream_append", append, "a stream id and at least one event")
            stream = self.streams.get(stream_id)
            if stream is None:
                partition = partition_of(stream_id, partition_count)
                stream = self.streams[stream_id] = StreamColumn(stream_id, partition, expected)
            elif expected is not None:
                before = expected - stream.count
                if before < 0 or stream.expected_version not in (None, before):
                    raise Conflict(
                        f"two appends in one batch expect stream {stream_id} at versions that "
                        "contradict each other",
                        subject=stream_id,
                    )
                stream.expected_version = before
            stream.count += len(append.events)

    def _add_events(self) -> None:
        stream_index = {stream_id: i for i, stream_id in enumerate(self.streams, start=1)}
        partition_index = {partition: i for i, partition in enumerate(self.partitions, start=1)}
        written = dict.fromkeys(self.streams, 0)
        columns = self.events
        for command in self.commands:
            epoch = command.fence.epoch if command.fence else 0
            for append in command.streams:
                stream_id = append.stream_id
                partition = partition_index[self.streams[stream_id].partition]
                for event in append.events:
                    written[stream_id] += 1
                    columns.stream_ids.append(stream_id)
                    columns.stream_indexes.append(stream_index[stream_id])
                    columns.stream_places.append(written[stream_id])
                    columns.partition_indexes.append(partition)
                    columns.partition_places.append(self.partition_counts[partition - 1])
                    columns.fence_epochs.append(epoch)
                    self.partition_counts[partition - 1] += 1
                    self._add_event(event)

    def _add_event(self, event: NewEvent) -> None:
        columns = self.events
        columns.event_ids.append(event.event_id)
        columns.types.append(event.type)
        columns.schema_versions.append(event.schema_version)
        columns.payloads.append(event.payload)
        columns.digests.append(payload_digest(event.payload))
        columns.metadata.append(event.metadata)

    def _check(self, limits: LogLimits) -> None:
        columns = self.events
        count = len(columns.event_ids)
        if count > limits.events_per_append_max:
            raise InvalidField("events", count, f"at most {limits.events_per_append_max} an append")
        if len(set(columns.event_ids)) != count or not all(columns.event_ids):
            raise InvalidField("event_id", columns.event_ids, "present and unique")
        sizes = [len(payload) for payload in columns.payloads]
        if sizes and max(sizes) > limits.payload_bytes_max:
            raise InvalidField(
                "payload", max(sizes), f"at most {limits.payload_bytes_max} bytes; else an artifact"
            )
        if sum(sizes) + sum(map(len, columns.metadata)) > limits.append_bytes_max:
            raise InvalidField("append", sum(sizes), f"at most {limits.append_bytes_max} bytes")


def _distinct_keys(commands: Sequence[AppendCommand]) -> list[tuple[str, bytes]]:
    """Keys with their results, sorted so that all writers lock them in one order."""
    keys = sorted((c.idempotency_key, c.result) for c in commands if c.idempotency_key is not None)
    if len({key for key, _ in keys}) != len(keys):
        raise Conflict("one idempotency key twice in a batch", reason=REPEATED)
    return keys


def _distinct_marks(commands: Sequence[AppendCommand]) -> list[InboxMark]:
    """Inbox marks, sorted so that all writers lock them in one order."""
    marks = sorted(
        (c.inbox for c in commands if c.inbox), key=lambda mark: (mark.consumer, mark.event_id)
    )
    if len(set(marks)) != len(marks):
        raise Conflict("one inbox mark twice in a batch", reason=REPEATED)
    return marks
