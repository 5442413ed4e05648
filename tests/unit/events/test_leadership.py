import asyncio

import pytest

from fastvideo.events.leadership import lead
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.records import Lease
from tests.plugins.waiting import eventually, running


class Work:
    """Records its terms and goes on until it is cancelled."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.active = 0
        self.failure: Exception | None = None

    async def __call__(self, lease: Lease) -> None:
        self.epochs.append(lease.epoch)
        self.active += 1
        try:
            if self.failure is not None:
                failure, self.failure = self.failure, None
                raise failure
            await asyncio.Event().wait()
        finally:
            self.active -= 1


async def test_one_of_two_leads_and_the_other_follows_when_it_ends() -> None:
    store, first, second = MemoryEventStore(), Work(), Work()
    async with running(lead(store, "shard", "a", first, ttl_s=0.4)) as leader:
        await eventually(lambda: _is(first.active == 1))
        async with running(lead(store, "shard", "b", second, ttl_s=0.4)):
            await asyncio.sleep(0)
            assert second.active == 0
            leader.cancel()
            await eventually(lambda: _is(second.active == 1))
            assert (first.active, first.epochs, second.epochs) == (0, [1], [2])


async def test_a_leader_renews_its_lease() -> None:
    store, work = MemoryEventStore(), Work()
    async with running(lead(store, "shard", "a", work, ttl_s=0.15)):
        await eventually(lambda: _is(work.active == 1))
        first = await store.read_lease("shard")
        assert first is not None

        async def renewed() -> bool:
            lease = await store.read_lease("shard")
            return lease is not None and lease.expires_at > first.expires_at

        await eventually(renewed)
        assert work.epochs == [1]


async def test_work_stops_when_the_lease_is_lost() -> None:
    store, work = MemoryEventStore(), Work()
    async with running(lead(store, "shard", "a", work, ttl_s=0.15)):
        await eventually(lambda: _is(work.active == 1))
        lease = await store.read_lease("shard")
        assert lease is not None
        await store.release_lease(lease)
        assert await store.acquire_lease("shard", "thief", 0.3) is not None
        await eventually(lambda: _is(work.active == 0))
        await eventually(lambda: _is(work.epochs == [1, 3]))


async def test_an_error_of_the_work_ends_the_leadership() -> None:
    store, work = MemoryEventStore(), Work()
    work.failure = ValueError("broken")
    with pytest.raises(ValueError, match="broken"):
        await lead(store, "shard", "a", work)
    assert await store.acquire_lease("shard", "b", 1.0) is not None


async def test_work_that_swallows_a_cancellation_is_cancelled_again() -> None:
    store, swallowed = MemoryEventStore(), asyncio.Event()

    async def stubborn(lease: Lease) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            swallowed.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(30):
        async with running(lead(store, "shard", "a", stubborn)):
            await eventually(lambda: _held(store))
    assert swallowed.is_set()


async def _is(value: bool) -> bool:
    return value


async def _held(store: MemoryEventStore) -> bool:
    return await store.read_lease("shard") is not None
