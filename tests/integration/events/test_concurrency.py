"""Many writers and a reader on a real database."""

import asyncio
import random
from collections import Counter

import pytest

from fastvideo.errors import Conflict
from fastvideo.events.appender import Appender
from fastvideo.events.migrate import upgrade
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.records import AppendCommand, StoredEvent, StreamAppend
from fastvideo.events.subscription import LogSubscription, PollLimits
from tests.contract.event_store_cases import command, new_event
from tests.plugins.waiting import eventually, running

WRITERS = 16


async def _collect(subscription: LogSubscription, into: list[StoredEvent]) -> None:
    async for event in subscription:
        into.append(event)


@pytest.mark.parametrize("partitions", [1, 4])
async def test_a_polling_reader_misses_nothing_of_sixteen_writers(
    empty_postgres_dsn: str, partitions: int
) -> None:
    await upgrade(empty_postgres_dsn, partitions)
    store = await PostgresEventStore.open(empty_postgres_dsn, connections_max=WRITERS + 1)
    reader = await PostgresEventStore.open(empty_postgres_dsn, connections_max=1)
    written: set[str] = set()

    async def write(writer: int) -> None:
        choose = random.Random(writer)
        for _ in range(25):
            streams = tuple(
                StreamAppend(f"s-{i}", tuple(new_event() for _ in range(choose.randint(1, 4))))
                for i in choose.sample(range(40), choose.randint(1, 3))
            )
            await store.append(AppendCommand(streams))
            written.update(event.event_id for s in streams for event in s.events)

    seen: list[StoredEvent] = []
    fast = PollLimits(interval_s_min=0.001, interval_s_max=0.002)
    subscription = LogSubscription(reader, dict.fromkeys(range(partitions), 0), limits=fast)
    async with running(_collect(subscription, seen)):
        await asyncio.gather(*map(write, range(WRITERS)))

        async def all_seen() -> bool:
            return len(seen) >= len(written)

        await eventually(all_seen)
    assert Counter(event.event_id for event in seen) == Counter(written)
    for partition in range(partitions):
        events = [event for event in seen if event.partition == partition]
        assert [event.offset for event in events] == list(range(1, len(events) + 1))
        assert sorted(event.recorded_at for event in events) == [e.recorded_at for e in events]
    for store_ in (store, reader):
        await store_.close()


async def test_appenders_of_two_processes_keep_versions_gapless(postgres_dsn: str) -> None:
    stores = [await PostgresEventStore.open(postgres_dsn) for _ in range(2)]

    async def count_up(appender: Appender, writer: int) -> int:
        """Compare and set on one contended stream until ten appends went through."""
        conflicts = done = 0
        while done < 10:
            version = await stores[writer].stream_version("counter")
            try:
                await appender.append(command("counter", expected_version=version))
                done += 1
            except Conflict:
                conflicts += 1
        return conflicts

    async with Appender(stores[0]) as first, Appender(stores[1]) as second:
        await asyncio.gather(count_up(first, 0), count_up(second, 1), count_up(first, 0))
    events = await stores[0].read_stream("counter")
    assert [event.stream_version for event in events] == list(range(1, 31))
    for store in stores:
        await store.close()
