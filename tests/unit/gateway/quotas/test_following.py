"""Where counters begin, and that no damaged event stops them."""

import asyncio
from datetime import timedelta

import pytest

from fastvideo.clock import ManualClock, milliseconds
from fastvideo.errors import CorruptLog
from fastvideo.events.projections.projector import Projector
from fastvideo.events.records import DamagedEvent, StoredEvent
from fastvideo.requests.events import RequestCompleted
from fastvideo.requests.tenants import TenantPolicy
from fastvideo.requests.types import RequestMetrics
from fastvideo_gateway.index_memory import MemoryIndex
from fastvideo_gateway.quotas import following
from fastvideo_gateway.quotas.following import UsageFollower, UsageSource, under_way_in
from fastvideo_gateway.quotas.memory import MemoryLedger
from fastvideo_gateway.quotas.types import Admission
from fastvideo_gateway.quotas.usage import RequestCosts
from tests.plugins.waiting import eventually, running
from tests.unit.gateway.test_watching import ACCEPTED, DONE, STARTED, CountingLog


class DamagedLog(CountingLog):
    """Refuses to give an event, as the database's adapter does."""

    damaged = 0

    async def read_partition(
        self, partition: int, after_offset: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        events = await super().read_partition(partition, after_offset, limit)
        for stored in events:
            if stored.offset == self.damaged:
                raise DamagedEvent(stored)
        return events


async def test_what_ended_while_the_rows_were_behind_is_not_under_way() -> None:
    log, index = CountingLog(), MemoryIndex()
    projector = Projector(log, index, log.wakeups)
    await log.write(ACCEPTED)
    await index.apply(await log.read_partition(0))
    await log.write(DONE)
    assert len(await index.under_way(10)) == 1
    reading = asyncio.ensure_future(under_way_in(index, projector, log)(10))
    async with asyncio.timeout(30), running(projector.run()):
        assert (await reading).states == ()


async def test_a_damaged_event_stops_no_counters_though_it_stops_the_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "STANDS_STILL_S", 0.05)
    log, index = DamagedLog(), MemoryIndex()
    projector = Projector(log, index, log.wakeups)
    await log.write(ACCEPTED)
    await log.write(STARTED)
    await log.write(RequestCompleted(metrics=RequestMetrics(device_seconds=9.0)))
    log.damaged = 2
    with pytest.raises(CorruptLog):
        await projector.run()
    (last,) = await log.read_partition(0, 2)
    now = last.recorded_at
    # A gateway that starts long after the damage.
    clock = ManualClock(now + timedelta(hours=2))
    ledger = MemoryLedger(lambda: milliseconds(now))
    source = UsageSource(log, under_way_in(index, projector, log), clock, log.wakeups)
    follower = UsageFollower(source, ledger, RequestCosts(), lambda answers: None)
    limits = TenantPolicy(device_seconds_per_hour=5.0)

    async def is_counted() -> bool:
        spent = await ledger.admit(Admission("other", "t"), limits)
        return spent is not None

    async with running(follower.run()):
        await eventually(is_counted)
