"""What every event store offers for coordination: leases, checkpoints, inbox, quarantine."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from fastvideo.errors import Fenced
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.records import (
    SNAPSHOTS_KEPT,
    Fence,
    InboxMark,
    Lease,
    QuarantinedEvent,
    Snapshot,
)
from fastvideo.events.store import EventStore
from tests.contract.event_store_cases import command


@pytest.fixture(params=["memory", "postgres"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[EventStore]:
    if request.param == "memory":
        yield MemoryEventStore()
        return
    postgres = await PostgresEventStore.open(request.getfixturevalue("postgres_dsn"))
    yield postgres
    await postgres.close()


async def acquire(store: EventStore, holder: str, ttl_s: float = 60.0) -> Lease:
    lease = await store.acquire_lease("scheduler-0", holder, ttl_s)
    assert lease is not None
    return lease


async def test_a_lease_has_one_holder(store: EventStore) -> None:
    lease = await acquire(store, "a")
    assert (lease.name, lease.holder, lease.epoch) == ("scheduler-0", "a", 1)
    assert await store.acquire_lease("scheduler-0", "b", 60.0) is None
    assert await store.read_lease("scheduler-0") == lease
    assert await store.read_lease("unknown") is None
    other = await store.acquire_lease("scheduler-1", "b", 60.0)
    assert other is not None
    assert other.epoch == 1


async def test_of_many_holders_one_acquires(store: EventStore) -> None:
    leases = await asyncio.gather(
        *(store.acquire_lease("scheduler-0", f"h{i}", 60.0) for i in range(8))
    )
    assert sum(lease is not None for lease in leases) == 1


async def test_the_epoch_rises_by_one_at_every_change_of_holder(store: EventStore) -> None:
    first = await acquire(store, "a")
    assert (await acquire(store, "a")).epoch == 1
    assert (await store.renew_lease(first, 60.0)).epoch == 1
    await store.release_lease(first)
    assert (await acquire(store, "b")).epoch == 2


async def test_an_expired_lease_is_for_anyone(store: EventStore) -> None:
    first = await acquire(store, "a", ttl_s=0.0)
    second = await acquire(store, "b")
    assert second.epoch == first.epoch + 1
    with pytest.raises(Fenced):
        await store.renew_lease(first, 60.0)
    # Giving a lost lease back takes nothing from the new holder.
    await store.release_lease(first)
    assert await store.acquire_lease("scheduler-0", "c", 60.0) is None


async def test_an_expired_lease_that_nobody_took_can_be_renewed(store: EventStore) -> None:
    first = await acquire(store, "a", ttl_s=0.0)
    renewed = await store.renew_lease(first, 60.0)
    assert renewed.epoch == first.epoch
    assert renewed.expires_at > first.expires_at
    assert await store.acquire_lease("scheduler-0", "b", 60.0) is None


async def test_an_append_under_a_stale_epoch_is_refused_and_changes_nothing(
    store: EventStore,
) -> None:
    stale = await acquire(store, "a", ttl_s=0.0)
    await store.append(command("request-1", fence=stale.fence))
    current = await acquire(store, "b")
    with pytest.raises(Fenced) as caught:
        await store.append(command("request-1", fence=stale.fence, idempotency_key="k"))
    assert caught.value.subject == "scheduler-0"
    with pytest.raises(Fenced):
        await store.append(command("request-1", fence=Fence("never-held", 1)))
    result = await store.append(command("request-1", fence=current.fence, idempotency_key="k"))
    assert not result.repeated
    assert [e.fence_epoch for e in await store.read_stream("request-1")] == [1, 2]


async def test_a_checkpoint_moves_forwards_and_back(store: EventStore) -> None:
    assert await store.load_checkpoint("projection") == {}
    await store.save_checkpoint("projection", 0, 7)
    assert await store.load_checkpoint("projection") == {0: 7}
    await store.save_checkpoint("projection", 0, 3)
    assert await store.load_checkpoint("projection") == {0: 3}
    assert await store.load_checkpoint("other") == {}


async def test_the_newest_snapshots_are_kept(store: EventStore) -> None:
    assert await store.load_snapshots("shard") == ()
    saved = [Snapshot(version, b"%d" % version) for version in (2, 9, 5, 7, 11, 30)]
    for snapshot in saved:
        await store.save_snapshot("shard", snapshot)
    newest = sorted(saved, key=lambda snapshot: -snapshot.version)[:SNAPSHOTS_KEPT]
    assert await store.load_snapshots("shard") == tuple(newest)
    assert await store.load_snapshots("other") == ()
    again = Snapshot(30, b"again")
    await store.save_snapshot("shard", again)
    assert (await store.load_snapshots("shard"))[0] == again


async def test_a_snapshot_under_a_stale_epoch_is_refused(store: EventStore) -> None:
    stale = await acquire(store, "a", ttl_s=0.0)
    await store.save_snapshot("shard", Snapshot(1, b"a"), stale.fence)
    current = await acquire(store, "b")
    with pytest.raises(Fenced):
        await store.save_snapshot("shard", Snapshot(2, b"a"), stale.fence)
    await store.save_snapshot("shard", Snapshot(3, b"b"), current.fence)
    assert [s.version for s in await store.load_snapshots("shard")] == [3, 1]


async def test_a_checkpoint_under_a_stale_epoch_is_refused(store: EventStore) -> None:
    stale = await acquire(store, "a", ttl_s=0.0)
    await store.save_checkpoint("relay", 0, 1, stale.fence)
    current = await acquire(store, "b")
    with pytest.raises(Fenced):
        await store.save_checkpoint("relay", 0, 2, stale.fence)
    assert await store.load_checkpoint("relay") == {0: 1}
    await store.save_checkpoint("relay", 0, 3, current.fence)
    assert await store.load_checkpoint("relay") == {0: 3}


async def test_an_inbox_mark_lets_an_effect_happen_once(store: EventStore) -> None:
    mark = InboxMark("sessions", "evt_1")
    assert not await store.inbox_seen("sessions", "evt_1")
    results = [await store.append(command("session-1", inbox=mark)) for _ in range(5)]
    assert [r.repeated for r in results] == [False, True, True, True, True]
    assert await store.stream_version("session-1") == 1
    assert await store.inbox_seen("sessions", "evt_1")
    assert not await store.inbox_seen("gateway", "evt_1")


async def test_an_inbox_mark_is_only_kept_with_its_effect(store: EventStore) -> None:
    mark = InboxMark("sessions", "evt_1")
    with pytest.raises(Fenced):
        await store.append(command("session-1", inbox=mark, fence=Fence("never-held", 1)))
    assert not await store.inbox_seen("sessions", "evt_1")


async def test_old_inbox_marks_can_be_forgotten(store: EventStore) -> None:
    await store.append(command("session-1", inbox=InboxMark("sessions", "evt_1")))
    hour = timedelta(hours=1)
    assert await store.forget_inbox("sessions", datetime.now(UTC) - hour) == 0
    assert await store.forget_inbox("gateway", datetime.now(UTC) + hour) == 0
    assert await store.forget_inbox("sessions", datetime.now(UTC) + hour) == 1
    assert not await store.inbox_seen("sessions", "evt_1")


async def test_quarantined_events_are_listed_newest_first(store: EventStore) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    events = [
        QuarantinedEvent(
            "sessions" if i % 2 else "gateway",
            f"evt_{i}",
            0,
            i + 1,
            "ThingHappened",
            3,
            "ValueError: no",
            noon + timedelta(seconds=i),
        )
        for i in range(4)
    ]
    for event in [*events, *events]:
        await store.quarantine(event)
    assert await store.list_quarantined() == tuple(reversed(events))
    assert await store.list_quarantined("sessions") == (events[3], events[1])
    assert await store.list_quarantined(limit=1) == (events[3],)
