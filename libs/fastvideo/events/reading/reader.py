"""Reading the log: pages of what a filter lets through, and what comes, from any position on.

Partitions are read side by side and told in the order of recording, so that what a request's
stream and its scheduler's say stands in one story. What the event index knows is found by it; what
it has not taken in yet is read.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fastvideo.errors import InvalidField
from fastvideo.events.reading.cursor import LogCursor, Work
from fastvideo.events.reading.entries import FoundEvent, read_versions
from fastvideo.events.reading.filters import EventFilter, Matcher
from fastvideo.events.reading.index import EventIndex
from fastvideo.events.store import EventLog

PAGE_SIZE_DEFAULT: Final = 200
PAGE_SIZE_MAX: Final = 1_000
# Events that a page may read one by one, before it is given as far as it came.
SCANNED_MAX: Final = 20_000
VERSION_MAX: Final = 2**63 - 1
ALL: Final = EventFilter()


@dataclass(frozen=True, slots=True)
class StreamPage:
    """Some events of a stream, and the version that the stream has."""

    entries: tuple[FoundEvent, ...]
    stream_version: int


@dataclass(frozen=True, slots=True)
class LogPage:
    """Some of what a filter lets through."""

    entries: tuple[FoundEvent, ...]
    # By partition: the next page begins after it or, newest first, before it.
    next_after: Mapping[int, int]
    # Nothing is left of what was there when the page was read.
    complete: bool


class LogReader:
    """Reads any log; keeps nothing. Without an index it reads whatever a filter leaves out, too."""

    def __init__(self, log: EventLog, index: EventIndex | None = None) -> None:
        self._log = log
        self._index = index

    @property
    def log(self) -> EventLog:
        """The log that is read."""
        return self._log

    async def read_stream(
        self, stream_id: str, after_version: int = 0, page_size: int = 0
    ) -> StreamPage:
        """The events of a stream after a version, oldest first; of no stream, none.

        Raises InvalidField for a size that is not allowed and a version that no stream can have.
        """
        size = _checked_size(page_size)
        if not 0 <= after_version <= VERSION_MAX:
            raise InvalidField("after_version", after_version, f"0 to {VERSION_MAX}")
        version = await self._log.stream_version(stream_id)
        entries = await read_versions(self._log, stream_id, after_version, size)
        return StreamPage(entries, version)

    async def read_log(
        self,
        wanted: EventFilter = ALL,
        *,
        after: Mapping[int, int] | None = None,
        page_size: int = 0,
        newest_first: bool = False,
    ) -> LogPage:
        """A page, from the beginning or from after a position in each partition.

        Newest first it goes from the end, or from before a position, to the beginning. A page may
        have fewer events than asked for, or none, and more may follow: `complete` says when all
        is told. Raises InvalidField for a filter, position or size that cannot be.
        """
        size = _checked_size(page_size)
        matcher = Matcher(wanted)
        heads = await self._log.heads()
        begins = checked_positions(after or {}, heads, 1 if newest_first else 0)
        known = await self._index.positions() if self._index is not None else {}
        work = Work(SCANNED_MAX)
        cursors = [
            LogCursor(
                self._log,
                self._index,
                matcher,
                partition=partition,
                begin=begins.get(partition, head + 1 if newest_first else 0),
                head=head,
                indexed=min(known.get(partition, 0), head),
                newest_first=newest_first,
                chunk=max(size // len(heads), 16),
                work=work,
            )
            for partition, head in sorted(heads.items())
        ]
        entries = await _merge(cursors, size, newest_first)
        return LogPage(
            tuple(entries),
            {cursor.partition: cursor.position for cursor in cursors},
            all(cursor.is_done for cursor in cursors),
        )


def checked_positions(
    after: Mapping[int, int], heads: Mapping[int, int], beyond: int = 0
) -> Mapping[int, int]:
    """The positions. Raises InvalidField for a partition or offset that the log does not have.

    An offset may be `beyond` the head by so much.
    """
    for partition, offset in after.items():
        if partition not in heads:
            raise InvalidField("after", partition, f"partitions 0 to {len(heads) - 1}")
        if not 0 <= offset <= heads[partition] + beyond:
            raise InvalidField(f"after[{partition}]", offset, f"0 to {heads[partition] + beyond}")
    return after


async def _merge(cursors: list[LogCursor], size: int, newest_first: bool) -> list[FoundEvent]:
    """The first events of all cursors, in the order of recording."""
    merged: list[FoundEvent] = []
    await asyncio.gather(*(cursor.fill() for cursor in cursors))
    while len(merged) < size:
        for cursor in cursors:
            if cursor.is_empty and not cursor.is_done:
                await cursor.fill()
        # One that ran out of work may have an event that comes before all others.
        if any(cursor.is_empty and not cursor.is_done for cursor in cursors):
            break
        ready = [cursor for cursor in cursors if not cursor.is_empty]
        if not ready:
            break
        pick = max if newest_first else min
        merged.append(pick(ready, key=LogCursor.order).pop())
    return merged


def _checked_size(page_size: int) -> int:
    if not 0 <= page_size <= PAGE_SIZE_MAX:
        allowed = f"1 to {PAGE_SIZE_MAX}; 0 takes {PAGE_SIZE_DEFAULT}"
        raise InvalidField("page_size", page_size, allowed)
    return page_size or PAGE_SIZE_DEFAULT
