"""Who hears that the log has grown."""

from fastvideo.bus.memory import MemoryBus
from fastvideo.events.wakeups import BusWakeups, LocalWakeups


class QuietBus(MemoryBus):
    """A bus on which one does not hear oneself."""

    async def hint(self, subject: str) -> None:
        return


async def test_who_listens_elsewhere_does_not_hear_its_own_process() -> None:
    bus = QuietBus()
    wakeups = await BusWakeups.open(bus)
    here, elsewhere = wakeups.listen(), wakeups.elsewhere.listen()
    await wakeups.notify([3])
    assert await here.wait(20.0) == {3}
    assert await elsewhere.wait(0.0) == frozenset()
    # Another process tells.
    await MemoryBus.hint(bus, "fastvideo.hints.4")
    assert await here.wait(20.0) == {4}
    assert await elsewhere.wait(20.0) == {4}


async def test_without_a_bus_all_is_heard() -> None:
    wakeups = LocalWakeups()
    elsewhere = wakeups.elsewhere.listen()
    await wakeups.notify([1])
    assert await elsewhere.wait(20.0) == {1}
