"""The port of the bus.

Durable messages are kept in order, deduplicated by id within a window, and redelivered until
acknowledged. A hint reaches whoever listens at the moment, or nobody.

Methods raise `Unavailable` when the bus does not answer within the call's time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

OnHint = Callable[[str], None]
"""Called with the subject of a hint; must not block."""


@dataclass(frozen=True, slots=True)
class BusMessage:
    """A durable message. Two with the same id within the window are one."""

    subject: str
    data: bytes
    message_id: str
    headers: Mapping[str, str] = field(default_factory=dict)


class Delivery(Protocol):
    """A message handed to a consumer, to be acknowledged."""

    @property
    def message(self) -> BusMessage:
        """What was published."""
        ...

    @property
    def times(self) -> int:
        """How often it was handed out, this time included."""
        ...

    async def ack(self) -> None:
        """Settle it and wait until the bus knows."""
        ...

    async def ack_unsure(self) -> None:
        """Settle it without an answer, at a part of the cost: if that is lost, it comes again."""
        ...

    async def nak(self, delay_s: float = 0.0) -> None:
        """Ask for it again, after a delay."""
        ...


class BusConsumer(Protocol):
    """A durable consumer: its place is kept by the bus under its name."""

    async def fetch(self, limit: int, timeout_s: float) -> Sequence[Delivery]:
        """Up to `limit` messages; none when there are none for `timeout_s` seconds."""
        ...


class Bus(Protocol):
    """Publish, consume, hint."""

    @property
    def connections(self) -> int:
        """How often the bus connected: when it rises, what the bus keeps may have changed."""
        ...

    @property
    def connected(self) -> bool:
        """Whether it is there now; hints are neither sent nor heard while it is not."""
        ...

    @property
    def retention_s(self) -> float:
        """How long a message is kept."""
        ...

    async def publish(self, *messages: BusMessage) -> None:
        """Store messages in their order; returns once all are acknowledged."""
        ...

    async def incarnation(self) -> str:
        """What the bus keeps has this name; another one once it was lost and made anew."""
        ...

    async def last_message_id(self, subject: str) -> str | None:
        """The id of the last message kept whose subject matches a pattern; None without one.

        Patterns are those of NATS: `*` is one token, `>` the rest.
        """
        ...

    async def consumer(self, name: str, *subjects: str, ack_wait_s: float) -> BusConsumer:
        """The durable consumer of a name, made when there is none, from the first message on.

        It gets what matches one of the subjects, also when it was made for others. A message that
        is not acknowledged within `ack_wait_s` is handed out again.
        """
        ...

    async def hint(self, subject: str) -> None:
        """Tell whoever listens elsewhere; this bus itself may hear it or not.

        Never raises, never waits for the bus.
        """
        ...

    async def listen(self, subject: str, on_hint: OnHint) -> None:
        """Call `on_hint` for hints whose subject matches, until the bus is closed."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


def subject_matches(pattern: str, subject: str) -> bool:
    """Whether a subject matches a NATS pattern."""
    wanted, found = pattern.split("."), subject.split(".")
    for i, token in enumerate(wanted):
        if token == ">":
            return len(found) > i
        if i >= len(found) or token not in ("*", found[i]):
            return False
    return len(wanted) == len(found)
