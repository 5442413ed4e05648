"""An idempotent consumer: every event is handled, and its effect happens once.

Events come from the bus, and only those of the types that it handles. The consumer keeps its own
place in the log, so that a duplicate is recognised, a bus that is away is replaced by the log, and
what lies between two messages is looked for there: rows of other types, and what the bus lost.
The effect of an event and the note that it was handled are one transaction.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, Generic, TypeVar

from fastvideo.bus import Bus, BusConsumer, Delivery
from fastvideo.clock import Clock, SystemClock
from fastvideo.errors import Conflict, CorruptLog, Fenced, Unavailable
from fastvideo.events.leadership import lead
from fastvideo.events.records import (
    AppendCommand,
    AppendResult,
    InboxMark,
    Lease,
    QuarantinedEvent,
    StoredEvent,
)
from fastvideo.events.recovery import append_surely
from fastvideo.events.relay import EVENT_ID_HEADER, EVENT_SUBJECT, BusPosition
from fastvideo.events.store import EventStore
from fastvideo.events.subscription import check_next
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)

E = TypeVar("E")

_ERROR_LENGTH_MAX = 2000


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    """The bounds of a consumer."""

    # How often an event is tried before it is put aside.
    tries_max: int = 5
    # How often an effect is decided anew because others wrote the same stream first; their
    # writing is no fault of the event.
    conflicts_max: int = 100
    retry_s: float = 0.05
    fetch_max: int = 64
    # How long the bus may be silent before the consumer looks into the log itself.
    silence_s: float = 1.0
    ack_wait_s: float = 30.0
    events_per_read_max: int = 500
    lease_ttl_s: float = 5.0
    # Inbox marks older than this are dropped, this often; behind the checkpoint none is needed.
    inbox_keep_s: float = 3600.0
    inbox_prune_s: float = 600.0
    # How often the place is saved; what was handled since is told by the inbox.
    save_every_s: float = 0.25


@dataclass(frozen=True, slots=True)
class ConsumerParts(Generic[E]):
    """What a consumer works with.

    `handle` gets an event and returns the append that is its effect, or None. It may be called
    again for an event whose effect was not committed, never for one whose effect was. Its other
    effects must bear repetition. `decode_message` and `decode_stored` make the same event from a
    message's bytes and from the log.
    """

    # Names the durable consumer, its lease, its inbox and its checkpoint.
    name: str
    store: EventStore
    bus: Bus
    handle: Callable[[E], Awaitable[AppendCommand | None]]
    decode_message: Callable[[bytes], E]
    decode_stored: Callable[[StoredEvent], E]
    # The types to handle; None for all.
    types: frozenset[str] | None = None
    # How to append; by default straight to the store, surviving its restarts.
    append: Callable[[AppendCommand], Awaitable[AppendResult]] | None = None
    limits: ConsumerLimits = field(default_factory=ConsumerLimits)
    clock: Clock = field(default_factory=SystemClock)


async def run_consumer(parts: ConsumerParts[E], holder: str) -> None:
    """Consume while `holder` has the consumer's lease. Endless; ends by cancellation."""
    await lead(
        parts.store,
        f"consumer-{parts.name}",
        holder,
        lambda lease: ConsumerTerm(parts, lease).run(),
        ttl_s=parts.limits.lease_ttl_s,
    )


@dataclass(frozen=True, slots=True)
class _Incoming(Generic[E]):
    """An event on its way to the handler, whichever way it came."""

    partition: int
    offset: int
    event_id: str
    type: str
    decode: Callable[[], E]
    # How often it was handed out before.
    tries: int


class ConsumerTerm(Generic[E]):
    """One term of a consumer, under a lease."""

    def __init__(self, parts: ConsumerParts[E], lease: Lease) -> None:
        self._parts = parts
        self._store = parts.store
        self._lease = lease
        # By partition: the last offset handled, and the one saved as checkpoint.
        self._cursors: dict[int, int] = {}
        self._saved: dict[int, int] = {}
        self._log_epoch = 0
        self._without_bus = False
        self._pruned_at_s = -math.inf
        self._saved_at_s = -math.inf
        # An earlier term may have handled events up to here without saving its place.
        self._doubtful: dict[int, int] = {}

    async def run(self) -> None:
        """Handle events for ever. Raises Fenced when another process has taken over."""
        checkpoint = await self._store.load_checkpoint(self._checkpoint)
        self._log_epoch = await self._store.log_epoch()
        self._doubtful = dict(await self._store.heads())
        self._cursors = {partition: checkpoint.get(partition, 0) for partition in self._doubtful}
        self._saved = dict(self._cursors)
        bus_consumer = await self._parts.bus.consumer(
            self._parts.name, *self._subjects, ack_wait_s=self._parts.limits.ack_wait_s
        )
        while True:
            deliveries = await self._fetch(bus_consumer)
            for delivery in deliveries:
                await self._accept(delivery)
            if not deliveries:
                await self._catch_up_with_heads()
            await self._save(at_once=not deliveries)
            await self._prune()

    @property
    def _subjects(self) -> tuple[str, ...]:
        if self._parts.types is None:
            return (f"{EVENT_SUBJECT}.>",)
        return tuple(f"{EVENT_SUBJECT}.*.{type_}" for type_ in sorted(self._parts.types))

    @property
    def _checkpoint(self) -> str:
        return f"consumer-{self._parts.name}"

    async def _fetch(self, consumer: BusConsumer) -> list[Delivery]:
        limits = self._parts.limits
        try:
            deliveries = list(await consumer.fetch(limits.fetch_max, limits.silence_s))
        except Unavailable as error:
            if not self._without_bus:
                _LOG.warning(
                    "consumer goes on from the log", consumer=self._parts.name, error=str(error)
                )
            self._without_bus = True
            await asyncio.sleep(limits.retry_s)
            return []
        self._without_bus = False
        return deliveries

    async def _accept(self, delivery: Delivery) -> None:
        message = delivery.message
        position = BusPosition.parse(message.message_id)
        # A message of another epoch is of a history that a restored backup has undone.
        if position is not None and position.log_epoch == self._log_epoch:
            await self._catch_up(position.partition, position.offset - 1)
            if position.offset == self._cursors[position.partition] + 1:
                incoming = _Incoming(
                    partition=position.partition,
                    offset=position.offset,
                    event_id=message.headers.get(EVENT_ID_HEADER, ""),
                    type=message.subject.rsplit(".", 1)[-1],
                    decode=lambda: self._parts.decode_message(message.data),
                    tries=delivery.times - 1,
                )
                await self._process(incoming)
        await self._ack(delivery)

    async def _ack(self, delivery: Delivery) -> None:
        # What is passed over leaves no effect behind, so that nothing hangs on the answer.
        is_handled = self._handles(delivery.message.subject.rsplit(".", 1)[-1])
        try:
            await (delivery.ack() if is_handled else delivery.ack_unsure())
        except Unavailable as error:
            # It comes again, and is then recognised by its offset.
            _LOG.info("ack lost", consumer=self._parts.name, error=str(error))

    async def _catch_up_with_heads(self) -> None:
        for partition, head in (await self._store.heads()).items():
            await self._catch_up(partition, head)

    async def _catch_up(self, partition: int, last: int) -> None:
        """Handle from the log what the bus has not brought, up to an offset.

        Mostly it has nothing to bring there: a look at the types of the rows is all.
        """
        limit = self._parts.limits.events_per_read_max
        while (cursor := self._cursors[partition]) < last:
            events = await self._store.read_partition(partition, cursor, min(limit, last - cursor))
            if not events:
                raise CorruptLog(
                    f"partition {partition} ends at {cursor}, the bus says {last}",
                    subject=str(partition),
                )
            for event in events:
                check_next(event, self._cursors[partition])
                await self._process(self._from_log(event))

    def _from_log(self, event: StoredEvent) -> _Incoming[E]:
        return _Incoming(
            partition=event.partition,
            offset=event.offset,
            event_id=event.event_id,
            type=event.type,
            decode=lambda: self._parts.decode_stored(event),
            tries=0,
        )

    async def _process(self, incoming: _Incoming[E]) -> None:
        """Handle an event or put it aside; then the cursor stands on it."""
        if self._handles(incoming.type) and not await self._handled_before(incoming):
            await self._handle(incoming)
        self._cursors[incoming.partition] = incoming.offset

    def _handles(self, event_type: str) -> bool:
        types = self._parts.types
        return types is None or event_type in types

    async def _handled_before(self, incoming: _Incoming[E]) -> bool:
        if incoming.offset > self._doubtful.get(incoming.partition, 0):
            return False
        return await self._store.inbox_seen(self._parts.name, incoming.event_id)

    async def _handle(self, incoming: _Incoming[E]) -> None:
        limits = self._parts.limits
        tries = min(incoming.tries, limits.tries_max - 1)
        conflicts = 0
        while True:
            tries += 1
            try:
                command = await self._parts.handle(incoming.decode())
                if command is not None:
                    await self._append(command, incoming)
            except (Fenced, Unavailable):
                # Not the event's fault: the term ends, and the event is handled in the next.
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the event is put aside
                if isinstance(error, Conflict) and conflicts < limits.conflicts_max:
                    conflicts += 1
                    tries -= 1
                    continue
                _LOG.exception(
                    "event not handled",
                    consumer=self._parts.name,
                    event_id=incoming.event_id,
                    tries=tries,
                )
                if tries >= limits.tries_max:
                    await self._put_aside(incoming, tries, error)
                    return
                await asyncio.sleep(limits.retry_s)
            else:
                return

    async def _append(self, command: AppendCommand, incoming: _Incoming[E]) -> None:
        marked = replace(
            command,
            inbox=InboxMark(self._parts.name, incoming.event_id),
            fence=command.fence or self._lease.fence,
        )
        if self._parts.append is not None:
            await self._parts.append(marked)
        else:
            await append_surely(self._store, marked)

    async def _put_aside(self, incoming: _Incoming[E], tries: int, error: Exception) -> None:
        await self._store.quarantine(
            QuarantinedEvent(
                consumer=self._parts.name,
                event_id=incoming.event_id,
                partition=incoming.partition,
                offset=incoming.offset,
                type=incoming.type,
                attempts=tries,
                error=f"{type(error).__name__}: {error}"[:_ERROR_LENGTH_MAX],
                quarantined_at=self._parts.clock.now(),
            )
        )

    async def _save(self, *, at_once: bool) -> None:
        now_s = self._parts.clock.monotonic_s()
        if not at_once and now_s < self._saved_at_s + self._parts.limits.save_every_s:
            return
        self._saved_at_s = now_s
        for partition, cursor in self._cursors.items():
            if cursor != self._saved[partition]:
                await self._store.save_checkpoint(
                    self._checkpoint, partition, cursor, self._lease.fence
                )
                self._saved[partition] = cursor

    async def _prune(self) -> None:
        """Drop old inbox marks, once no event is left that an earlier term may have handled."""
        limits, clock = self._parts.limits, self._parts.clock
        recent = clock.monotonic_s() < self._pruned_at_s + limits.inbox_prune_s
        if recent or any(self._saved[p] < last for p, last in self._doubtful.items()):
            return
        self._pruned_at_s = clock.monotonic_s()
        # A mark may go only once the saved place is behind its event.
        await self._save(at_once=True)
        before = clock.now() - timedelta(seconds=limits.inbox_keep_s)
        await self._store.forget_inbox(self._parts.name, before)
