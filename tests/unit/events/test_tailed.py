"""One reader for many followers: each event is read once, and nobody misses or waits."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from fastvideo.clock import ManualClock
from fastvideo.errors import CorruptLog
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.records import AppendCommand, StoredEvent, StreamAppend
from fastvideo.events.sealing.keys import ERASURE_S_MAX
from fastvideo.events.store import partition_of
from fastvideo.events.subscription import LogSubscription, PollLimits
from fastvideo.events.tailed import TailedLog, TailLimits
from tests.contract.event_store_cases import command, new_event
from tests.plugins.waiting import eventually, running

FAST = PollLimits(interval_s_min=0.001, interval_s_max=0.005)
# Of followers that only what they are told wakes.
TOLD = PollLimits(interval_s_min=60.0, interval_s_max=60.0)
AT_ONCE = 20.0


class CountingStore(MemoryEventStore):
    """Counts the events that were read, and may have one that cannot be."""

    def __init__(self, partition_count: int = 1) -> None:
        super().__init__(partition_count)
        self.events_read = 0
        self.broken_at = 0
        # Set once the tail knows where it begins.
        self.begun = asyncio.Event()

    async def heads(self) -> Mapping[int, int]:
        self.begun.set()
        return await super().heads()

    async def read_partition(
        self, partition: int, after_offset: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        events = await super().read_partition(partition, after_offset, limit)
        if any(stored.offset == self.broken_at for stored in events):
            raise CorruptLog("a wrong digest", reason="WRONG_DIGEST")
        self.events_read += len(events)
        return events


def following(tail: TailedLog, cursors: Mapping[int, int]) -> LogSubscription:
    return LogSubscription(tail, cursors, tail, TOLD)


async def take(subscription: LogSubscription, count: int) -> list[tuple[int, int]]:
    """Partition and offset of the next events."""
    async with asyncio.timeout(AT_ONCE):
        found = [await anext(subscription) for _ in range(count)]
    return [(stored.partition, stored.offset) for stored in found]


async def has_read(store: CountingStore, count: int) -> None:
    async def enough() -> bool:
        return store.events_read >= count

    await eventually(enough)


@pytest.mark.parametrize("partitions", [1, 4])
async def test_what_comes_is_read_once_for_all(partitions: int) -> None:
    store = CountingStore(partitions)
    tail = TailedLog(store, None, FAST)
    async with running(tail.run()):
        await store.begun.wait()
        followers = [following(tail, dict.fromkeys(range(partitions), 0)) for _ in range(5)]
        taking = [asyncio.create_task(take(follower, 30)) for follower in followers]
        # Now they wait to be told.
        await asyncio.sleep(0)
        for i in range(30):
            await store.append(command(f"s-{i}"))
        taken = await asyncio.gather(*taking)
    for found in taken:
        for partition in range(partitions):
            offsets = [offset for at, offset in found if at == partition]
            assert offsets == list(range(1, len(offsets) + 1))
    assert store.events_read == 30


async def test_who_is_behind_what_is_kept_reads_the_log_and_misses_nothing() -> None:
    store = CountingStore()
    tail = TailedLog(store, None, FAST, TailLimits(events_max=4))
    slow = following(tail, {0: 0})
    async with running(tail.run()):
        await store.begun.wait()
        await store.append(command("s", count=1))
        assert await take(slow, 1) == [(0, 1)]
        for _ in range(20):
            await store.append(command("s"))
        await has_read(store, 21)
        late = following(tail, {0: 3})
        assert await take(slow, 20) == [(0, offset) for offset in range(2, 22)]
        assert await take(late, 18) == [(0, offset) for offset in range(4, 22)]


async def test_what_is_kept_is_bounded_by_bytes() -> None:
    store = CountingStore()
    tail = TailedLog(store, None, FAST, TailLimits(bytes_max=2_500))
    async with running(tail.run()):
        await store.begun.wait()
        for _ in range(4):
            event = new_event(bytes(1_000))
            await store.append(AppendCommand((StreamAppend("s", (event,)),)))
        await has_read(store, 4)
        before = store.events_read
        assert len(await tail.read_partition(0, 2)) == 2
        assert store.events_read == before
        assert len(await tail.read_partition(0, 1)) == 3
        assert store.events_read == before + 3


async def test_what_cannot_be_read_followers_meet_themselves() -> None:
    store = CountingStore()
    tail = TailedLog(store, None, FAST)
    follower = following(tail, {0: 0})
    async with running(tail.run()):
        await store.begun.wait()
        await store.append(command("s"))
        assert await take(follower, 1) == [(0, 1)]
        store.broken_at = 2
        await store.append(command("s"))
        with pytest.raises(CorruptLog, match="a wrong digest"):
            await take(follower, 1)


async def test_without_a_reader_everybody_reads_the_log() -> None:
    store = CountingStore()
    tail = TailedLog(store, None, FAST)
    await store.append(command("s", count=3))
    assert await take(following(tail, {0: 1}), 2) == [(0, 2), (0, 3)]
    async with running(tail.run()):
        await store.begun.wait()
        await store.append(command("s"))
        await has_read(store, 3)
    assert [stored.offset for stored in await tail.read_partition(0, 3)] == [4]


async def test_what_came_before_the_reader_began_is_told_of_when_it_begins() -> None:
    store = CountingStore()
    tail = TailedLog(store, None, FAST)
    taking = asyncio.create_task(take(following(tail, {0: 0}), 1))
    # It has looked, found nothing, and waits to be told.
    for _ in range(10):
        await asyncio.sleep(0)
    await store.append(command("s"))
    async with running(tail.run()):
        assert await taking == [(0, 1)]


async def test_nothing_is_kept_until_an_erased_key_opens_nothing() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    clock, store = ManualClock(start), CountingStore(2)
    tail = TailedLog(store, None, FAST, clock=clock)
    streams = {partition_of(f"s-{i}", 2): f"s-{i}" for i in range(16)}

    async def kept_of(partition: int, *types: str) -> int:
        """How many of events that come now are found without reading the log again."""
        head, read = await store.head(partition), store.events_read
        events = tuple(new_event(type_=type_) for type_ in types)
        await store.append(AppendCommand((StreamAppend(streams[partition], events),)))
        await has_read(store, read + len(types))
        assert len(await tail.read_partition(partition, head)) == len(types)
        return read + 2 * len(types) - store.events_read

    async with running(tail.run()):
        await store.begun.wait()
        assert await kept_of(0, "Written") == 1
        # Read together with what was written right before it.
        assert await kept_of(0, "Written", "TenantErased") == 0
        assert await kept_of(1, "Written") == 0
        read = store.events_read
        assert len(await tail.read_partition(0, 0)) == 3
        assert store.events_read == read + 3
        clock.set(start + timedelta(seconds=ERASURE_S_MAX))
        assert await kept_of(1, "Written") == 1
        assert await kept_of(0, "Written") == 1
