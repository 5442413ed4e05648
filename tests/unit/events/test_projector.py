"""From the log into a projection."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from fastvideo.errors import CorruptLog, Unavailable
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.projections.projector import Projector, fresh_events
from fastvideo.events.records import AppendCommand, NewEvent, StoredEvent, StreamAppend
from fastvideo.events.subscription import PollLimits
from fastvideo.ids import new_id
from tests.plugins.waiting import eventually, running

POLLING = PollLimits(interval_s_min=0.001, interval_s_max=0.002)


class Rows:
    """A projection that keeps the ids of the events, and may be away at first."""

    def __init__(self, failures: int = 0) -> None:
        self.ids: list[str] = []
        self.transactions = 0
        self.failures = failures
        self._positions: dict[int, int] = {}

    async def positions(self) -> Mapping[int, int]:
        return dict(self._positions)

    async def apply(self, events: Sequence[StoredEvent]) -> None:
        if self.failures:
            self.failures -= 1
            raise Unavailable("the database is away")
        self.transactions += 1
        partition = events[0].partition
        fresh = fresh_events(events, self._positions.get(partition, 0))
        self.ids += [stored.event_id for stored in fresh]
        self._positions[partition] = events[-1].offset


async def write(log: MemoryEventStore, count: int, stream_id: str = "s") -> list[str]:
    ids = [new_id("evt", 0) for _ in range(count)]
    events = tuple(NewEvent(event_id, "ThingHappened", 1, b"") for event_id in ids)
    await log.append(AppendCommand(streams=(StreamAppend(stream_id, events),)))
    return ids


async def test_it_takes_in_what_was_there_and_what_comes() -> None:
    log, rows = MemoryEventStore(), Rows()
    ids = await write(log, 3)
    projector = Projector(log, rows, limits=POLLING)
    with pytest.raises(Unavailable, match="being filled from the log: 0 of 3 events"):
        await projector.is_fresh(0.0)
    async with running(projector.run()):
        assert await projector.is_fresh(10.0)
        assert rows.ids == ids
        ids += await write(log, 2)
        assert await projector.is_fresh(10.0)
    assert rows.ids == ids


async def test_a_second_one_goes_on_where_the_rows_stand() -> None:
    log, rows = MemoryEventStore(partition_count=3), Rows()
    for i in range(9):
        await write(log, 2, f"s{i}")
    for _ in range(2):
        projector = Projector(log, rows, limits=POLLING)
        async with running(projector.run()):
            assert await projector.is_fresh(10.0)
    assert len(rows.ids) == len(set(rows.ids)) == 18


async def test_it_waits_while_the_rows_are_away_and_loses_nothing() -> None:
    log, rows = MemoryEventStore(), Rows(failures=1)
    ids = await write(log, 3)
    projector = Projector(log, rows, limits=POLLING)
    async with running(projector.run()):
        async with asyncio.timeout(30):
            await projector.reached({0: 3})
    assert rows.ids == ids


async def test_rows_that_were_filled_once_are_old_and_no_lie() -> None:
    log, rows = MemoryEventStore(), Rows()
    await write(log, 3)
    projector = Projector(log, rows, limits=POLLING)
    async with running(projector.run()):
        assert await projector.is_fresh(10.0)
        rows.failures = 1_000_000
        await write(log, 1)
        assert not await projector.is_fresh(0.01)


async def test_events_must_follow_the_position() -> None:
    log = MemoryEventStore()
    await write(log, 4)
    events = await log.read_partition(0)
    assert fresh_events(events, 2) == list(events[2:])
    assert fresh_events(events, 4) == []
    with pytest.raises(CorruptLog, match="goes on at offset 3, not at 2"):
        fresh_events(events[2:], 1)


async def test_events_gather_until_somebody_waits_for_them() -> None:
    log, rows = MemoryEventStore(), Rows()
    projector = Projector(log, rows, limits=POLLING, gather_s=60.0)

    async def took_the_first() -> bool:
        return len(rows.ids) == 1

    async with running(projector.run()):
        ids = await write(log, 1)
        await eventually(took_the_first)
        for _ in range(5):
            ids += await write(log, 1)
        assert await projector.is_fresh(20.0)
    assert (rows.ids, rows.transactions) == (ids, 2)
