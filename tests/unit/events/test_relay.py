"""How a relay goes on, round by round."""

from dataclasses import replace

from fastvideo.bus.memory import MemoryBus
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.records import Fence
from fastvideo.events.relay import RelayLimits, RelayParts, run_relay
from tests.contract.event_store_cases import command
from tests.plugins.waiting import eventually, running


class CountingStore(MemoryEventStore):
    """Counts the places that are saved."""

    saves = 0

    async def save_checkpoint(
        self, name: str, partition: int, offset: int, fence: Fence | None = None
    ) -> None:
        self.saves += 1
        await super().save_checkpoint(name, partition, offset, fence)


async def _published(store: CountingStore, limits: RelayLimits, rounds: int) -> None:
    """Relay events one by one, each after the last is on the bus."""
    bus = MemoryBus()
    parts = RelayParts(store, bus, lambda stored: stored.payload, limits=limits)

    async def all_there() -> bool:
        head = await store.head(0)
        return await bus.last_message_id("fastvideo.events.>") == f"1:0:{head}"

    async with running(run_relay(parts, "r")):
        for _ in range(rounds):
            await store.append(command("s"))
            await eventually(all_there, every_s=0.001)


async def test_the_place_is_not_saved_after_each_round() -> None:
    store = CountingStore()
    limits = RelayLimits(gather_s=0.0, save_every_s=600.0, verify_s=600.0)
    await _published(store, limits, 20)
    assert store.saves == 1
    again = CountingStore()
    await _published(again, replace(limits, save_every_s=0.0), 20)
    assert again.saves >= 19
