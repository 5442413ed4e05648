"""A log and a bus, in memory or real, and the small parts that tests put between them."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from fastvideo.bus import Bus, BusConsumer, BusMessage, Delivery
from fastvideo.bus.port import OnHint
from fastvideo.errors import Unavailable
from fastvideo.events.records import AppendCommand, NewEvent, StoredEvent, StreamAppend
from fastvideo.events.store import EventStore


@dataclass(frozen=True, slots=True)
class Note:
    """An event as the tests' handlers see it."""

    event_id: str
    stream_id: str
    type: str


def encode(event: StoredEvent) -> bytes:
    return json.dumps([event.event_id, event.stream_id, event.type]).encode()


def decode_message(data: bytes) -> Note:
    return Note(*json.loads(data))


def decode_stored(event: StoredEvent) -> Note:
    return Note(event.event_id, event.stream_id, event.type)


@dataclass
class Effects:
    """A handler whose effect on an event of `in-<i>` is one event in `out-<i>`."""

    calls: Counter[str] = field(default_factory=Counter)
    poisonous: frozenset[str] = frozenset()

    async def __call__(self, note: Note) -> AppendCommand | None:
        self.calls[note.stream_id] += 1
        if note.stream_id in self.poisonous:
            raise ValueError(f"cannot digest {note.stream_id}")
        if not note.stream_id.startswith("in-"):
            return None
        effect = NewEvent(f"{note.event_id}-effect-{self.calls.total()}", "ThingEchoed", 1, b"")
        stream_id = note.stream_id.replace("in-", "out-")
        return AppendCommand((StreamAppend(stream_id, (effect,)),))


async def all_echoed(store: EventStore, count: int) -> bool:
    """Whether each of `in-0` ... has its effect; fails when one has two."""
    versions = [await store.stream_version(f"out-{i}") for i in range(count)]
    assert max(versions, default=0) <= 1, versions
    return all(version == 1 for version in versions)


class WrappedBus:
    """A bus in front of another, for faults."""

    def __init__(self, inner: Bus) -> None:
        self.inner = inner

    @property
    def connections(self) -> int:
        return self.inner.connections

    @property
    def connected(self) -> bool:
        return self.inner.connected

    @property
    def retention_s(self) -> float:
        return self.inner.retention_s

    async def publish(self, *messages: BusMessage) -> None:
        await self.inner.publish(*messages)

    async def incarnation(self) -> str:
        return await self.inner.incarnation()

    async def last_message_id(self, subject: str) -> str | None:
        return await self.inner.last_message_id(subject)

    async def consumer(self, name: str, *subjects: str, ack_wait_s: float) -> BusConsumer:
        return await self.inner.consumer(name, *subjects, ack_wait_s=ack_wait_s)

    async def hint(self, subject: str) -> None:
        await self.inner.hint(subject)

    async def listen(self, subject: str, on_hint: OnHint) -> None:
        await self.inner.listen(subject, on_hint)

    async def close(self) -> None:
        await self.inner.close()


@dataclass
class Faults:
    """What goes wrong between a bus and its consumers."""

    # How often each message is handed out.
    copies: int = 1
    # Acknowledgements that will not arrive.
    acks_lost: int = 0
    # Whether what is fetched together comes in the opposite order.
    reversed: bool = False


class FaultyBus(WrappedBus):
    """A bus whose consumers suffer faults."""

    def __init__(self, inner: Bus, faults: Faults) -> None:
        super().__init__(inner)
        self._faults = faults

    async def consumer(self, name: str, *subjects: str, ack_wait_s: float) -> BusConsumer:
        inner = await super().consumer(name, *subjects, ack_wait_s=ack_wait_s)
        return _FaultyConsumer(inner, self._faults)


class _FaultyConsumer:
    def __init__(self, inner: BusConsumer, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    async def fetch(self, limit: int, timeout_s: float) -> Sequence[Delivery]:
        deliveries = await self._inner.fetch(limit, timeout_s)
        if self._faults.reversed:
            deliveries = deliveries[::-1]
        copies = range(self._faults.copies)
        return [_FaultyDelivery(delivery, self._faults) for delivery in deliveries for _ in copies]


class _FaultyDelivery:
    def __init__(self, inner: Delivery, faults: Faults) -> None:
        self.message = inner.message
        self.times = inner.times
        self._inner = inner
        self._faults = faults

    async def ack(self) -> None:
        if self._faults.acks_lost:
            self._faults.acks_lost -= 1
            raise Unavailable("ack lost")
        await self._inner.ack()

    async def ack_unsure(self) -> None:
        if self._faults.acks_lost:
            self._faults.acks_lost -= 1
            raise Unavailable("ack lost")
        await self._inner.ack_unsure()

    async def nak(self, delay_s: float = 0.0) -> None:
        await self._inner.nak(delay_s)


class LosingBus(WrappedBus):
    """A bus that loses every third message for good, and counts by type what consumers are sent."""

    def __init__(self, inner: Bus) -> None:
        super().__init__(inner)
        self.sent: Counter[str] = Counter()

    async def consumer(self, name: str, *subjects: str, ack_wait_s: float) -> BusConsumer:
        inner = await super().consumer(name, *subjects, ack_wait_s=ack_wait_s)
        return _LosingConsumer(inner, self.sent)


class _LosingConsumer:
    def __init__(self, inner: BusConsumer, sent: Counter[str]) -> None:
        self._inner = inner
        self._sent = sent

    async def fetch(self, limit: int, timeout_s: float) -> Sequence[Delivery]:
        kept = []
        for delivery in await self._inner.fetch(limit, timeout_s):
            self._sent[delivery.message.subject.rsplit(".", 1)[-1]] += 1
            if self._sent.total() % 3:
                kept.append(delivery)
            else:
                await delivery.ack()
        return kept
