"""One partition, read forwards or backwards: the events that a filter lets through."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from fastvideo.events.reading.entries import FoundEvent, UnreadableEvent, read_offsets
from fastvideo.events.reading.filters import Matcher
from fastvideo.events.reading.index import EventIndex, IndexQuery
from fastvideo.events.store import EventLog

# Events that are read at once where the index does not help.
SCAN: Final = 500
# Events between two wanted ones that are rather read than passed by with a read of its own.
GAP_MAX: Final = 16

_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True)
class Work:
    """How many events may still be looked at in vain, by all cursors of a page together."""

    left: int


class LogCursor:
    """Where the reading of a partition stands, with what was found and is not yet handed out.

    Forwards it begins after `begin`, backwards before it. `indexed` is how far the index has
    come. Work in vain is bounded: a cursor that is empty and not done has run out of it.
    """

    def __init__(
        self,
        log: EventLog,
        index: EventIndex | None,
        matcher: Matcher,
        *,
        partition: int,
        begin: int,
        head: int,
        indexed: int,
        newest_first: bool,
        chunk: int,
        work: Work,
    ) -> None:
        self.partition = partition
        self._log = log
        self._index = index if not matcher.lets_all_through else None
        self._matcher = matcher
        self._looked_to = begin
        self._end = 1 if newest_first else head
        self._indexed = indexed if self._index is not None else 0
        self._newest_first = newest_first
        self._chunk = chunk
        self._work = work
        self._found: deque[FoundEvent] = deque()
        self._latest: datetime | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is there to hand out."""
        return not self._found

    @property
    def is_done(self) -> bool:
        """Whether nothing is there, and nothing will be."""
        return self.is_empty and self._is_at_end

    @property
    def position(self) -> int:
        """Everything up to here, or down to here, was handed out or was not wanted."""
        if not self._found:
            return self._looked_to
        return self._found[0].offset + (1 if self._newest_first else -1)

    def order(self) -> tuple[datetime, int, int]:
        """Where the next event stands among those of all partitions."""
        found = self._found[0]
        if isinstance(found, UnreadableEvent):
            # Beside its neighbour, since nothing is known of its time.
            at = self._latest or _time_of_next(self._found)
        else:
            at = found.recorded_at
        return (at, self.partition, found.offset)

    def pop(self) -> FoundEvent:
        """Hand out the next event."""
        found = self._found.popleft()
        if not isinstance(found, UnreadableEvent):
            self._latest = found.recorded_at
        return found

    async def fill(self) -> None:
        """Find more, until something is there or the partition or the work is at its end."""
        while self.is_empty and not self._is_at_end and self._work.left > 0:
            if self._next_is_indexed:
                await self._look_up()
            else:
                await self._scan()

    @property
    def _is_at_end(self) -> bool:
        if self._newest_first:
            return self._looked_to <= self._end
        return self._looked_to >= self._end

    @property
    def _next_is_indexed(self) -> bool:
        following = self._looked_to - 1 if self._newest_first else self._looked_to + 1
        return following <= self._indexed

    async def _scan(self) -> None:
        """Read on and keep what is wanted."""
        size = self._chunk if self._matcher.lets_all_through else SCAN
        if self._newest_first:
            after = max(self._indexed, self._looked_to - 1 - size)
            events = await read_offsets(
                self._log, self.partition, after, self._looked_to - 1 - after
            )
            self._looked_to = after + 1
        else:
            size = min(size, self._end - self._looked_to)
            events = await read_offsets(self._log, self.partition, self._looked_to, size)
            self._looked_to += size
        self._keep(events)

    async def _look_up(self) -> None:
        """Let the index say where what is wanted stands, and read that."""
        assert self._index is not None
        backwards = self._newest_first
        query = IndexQuery(
            partition=self.partition,
            after=0 if backwards else self._looked_to,
            before=self._looked_to if backwards else self._indexed + 1,
            groups=self._matcher.groups,
            since=self._matcher.since,
            until=self._matcher.until,
            newest_first=backwards,
            limit=self._chunk,
        )
        offsets = await self._index.find(query)
        wanted = frozenset(offsets)
        for first, last in _runs(sorted(offsets)):
            events = await read_offsets(self._log, self.partition, first - 1, last - first + 1)
            self._found.extend(event for event in events if event.offset in wanted)
        self._keep_found(offsets)
        if len(offsets) == self._chunk:
            self._looked_to = offsets[-1]
        else:
            self._looked_to = 1 if backwards else self._indexed

    def _keep_found(self, offsets: Sequence[int]) -> None:
        """Sort what was read into the order of reading, and leave out what is out of time.

        What it is about the index has looked at.
        """
        events = [event for event in self._found if self._matcher.is_in_time(event)]
        self._found.clear()
        self._work.left -= len(offsets) - len(events)
        events.sort(key=lambda event: event.offset, reverse=self._newest_first)
        self._found.extend(events)

    def _keep(self, events: Sequence[FoundEvent]) -> None:
        kept = [event for event in events if self._matcher.matches(event)]
        self._work.left -= len(events) - len(kept)
        self._found.extend(reversed(kept) if self._newest_first else kept)


def _runs(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Rising offsets as ranges, first and last, that are each worth one read."""
    runs: list[tuple[int, int]] = []
    for offset in offsets:
        if runs and offset - runs[-1][1] <= GAP_MAX:
            runs[-1] = (runs[-1][0], offset)
        else:
            runs.append((offset, offset))
    return runs


def _time_of_next(found: Iterable[FoundEvent]) -> datetime:
    """The time of the first event that has one; of none, that of the log's beginning."""
    return next(
        (event.recorded_at for event in found if not isinstance(event, UnreadableEvent)),
        _EARLIEST,
    )
