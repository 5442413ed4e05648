"""How far a request had come when a term began is told by epochs, whatever clocks say."""

from datetime import timedelta

import pytest

from fastvideo.clock import ManualClock
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.records import AppendCommand, NewEvent, StreamAppend
from fastvideo.replay.live_records import had_gone_before
from tests.unit.scheduling.world import START


@pytest.mark.parametrize(
    ("kind", "led", "before"),
    [("RequestStarted", True, True), ("RequestStarted", False, False), ("Other", True, False)],
)
async def test_only_earlier_leaders_tell_of_it(kind: str, led: bool, before: bool) -> None:
    store = MemoryEventStore(clock=ManualClock(START + timedelta(days=1)))
    lease = await store.acquire_lease("scheduler-0", "s", 60.0)
    assert lease is not None
    event = StreamAppend("request-r1", (NewEvent("evt_1", kind, 1, b""),))
    await store.append(AppendCommand((event,), fence=lease.fence if led else None))
    (stored,) = await store.read_stream("request-r1")
    assert had_gone_before(stored, lease.epoch + 1) is before
    assert not had_gone_before(stored, lease.epoch)
