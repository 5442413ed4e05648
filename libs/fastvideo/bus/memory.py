"""The bus in this process: for unit tests, the simulator and the in-process engine."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fastvideo.bus.port import BusMessage, OnHint, subject_matches


class MemoryBus:
    """A `Bus` whose messages end with the process. `monotonic_s` is its clock."""

    def __init__(
        self,
        *,
        messages_max: int = 100_000,
        retention_s: float = 7 * 86400.0,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._messages_max = messages_max
        self._retention_s = retention_s
        self._now = monotonic_s
        self._connections = 1
        # Sequence number, from 1 and rising, to message.
        self._messages: dict[int, BusMessage] = {}
        self._sequence = 0
        self._ids: set[str] = set()
        self._consumers: dict[str, MemoryConsumer] = {}
        self._listeners: list[tuple[str, OnHint]] = []
        self._arrived = asyncio.Condition()

    @property
    def connections(self) -> int:
        return self._connections

    @property
    def connected(self) -> bool:
        return True

    @property
    def retention_s(self) -> float:
        return self._retention_s

    async def publish(self, *messages: BusMessage) -> None:
        for message in messages:
            self._keep(message)
        async with self._arrived:
            self._arrived.notify_all()

    def _keep(self, message: BusMessage) -> None:
        if message.message_id in self._ids:
            return
        self._sequence += 1
        self._messages[self._sequence] = message
        self._ids.add(message.message_id)
        if len(self._messages) > self._messages_max:
            oldest = self._messages.pop(next(iter(self._messages)))
            self._ids.discard(oldest.message_id)

    async def incarnation(self) -> str:
        return str(self._connections)

    async def last_message_id(self, subject: str) -> str | None:
        for message in reversed(self._messages.values()):
            if subject_matches(subject, message.subject):
                return message.message_id
        return None

    async def consumer(self, name: str, *subjects: str, ack_wait_s: float) -> "MemoryConsumer":
        consumer = self._consumers.get(name)
        if consumer is None:
            consumer = self._consumers[name] = MemoryConsumer(self, ack_wait_s)
        consumer.subjects = subjects
        return consumer

    async def hint(self, subject: str) -> None:
        for pattern, on_hint in self._listeners:
            if subject_matches(pattern, subject):
                on_hint(subject)

    async def listen(self, subject: str, on_hint: OnHint) -> None:
        self._listeners.append((subject, on_hint))

    async def close(self) -> None:
        self._listeners.clear()

    def wipe(self) -> None:
        """Lose all messages and the places of all consumers, as a deleted folder does."""
        self._messages.clear()
        self._ids.clear()
        self._sequence = 0
        self._connections += 1
        for consumer in self._consumers.values():
            consumer.reset()

    def now(self) -> float:
        """Seconds on the bus's clock."""
        return self._now()

    def after(self, sequence: int) -> list[tuple[int, BusMessage]]:
        """Messages kept after a sequence number."""
        return [(s, m) for s, m in self._messages.items() if s > sequence]

    async def wait_for_message(self, timeout_s: float) -> None:
        """Wait until something is published, at most `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s), self._arrived:
                await self._arrived.wait()
        except TimeoutError:
            return


class MemoryConsumer:
    """A durable consumer of a `MemoryBus`."""

    def __init__(self, bus: MemoryBus, ack_wait_s: float) -> None:
        self._bus = bus
        self.subjects: tuple[str, ...] = ()
        self._ack_wait_s = ack_wait_s
        self._last = 0
        self._open: dict[int, _Open] = {}

    async def fetch(self, limit: int, timeout_s: float) -> Sequence["MemoryDelivery"]:
        deadline = self._bus.now() + timeout_s
        while True:
            found = self._due(limit)
            left = deadline - self._bus.now()
            if found or left <= 0:
                return found
            due_at = min((entry.due_at for entry in self._open.values()), default=deadline)
            await self._bus.wait_for_message(max(0.001, min(left, due_at - self._bus.now())))

    def reset(self) -> None:
        """Begin again with the first message."""
        self._last = 0
        self._open.clear()

    def settle(self, sequence: int) -> None:
        """A delivery is acknowledged."""
        self._open.pop(sequence, None)

    def delay(self, sequence: int, delay_s: float) -> None:
        """A delivery is refused and comes again after a delay."""
        if sequence in self._open:
            self._open[sequence].due_at = self._bus.now() + delay_s

    def _due(self, limit: int) -> list["MemoryDelivery"]:
        now = self._bus.now()
        for sequence, message in self._bus.after(self._last):
            self._last = sequence
            if any(subject_matches(wanted, message.subject) for wanted in self.subjects):
                self._open[sequence] = _Open(message, now)
        due = [(s, entry) for s, entry in sorted(self._open.items()) if entry.due_at <= now]
        deliveries = []
        for sequence, entry in due[:limit]:
            entry.times += 1
            entry.due_at = now + self._ack_wait_s
            deliveries.append(MemoryDelivery(self, sequence, entry.message, entry.times))
        return deliveries


@dataclass(slots=True)
class _Open:
    """A message that is not acknowledged; handed out from `due_at` on the bus's clock."""

    message: BusMessage
    due_at: float
    times: int = 0


@dataclass(frozen=True, slots=True)
class MemoryDelivery:
    """A delivery of a `MemoryConsumer`."""

    consumer: MemoryConsumer
    sequence: int
    message: BusMessage
    times: int

    async def ack(self) -> None:
        self.consumer.settle(self.sequence)

    async def ack_unsure(self) -> None:
        await self.ack()

    async def nak(self, delay_s: float = 0.0) -> None:
        self.consumer.delay(self.sequence, delay_s)
