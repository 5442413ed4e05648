"""A database whose clock is set back by an hour: times of recording rise, leases are let go.

What was written before the change lies an hour ahead of the clock, so that is how it is made.
"""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import asyncpg
import pytest

from fastvideo.clock import SystemClock
from fastvideo.errors import Fenced, InvalidField
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.records import LEASE_TTL_S_MAX
from fastvideo.events.store import EventStore
from tests.contract.event_store_cases import command
from tests.integration.events.test_verify import Damaged

AHEAD = timedelta(hours=1)
EVENTS_LATER = 3


class Clock(SystemClock):
    """A clock that can be set."""

    ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


@pytest.fixture(params=["memory", "postgres"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[EventStore]:
    """A store with an event and a lease of `old`, whose clock was set back since."""
    if request.param == "memory":
        clock = Clock()
        clock.ahead = AHEAD
        memory = MemoryEventStore(clock=clock)
        await _write(memory)
        clock.ahead = timedelta()
        yield memory
        return
    dsn = request.getfixturevalue("postgres_dsn")
    postgres = await PostgresEventStore.open(dsn)
    connection = await asyncpg.connect(dsn)
    log = Damaged(dsn, postgres, connection)
    await _write(postgres)
    hour = "interval '1 hour'"
    await log.change(
        f"UPDATE events SET recorded_at = recorded_at + {hour}",
        f"UPDATE partitions SET recorded_at = recorded_at + {hour}",
        f"UPDATE leases SET expires_at = expires_at + {hour}",
    )
    yield postgres
    assert await log.faults() == []
    await connection.close()
    await postgres.close()


async def _write(store: EventStore) -> None:
    await store.append(command("s"))
    assert await store.acquire_lease("shard", "old", 60.0) is not None


async def test_times_of_recording_rise_nevertheless(store: EventStore) -> None:
    *_, before = await store.read_partition(0)
    await store.append(command("s", EVENTS_LATER))
    await store.append(command("t", EVENTS_LATER))
    later = await store.read_partition(0, before.offset)
    assert len(later) == 2 * EVENTS_LATER
    assert all(event.recorded_at >= before.recorded_at for event in later)
    assert later[-1].recorded_at - before.recorded_at < AHEAD / 2


async def test_the_lease_of_a_dead_holder_is_not_held_for_an_hour(store: EventStore) -> None:
    dead = await store.read_lease("shard")
    assert dead is not None
    taken = await store.acquire_lease("shard", "new", 60.0)
    assert taken is not None
    assert taken.epoch == dead.epoch + 1
    with pytest.raises(Fenced):
        await store.append(command("s", fence=dead.fence))
    # The new one is held as ever.
    assert await store.acquire_lease("shard", "other", 60.0) is None


async def test_a_living_holder_keeps_its_lease_by_renewing_it(store: EventStore) -> None:
    lease = await store.read_lease("shard")
    assert lease is not None
    renewed = await store.renew_lease(lease, 60.0)
    assert renewed.epoch == lease.epoch
    assert await store.acquire_lease("shard", "new", 60.0) is None


async def test_no_lease_is_longer_than_what_tells_that_a_clock_was_set(store: EventStore) -> None:
    with pytest.raises(InvalidField):
        await store.acquire_lease("other", "a", LEASE_TTL_S_MAX + 1)
