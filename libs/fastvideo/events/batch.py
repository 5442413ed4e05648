"""Several append commands laid out as the columns of one transaction.

Both stores work from the same layout: distinct fences, idempotency keys, inbox marks,
partitions in ascending order, streams with the version each must have, and the events.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from fastvideo.errors import Conflict, InvalidField
from fastvideo.events.records import (
    AppendCommand,
    AppendResult,
    EventPosition,
    InboxMark,
    LogLimits,
    NewEvent,
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


@dataclass(frozen=True, slots=True)
class Run:
    """Events of one command that follow one another in one stream.

    The first stands at `place` among all events of the batch, is the `stream_place`-th of the
    batch in its stream and the `partition_place`-th in its partition, all counted from 0. Indexes
    count from 1, as SQL arrays do.
    """

    stream_index: int
    partition_index: int
    place: int
    stream_place: int
    partition_place: int
    count: int
    fence_epoch: int


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
        self.runs: list[Run] = []
        self.events: list[NewEvent] = []
        self._add_runs()
        self._check(limits)

    def results(
        self, offset_bases: Sequence[int], version_bases: Sequence[int]
    ) -> tuple[AppendResult, ...]:
        """The result of each command.

        `offset_bases[i]` is the first offset in `partitions[i]`; `version_bases[i]` the version
        of the i-th stream before the batch.
        """
        stream_ids = list(self.streams)
        runs = iter(self.runs)
        results = []
        for command in self.commands:
            positions: list[EventPosition] = []
            for run in islice(runs, len(command.streams)):
                partition = self.partitions[run.partition_index - 1]
                offset = offset_bases[run.partition_index - 1] + run.partition_place
                stream_id = stream_ids[run.stream_index - 1]
                version = version_bases[run.stream_index - 1] + run.stream_place + 1
                positions.extend(
                    EventPosition(partition, offset + i, stream_id, version + i)
                    for i in range(run.count)
                )
            results.append(AppendResult(tuple(positions), False, command.result))
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

    def _add_runs(self) -> None:
        stream_index = {stream_id: i for i, stream_id in enumerate(self.streams, start=1)}
        partition_index = {partition: i for i, partition in enumerate(self.partitions, start=1)}
        written = dict.fromkeys(self.streams, 0)
        for command in self.commands:
            epoch = command.fence.epoch if command.fence else 0
            for append in command.streams:
                stream_id, count = append.stream_id, len(append.events)
                partition = partition_index[self.streams[stream_id].partition]
                run = Run(
                    stream_index=stream_index[stream_id],
                    partition_index=partition,
                    place=len(self.events),
                    stream_place=written[stream_id],
                    partition_place=self.partition_counts[partition - 1],
                    count=count,
                    fence_epoch=epoch,
                )
                self.runs.append(run)
                self.events.extend(append.events)
                written[stream_id] += count
                self.partition_counts[partition - 1] += count

    def _check(self, limits: LogLimits) -> None:
        count = len(self.events)
        if count > limits.events_per_append_max:
            raise InvalidField("events", count, f"at most {limits.events_per_append_max} an append")
        ids = {event.event_id for event in self.events}
        if len(ids) != count or "" in ids:
            raise InvalidField("event_id", sorted(ids), "present and unique")
        longest = max((len(event.payload) for event in self.events), default=0)
        if longest > limits.payload_bytes_max:
            raise InvalidField(
                "payload", longest, f"at most {limits.payload_bytes_max} bytes; else an artifact"
            )
        total = sum(len(event.payload) + len(event.metadata) for event in self.events)
        if total > limits.append_bytes_max:
            raise InvalidField("append", total, f"at most {limits.append_bytes_max} bytes")


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
