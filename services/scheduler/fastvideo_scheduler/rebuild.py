"""What a new leader finds in the log: the requests that have not ended.

A checkpoint keeps, for each partition, the low-water mark: below it every request has ended, so
a leader reads from there and not from the beginning.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fastvideo.events.store import EventLog
from fastvideo.replay.live_records import LiveRecord, fold_record
from fastvideo.replay.saved_term import Acceptance

READ_MAX = 1_000


class LowWater:
    """Up to where, in each partition, every request has ended, by what the log itself says."""

    def __init__(self, cursors: Mapping[int, int], live: Iterable[Acceptance] = ()) -> None:
        self._cursors = dict(cursors)
        # Offsets rise within a partition, so each dict is in order.
        self._live: dict[int, dict[str, int]] = {partition: {} for partition in cursors}
        for known in sorted(live, key=lambda known: known.offset):
            self._live[known.partition][known.request_id] = known.offset

    def accepted(self, request_id: str, partition: int, offset: int) -> None:
        """A request begins there."""
        self._live[partition][request_id] = offset

    def ended(self, request_id: str, partition: int) -> None:
        """Its terminal event is in the log."""
        self._live[partition].pop(request_id, None)

    def read(self, partition: int, offset: int) -> None:
        """All up to the offset was read."""
        self._cursors[partition] = max(offset, self._cursors[partition])

    @property
    def cursors(self) -> Mapping[int, int]:
        """By partition, the offset up to which all was read."""
        return dict(self._cursors)

    @property
    def marks(self) -> Mapping[int, int]:
        """The low-water mark of each partition."""
        return {
            partition: next(iter(self._live[partition].values()), cursor + 1) - 1
            for partition, cursor in self._cursors.items()
        }


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was found, and up to where it was read."""

    # By the time of acceptance.
    live: tuple[LiveRecord, ...]
    cursors: Mapping[int, int]


async def rebuild(log: EventLog, marks: Mapping[int, int]) -> Rebuilt:
    """Read the log from the low-water marks to its end."""
    live: list[LiveRecord] = []
    cursors = {}
    for partition in range(log.partition_count):
        found, cursor = await _read_partition(log, partition, marks.get(partition, 0))
        live.extend(found)
        cursors[partition] = cursor
    live.sort(key=lambda record: (record.accepted_at, record.partition, record.offset))
    return Rebuilt(tuple(live), cursors)


async def _read_partition(
    log: EventLog, partition: int, cursor: int
) -> tuple[Iterable[LiveRecord], int]:
    live: dict[str, LiveRecord] = {}
    while events := await log.read_partition(partition, cursor, READ_MAX):
        for stored in events:
            fold_record(live, stored)
        cursor = events[-1].offset
    return live.values(), cursor
