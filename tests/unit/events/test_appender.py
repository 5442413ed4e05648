import asyncio

import pytest

from fastvideo.errors import Conflict, Fenced, ResourceExhausted, Unavailable
from fastvideo.events.appender import Appender, AppenderLimits
from fastvideo.events.records import Fence
from fastvideo.events.wakeups import LocalWakeups
from tests.contract.event_store_cases import command
from tests.unit.events.flaky import FlakyStore


@pytest.fixture
def store() -> FlakyStore:
    return FlakyStore()


async def test_appends_that_come_together_commit_together(store: FlakyStore) -> None:
    async with Appender(store) as appender:
        results = await asyncio.gather(*(appender.append(command(f"s-{i}")) for i in range(50)))
    assert len(store.commits) == 1
    assert [r.positions[0].offset for r in results] == list(range(1, 51))


async def test_a_commit_has_a_limit_of_events(store: FlakyStore) -> None:
    async with Appender(store, limits=AppenderLimits(events_per_commit_max=10)) as appender:
        await asyncio.gather(*(appender.append(command(f"s-{i}", count=4)) for i in range(5)))
    assert store.commits == [2, 2, 1]


async def test_enqueued_commands_keep_their_order_and_flush_waits_for_them(
    store: FlakyStore,
) -> None:
    async with Appender(store) as appender:
        for version in range(20):
            await appender.enqueue(command("s", expected_version=version))
        await appender.flush()
        assert await store.stream_version("s") == 20


async def test_leaving_the_appender_flushes(store: FlakyStore) -> None:
    async with Appender(store) as appender:
        await appender.enqueue(command("s"))
    assert await store.stream_version("s") == 1
    with pytest.raises(Unavailable):
        await appender.append(command("s"))


async def test_one_bad_command_fails_alone(store: FlakyStore) -> None:
    async with Appender(store) as appender:
        results = await asyncio.gather(
            appender.append(command("a")),
            appender.append(command("b", expected_version=7)),
            appender.append(command("c", fence=Fence("never-held", 1))),
            appender.append(command("d")),
            return_exceptions=True,
        )
    assert isinstance(results[1], Conflict)
    assert isinstance(results[2], Fenced)
    assert [await store.stream_version(s) for s in "abcd"] == [1, 0, 0, 1]


async def test_a_repeat_among_others_gets_the_first_result(store: FlakyStore) -> None:
    await store.append(command("a", idempotency_key="k", result=b"first"))
    async with Appender(store) as appender:
        other, repeat, twin, twin_again = await asyncio.gather(
            appender.append(command("b")),
            appender.append(command("a", idempotency_key="k", result=b"second")),
            appender.append(command("c", idempotency_key="twin", result=b"t1")),
            appender.append(command("c", idempotency_key="twin", result=b"t2")),
        )
    assert (other.repeated, repeat.repeated, repeat.result) == (False, True, b"first")
    assert (twin.repeated, twin_again.repeated, twin_again.result) == (False, True, b"t1")
    assert await store.stream_version("c") == 1


async def test_the_error_of_an_enqueued_command_comes_with_the_next_call(
    store: FlakyStore,
) -> None:
    async with Appender(store) as appender:
        await appender.enqueue(command("a", expected_version=3))
        with pytest.raises(Conflict):
            await appender.flush()
        await appender.flush()
        await appender.enqueue(command("a", expected_version=3))
        await appender.append(command("b"))
        with pytest.raises(Conflict):
            await appender.enqueue(command("c"))


@pytest.mark.parametrize("key", [None, "key"])
@pytest.mark.parametrize(("before", "lost"), [(1, 0), (0, 1), (2, 1), (0, 2)])
async def test_a_store_that_fails_in_the_middle_appends_once(
    store: FlakyStore, key: str | None, before: int, lost: int
) -> None:
    store.failures_before, store.answers_lost = before, lost
    async with Appender(store) as appender:
        await asyncio.gather(
            appender.append(command("a", 2, 0, idempotency_key=key)),
            appender.append(command("b", 1, 0)),
        )
    assert [await store.stream_version(s) for s in "ab"] == [2, 1]


async def test_a_store_that_stays_away_is_an_error_in_time(store: FlakyStore) -> None:
    store.failures_before = 10**6
    async with Appender(store, limits=AppenderLimits(retry_for_s=0.1)) as appender:
        with pytest.raises(Unavailable):
            await appender.append(command("a"))
        store.failures_before = 0
        await appender.append(command("a"))


async def test_a_full_queue_is_an_error_in_time(store: FlakyStore) -> None:
    limits = AppenderLimits(queue_commands_max=2, room_timeout_s=0.05, retry_for_s=0.3)
    store.failures_before = 10**6
    async with Appender(store, limits=limits) as appender:
        await appender.enqueue(command("a"))
        await asyncio.sleep(0)
        await appender.enqueue(command("a"))
        await appender.enqueue(command("a"))
        with pytest.raises(ResourceExhausted):
            await appender.enqueue(command("a"))
        store.failures_before = 0
        await appender.flush()


async def test_a_commit_wakes_readers(store: FlakyStore) -> None:
    wakeups = LocalWakeups()
    wakeup = wakeups.listen()
    async with Appender(store, wakeups) as appender:
        await appender.append(command("a"))
        assert await wakeup.wait(30) == {0}
        assert await wakeup.wait(0.0) == frozenset()
