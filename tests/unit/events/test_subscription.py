import asyncio

import pytest

from fastvideo.errors import CorruptLog
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.records import StoredEvent
from fastvideo.events.subscription import BESIDE_HINTS, LogSubscription, PollLimits
from fastvideo.events.wakeups import LocalWakeups
from tests.contract.event_store_cases import command
from tests.unit.events.flaky import FlakyStore


async def take(subscription: LogSubscription, count: int) -> list[StoredEvent]:
    async with asyncio.timeout(30):
        return [await anext(subscription) for _ in range(count)]


async def test_it_gives_every_event_of_its_partitions_in_order() -> None:
    store = MemoryEventStore(4)
    for i in range(40):
        await store.append(command(f"s-{i}"))
    subscription = LogSubscription(
        store, dict.fromkeys(range(4), 0), limits=PollLimits(events_per_read_max=3)
    )
    events = await take(subscription, 40)
    for partition in range(4):
        offsets = [e.offset for e in events if e.partition == partition]
        assert offsets == list(range(1, len(offsets) + 1))
    assert subscription.cursors == await store.heads()


async def test_it_begins_after_its_cursors() -> None:
    store = MemoryEventStore()
    await store.append(command("s", count=5))
    assert [e.offset for e in await take(LogSubscription(store, {0: 3}), 2)] == [4, 5]


async def test_cursors_stand_at_what_was_handed_out() -> None:
    store = MemoryEventStore()
    await store.append(command("s", count=5))
    subscription = LogSubscription(store, {0: 0})
    await take(subscription, 2)
    assert subscription.cursors == {0: 2}
    assert [e.offset for e in await subscription.next_batch()] == [3, 4, 5]
    assert subscription.cursors == {0: 5}


@pytest.mark.parametrize("partitions", [1, 4])
async def test_it_finds_new_events_by_polling_alone(partitions: int) -> None:
    store = MemoryEventStore(partitions)
    subscription = LogSubscription(store, dict.fromkeys(range(partitions), 0))
    waiting = asyncio.create_task(anext(subscription))
    await asyncio.sleep(0)
    await store.append(command("s"))
    event = await asyncio.wait_for(waiting, 30.0)
    assert event.stream_id == "s"


async def test_who_hears_no_hints_polls_as_who_has_none() -> None:
    """The bus went away: what others append is not hinted at."""
    away = False
    wakeups = LocalWakeups(lambda: away)
    waits: list[float] = []
    ear = wakeups.listen()

    async def wait(timeout_s: float) -> frozenset[int]:
        waits.append(timeout_s)
        if len(waits) == 20:
            raise CorruptLog("enough")
        return frozenset()

    ear.wait = wait  # type: ignore[method-assign]
    wakeups.listen = lambda: ear  # type: ignore[method-assign]
    subscription = LogSubscription(MemoryEventStore(), {0: 0}, wakeups, BESIDE_HINTS)
    for silent, most_s in ((False, BESIDE_HINTS.interval_s_max), (True, 0.2)):
        away = silent
        waits.clear()
        with pytest.raises(CorruptLog, match="enough"):
            await anext(subscription)
        assert max(waits) == most_s


async def test_a_hint_wakes_it_at_once() -> None:
    store, wakeups = MemoryEventStore(4), LocalWakeups()
    slow = PollLimits(interval_s_min=60.0, interval_s_max=60.0)
    subscription = LogSubscription(store, dict.fromkeys(range(4), 0), wakeups, slow)
    waiting = asyncio.create_task(anext(subscription))
    await asyncio.sleep(0)
    result = await store.append(command("s"))
    await wakeups.notify([result.positions[0].partition])
    # Long before it would have looked by itself.
    await asyncio.wait_for(waiting, 30.0)


async def test_it_waits_while_the_store_is_away() -> None:
    store = FlakyStore()
    await store.append(command("s", count=2))
    store.read_failures = 3
    subscription = LogSubscription(store, {0: 0}, limits=PollLimits(interval_s_max=0.01))
    assert [e.offset for e in await take(subscription, 2)] == [1, 2]


class LeakyStore(MemoryEventStore):
    """A store that loses the event at offset 3."""

    async def read_partition(
        self, partition: int, after_offset: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        events = await super().read_partition(partition, after_offset, limit)
        return tuple(e for e in events if e.offset != 3)


async def test_a_gap_stops_it() -> None:
    store = LeakyStore()
    await store.append(command("s", count=5))
    subscription = LogSubscription(store, {0: 0}, limits=PollLimits(events_per_read_max=2))
    assert [e.offset for e in await take(subscription, 2)] == [1, 2]
    with pytest.raises(CorruptLog) as caught:
        await take(subscription, 1)
    assert caught.value.reason == "OFFSET_GAP"
    assert caught.value.attributes == {"cursor": "2", "offset": "4"}


async def test_cancelling_a_wait_loses_nothing() -> None:
    store = MemoryEventStore()
    subscription = LogSubscription(store, {0: 0})
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await anext(subscription)
    await store.append(command("s", count=3))
    events = await take(subscription, 3)
    assert [e.offset for e in events] == [1, 2, 3]
