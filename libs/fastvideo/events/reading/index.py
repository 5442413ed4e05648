"""Where in the log the events about a thing are: a projection, so that nobody reads it all.

Offsets of a partition are taken together in blocks of 256. For each thing that events of a block
are about (a request, a worker, a type of event) there is one row with a bit for each offset; a few
dozen rows a block instead of several for every event. A question about several things at once is
answered by the bits of one and the other.

The index may lag: a reader asks it as far as it has come, and reads the rest.
"""

import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Final, Protocol

from fastvideo.events.projections.projector import Projection, fresh_events
from fastvideo.events.reading.terms import envelope_terms, metadata_terms, named_by
from fastvideo.events.records import StoredEvent
from fastvideo.events.sealing.texts import size_without_texts

BLOCK: Final = 256
"""Offsets of a block; a change needs a new layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexQuery:
    """Which offsets of a partition to find: after < offset < before."""

    partition: int
    after: int
    before: int
    # An event must be about one term of each group.
    groups: tuple[frozenset[str], ...] = ()
    # Blocks with no event from `since` on and before `until` are left out; which events of the
    # others are within is for the reader to say.
    since: datetime | None = None
    until: datetime | None = None
    newest_first: bool = False
    limit: int = 200


@dataclass(frozen=True, slots=True)
class TypeCount:
    """How many events of a type there are."""

    type: str
    name: str
    events: int
    payload_bytes: int


class EventIndex(Projection, Protocol):
    """Finds offsets by what events are about."""

    async def find(self, query: IndexQuery) -> tuple[int, ...]:
        """The first offsets that a query asks for, in its order, among those taken in."""
        ...

    async def type_counts(self) -> Mapping[str, tuple[int, int]]:
        """By type, how many events were taken in and the bytes of their payloads."""
        ...

    async def close(self) -> None:
        """Give back what the index holds."""
        ...


def block_of(offset: int) -> int:
    """The block that an offset is in."""
    return (offset - 1) // BLOCK


def offsets_of(block: int, members: int) -> Iterator[int]:
    """The offsets of a block's set bits, rising; the first offset is the highest bit."""
    first = block * BLOCK + 1
    while members:
        place = BLOCK - members.bit_length()
        yield first + place
        members ^= 1 << (BLOCK - 1 - place)


@dataclass(slots=True)
class BlockTimes:
    """Between which moments the events of a block were recorded, whatever clocks did."""

    earliest: datetime
    latest: datetime


@dataclass(frozen=True, slots=True)
class IndexChanges:
    """What some events of one partition add to the index."""

    # By term and block, the bits of the offsets.
    members: Mapping[tuple[str, int], int]
    times: Mapping[int, BlockTimes]
    # By type, events and bytes of payloads without texts of tenants, which may be erased.
    types: Mapping[str, tuple[int, int]]


def index_changes(events: Iterable[StoredEvent]) -> IndexChanges:
    """What events in the order of their offsets add.

    Never raises: of what cannot be read, the envelope is indexed.
    """
    members: dict[tuple[str, int], int] = {}
    times: dict[int, BlockTimes] = {}
    types: dict[str, tuple[int, int]] = {}
    for block, inside in groupby(events, key=lambda stored: block_of(stored.offset)):
        within = list(inside)
        members.update(((name, block), bits) for name, bits in _bits_by_term(within).items())
        moments = [stored.recorded_at for stored in within]
        times[block] = BlockTimes(min(moments), max(moments))
        for stored in within:
            count, size = types.get(stored.type, (0, 0))
            size += size_without_texts(stored.type, stored.payload)
            types[stored.type] = (count + 1, size)
    return IndexChanges(members, times, types)


def _bits_by_term(block: Iterable[StoredEvent]) -> Mapping[str, int]:
    """By term, the bits of a block's offsets; what many events have in common is read once."""
    found: defaultdict[str, int] = defaultdict(int)
    envelopes: defaultdict[tuple[str, str], int] = defaultdict(int)
    named: defaultdict[Sequence[str], int] = defaultdict(int)
    for stored in block:
        bit = 1 << (BLOCK - 1 - (stored.offset - 1) % BLOCK)
        envelopes[stored.type, stored.stream_id] |= bit
        names, terms = named_by(stored)
        named[names] |= bit
        for name in terms:
            found[name] |= bit
    for envelope, bits in envelopes.items():
        for name in envelope_terms(*envelope):
            found[name] |= bits
    for names, bits in named.items():
        for name in metadata_terms(names):
            found[name] |= bits
    return found


class MemoryEventIndex:
    """An `EventIndex` that forgets everything when the process ends."""

    def __init__(self) -> None:
        self._positions: dict[int, int] = {}
        self._members: defaultdict[int, dict[str, list[int]]] = defaultdict(dict)
        self._times: defaultdict[int, dict[int, BlockTimes]] = defaultdict(dict)
        self._types: dict[str, tuple[int, int]] = {}

    async def positions(self) -> Mapping[int, int]:
        return dict(self._positions)

    async def apply(self, events: Sequence[StoredEvent]) -> None:
        if not events:
            return
        partition = events[0].partition
        fresh = fresh_events(events, self._positions.get(partition, 0))
        if not fresh:
            return
        changes = index_changes(fresh)
        for (name, block), bits in sorted(changes.members.items()):
            self._members[partition].setdefault(name, []).extend(offsets_of(block, bits))
        for block, times in changes.times.items():
            known = self._times[partition].setdefault(block, times)
            known.earliest = min(known.earliest, times.earliest)
            known.latest = max(known.latest, times.latest)
        for type_, (count, size) in changes.types.items():
            before, bytes_before = self._types.get(type_, (0, 0))
            self._types[type_] = (before + count, bytes_before + size)
        self._positions[partition] = fresh[-1].offset

    async def find(self, query: IndexQuery) -> tuple[int, ...]:
        first, last = query.after + 1, self._positions.get(query.partition, 0)
        last = min(last, query.before - 1)
        found = set(range(first, last + 1)) if not query.groups else None
        for group in query.groups:
            about = self._about(query.partition, group, first, last)
            found = about if found is None else found & about
        assert found is not None
        times = self._times[query.partition]
        within = (offset for offset in found if _is_within(times[block_of(offset)], query))
        return tuple(sorted(within, reverse=query.newest_first)[: query.limit])

    async def type_counts(self) -> Mapping[str, tuple[int, int]]:
        return dict(self._types)

    async def close(self) -> None:
        return None

    def _about(self, partition: int, group: Iterable[str], first: int, last: int) -> set[int]:
        found: set[int] = set()
        for name in group:
            offsets = self._members[partition].get(name, [])
            begin, end = bisect.bisect_left(offsets, first), bisect.bisect_right(offsets, last)
            found.update(offsets[begin:end])
        return found


def _is_within(times: BlockTimes, query: IndexQuery) -> bool:
    if query.since is not None and times.latest < query.since:
        return False
    return query.until is None or times.earliest < query.until
