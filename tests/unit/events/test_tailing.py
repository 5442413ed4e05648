"""Following the log: every event once, heartbeats, bounded work for a slow follower."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from fastvideo.errors import InvalidField, ResourceExhausted
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.reading.filters import EventFilter
from fastvideo.events.reading.reader import LogReader
from fastvideo.events.reading.tailing import LogFollower, Told
from fastvideo.events.records import StoredEvent
from fastvideo.events.subscription import PollLimits
from tests.unit.events.test_reading import BrokenStore, a_log, append_numbered

FAST = PollLimits(interval_s_min=0.001, interval_s_max=0.005)


class CountingStore(BrokenStore):
    """Counts events that were read."""

    events_read = 0

    async def read_partition(
        self, partition: int, after_offset: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        events = await super().read_partition(partition, after_offset, limit)
        self.events_read += len(events)
        return events


def follower(log: MemoryEventStore, heartbeat_s: float = 5.0) -> LogFollower:
    return LogFollower(LogReader(log), None, FAST, heartbeat_s=heartbeat_s, followers_max=2)


async def take(told: AsyncIterator[Told], count: int) -> list[str]:
    """The ids of the next events."""
    found: list[str] = []
    async with asyncio.timeout(30):
        async for one in told:
            if one.entry is not None:
                found.append(one.entry.event_id)
                if len(found) == count:
                    return found
    raise AssertionError("it ended")


async def test_it_tells_what_was_and_what_comes_each_once() -> None:
    log = await a_log(40)
    async with aclosing(follower(log).follow()) as told:
        before = await take(told, 40)
        await a_log_more(log, 40, 60)
        coming = await take(told, 20)
    assert before == [f"evt_{n}" for n in range(40)]
    assert sorted(coming) == sorted(f"evt_{n}" for n in range(40, 60))


async def test_from_the_end_only_what_comes_is_told() -> None:
    log = await a_log(30)
    wanted = EventFilter(request_ids=("req_4",))
    async with aclosing(follower(log).follow(wanted, from_end=True)) as told:
        first = await anext(told)
        assert (first.entry, first.position) == (None, await log.heads())
        await a_log_more(log, 30, 50)
        assert sorted(await take(told, 2)) == ["evt_34", "evt_44"]


async def test_positions_are_where_to_go_on() -> None:
    log = await a_log(90)
    seen: list[str] = []
    position: dict[int, int] = {}
    while len(seen) < 90:
        # Cut after a few, again and again.
        async with aclosing(follower(log).follow(after=position)) as told:
            taken = 0
            async for one in told:
                position.update(one.position)
                if one.entry is not None:
                    seen.append(one.entry.event_id)
                    taken += 1
                if taken == 7 or len(seen) == 90:
                    break
    assert sorted(seen) == sorted(f"evt_{n}" for n in range(90))


async def test_a_silence_is_filled_with_heartbeats() -> None:
    log = await a_log(20)
    wanted = EventFilter(request_ids=("req_of_nobody",))
    async with (
        aclosing(follower(log, heartbeat_s=0.01).follow(wanted)) as told,
        asyncio.timeout(30),
    ):
        position: dict[int, int] = {}
        for _ in range(5):
            one = await anext(told)
            assert one.entry is None
            position.update(one.position)
    assert position == await log.heads()


async def test_nothing_is_read_for_a_follower_that_does_not_ask() -> None:
    log = CountingStore(1)
    await a_log(5_000, log)
    async with aclosing(follower(log).follow()) as told:
        await take(told, 1)
        read = log.events_read
        assert read < 500
        await asyncio.sleep(0)
        assert log.events_read == read
        await take(told, 4_999)


async def test_a_broken_event_stops_nobody() -> None:
    log = await a_log(10)
    async with aclosing(follower(log).follow()) as told:
        await take(told, 10)
        log.broken = frozenset({"evt_13"})
        await a_log_more(log, 10, 20)
        coming = await take(told, 10)
    assert sorted(coming) == sorted(f"evt_{n}" for n in range(10, 20))


async def test_followers_are_few_and_leave_their_place() -> None:
    following = follower(await a_log(3))
    one, two, three = following.follow(), following.follow(), following.follow()
    await anext(one)
    await anext(two)
    with pytest.raises(ResourceExhausted):
        await anext(three)
    await one.aclose()
    async with aclosing(following.follow()) as again:
        await anext(again)
    await two.aclose()


async def test_positions_beyond_the_log_are_refused() -> None:
    with pytest.raises(InvalidField):
        await anext(follower(await a_log(3)).follow(after={0: 77}))


async def a_log_more(log: BrokenStore, first: int, end: int) -> None:
    """Append the events from `first` on, as `a_log` does."""
    for number in range(first, end):
        await append_numbered(log, number)
