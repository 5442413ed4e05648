"""A log, a bus, and what carries from the one over the other to a consumer."""

import secrets
from dataclasses import dataclass

from fastvideo.bus import Bus
from fastvideo.errors import Unavailable
from fastvideo.events.consumer import ConsumerLimits, ConsumerParts
from fastvideo.events.relay import (
    RelayLimits,
    RelayParts,
    bus_message,
)
from fastvideo.events.store import EventStore
from tests.contract.event_store_cases import command
from tests.integration.events.worlds import (
    Effects,
    Note,
    decode_message,
    decode_stored,
    encode,
)

RELAY_LIMITS = RelayLimits(verify_s=0.3, retry_s=0.05, lease_ttl_s=30.0)
CONSUMER_LIMITS = ConsumerLimits(
    tries_max=3, retry_s=0.01, silence_s=0.3, ack_wait_s=0.5, lease_ttl_s=30.0
)


@dataclass(frozen=True)
class World:
    store: EventStore
    bus: Bus

    def relay_parts(self) -> RelayParts:
        return RelayParts(self.store, self.bus, encode, limits=RELAY_LIMITS)

    def consumer_parts(self, effects: Effects, bus: Bus | None = None) -> ConsumerParts[Note]:
        return ConsumerParts(
            name="echo",
            store=self.store,
            bus=bus or self.bus,
            handle=effects,
            decode_message=decode_message,
            decode_stored=decode_stored,
            limits=CONSUMER_LIMITS,
        )

    async def append_inputs(self, count: int, first: int = 0) -> None:
        for i in range(first, first + count):
            await self.store.append(command(f"in-{i}"))

    async def relay_up_to_date(self) -> bool:
        heads = await self.store.heads()
        done = await self.store.load_checkpoint("relay")
        return all(done.get(partition, 0) == head for partition, head in heads.items())


async def bus_has_everything(world: World) -> bool:
    """Whether a new consumer of the bus is given each event of the log."""
    consumer = await world.bus.consumer(
        f"check-{secrets.token_hex(4)}", "fastvideo.events.>", ack_wait_s=30.0
    )
    found: set[str] = set()
    try:
        while deliveries := await consumer.fetch(100, 0.2):
            found.update(delivery.message.message_id for delivery in deliveries)
    except Unavailable:
        return False
    wanted = {
        bus_message(event, encode).message_id
        for partition in range(world.store.partition_count)
        for event in await world.store.read_partition(partition)
    }
    return found == wanted
