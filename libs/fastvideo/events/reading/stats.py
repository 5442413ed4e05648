"""How much is in the log, by type, and how far its readers are behind."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from fastvideo.events.catalog import NAMES
from fastvideo.events.projections.projector import Projection
from fastvideo.events.reading.entries import UnreadableEvent, read_offsets
from fastvideo.events.reading.index import EventIndex, TypeCount
from fastvideo.events.store import EventLog

# What the index has not taken in yet is counted one by one, at most so many of a partition.
COUNTED_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSizes:
    """What only the database knows."""

    streams: int
    bytes: int
    quarantined: int
    archived: int
    # How far named readers of the log came, by partition.
    checkpoints: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReaders:
    """How far readers of the log came, and what they put aside."""

    # Reader to its positions, by partition.
    checkpoints: Mapping[str, Mapping[int, int]]
    # Consumer to how many events it could not handle.
    quarantined: Mapping[str, int]


class MeasuresLog(Protocol):
    """Whoever can say how large the log is."""

    async def sizes(self) -> LogSizes:
        """The sizes now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStats:
    """How much is in the log."""

    heads: Mapping[int, int]
    log_epoch: int
    events: int
    streams: int
    # On disk, with indexes.
    bytes: int
    first_recorded_at: datetime | None
    last_recorded_at: datetime | None
    # The most frequent first.
    types: tuple[TypeCount, ...]
    # Projection or reader to how many events it is behind.
    projection_lag: Mapping[str, int]
    # Events put aside by consumers that could not handle them.
    quarantined: int
    archived: int


async def read_stats(
    log: EventLog,
    index: EventIndex,
    measure: MeasuresLog,
    projections: Mapping[str, Projection],
) -> LogStats:
    """The figures now; those by type are of what the index and a look behind it have counted."""
    heads = await log.heads()
    sizes = await measure.sizes()
    behind = {name: await projection.positions() for name, projection in projections.items()}
    first, last = await _times(log, heads)
    return LogStats(
        heads=heads,
        log_epoch=await log.log_epoch(),
        events=sum(heads.values()),
        streams=sizes.streams,
        bytes=sizes.bytes,
        first_recorded_at=first,
        last_recorded_at=last,
        types=await _types(log, index, heads),
        projection_lag={
            name: _lag(positions, heads)
            for name, positions in sorted({**sizes.checkpoints, **behind}.items())
        },
        quarantined=sizes.quarantined,
        archived=sizes.archived,
    )


def _lag(positions: Mapping[int, int], heads: Mapping[int, int]) -> int:
    return sum(max(0, head - positions.get(partition, 0)) for partition, head in heads.items())


async def _types(
    log: EventLog, index: EventIndex, heads: Mapping[int, int]
) -> tuple[TypeCount, ...]:
    positions = await index.positions()
    counts = defaultdict(lambda: (0, 0), await index.type_counts())
    for partition, head in heads.items():
        position = positions.get(partition, 0)
        limit = min(COUNTED_MAX, head - position)
        if limit <= 0:
            continue
        for found in await read_offsets(log, partition, position, limit):
            size = 0 if isinstance(found, UnreadableEvent) else len(found.payload)
            events, bytes_before = counts[found.type]
            counts[found.type] = (events + 1, bytes_before + size)
    found_types = [
        TypeCount(type_, NAMES.get(type_, ""), events, size)
        for type_, (events, size) in counts.items()
    ]
    return tuple(sorted(found_types, key=lambda count: (-count.events, count.type)))


async def _times(
    log: EventLog, heads: Mapping[int, int]
) -> tuple[datetime | None, datetime | None]:
    """When the first and the last event were recorded; None of an empty log."""
    firsts: list[datetime] = []
    lasts: list[datetime] = []
    for partition, head in heads.items():
        if not head:
            continue
        for times, after in ((firsts, 0), (lasts, head - 1)):
            (found,) = await read_offsets(log, partition, after, 1)
            if not isinstance(found, UnreadableEvent):
                times.append(found.recorded_at)
    return min(firsts, default=None), max(lasts, default=None)
