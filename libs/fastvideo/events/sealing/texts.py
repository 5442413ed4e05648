"""Where in an event's message stand texts that a tenant wrote.

An event type that gets such a text belongs here: what is not here stands in the log as it is.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from fastvideo.api.events.v1 import events_pb2

M = TypeVar("M", bound=Message)


class TextSlot(Protocol):
    """A text of a message, to be read and replaced."""

    def get(self) -> str: ...

    def set(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class _Field:
    message: Message
    name: str

    def get(self) -> str:
        text: str = getattr(self.message, self.name)
        return text

    def set(self, text: str) -> None:
        setattr(self.message, self.name, text)


@dataclass(frozen=True, slots=True)
class SealedType(Generic[M]):
    """An event type with texts of tenants; its message has a field `sealed`."""

    message: type[M]
    slots: Callable[[M], Iterator[TextSlot]]


def _of_request(message: events_pb2.RequestAccepted) -> Iterator[TextSlot]:
    for part in message.spec.inputs:
        if part.HasField("text"):
            yield _Field(part.text, "text")


def _of_new_session(message: events_pb2.SessionCreated) -> Iterator[TextSlot]:
    for entry in message.state.prompt_memory:
        yield _Field(entry, "prompt")
    for pushed in message.state.context_texts:
        yield _Field(pushed, "text")


def _of_session(message: events_pb2.SessionUpdated) -> Iterator[TextSlot]:
    if message.HasField("remembered"):
        yield _Field(message.remembered, "prompt")


def _of_push(message: events_pb2.SessionTextPushed) -> Iterator[TextSlot]:
    yield _Field(message.pushed, "text")


SEALED_TYPES: Final[Mapping[str, SealedType]] = {  # type: ignore[type-arg]
    "RequestAccepted": SealedType(events_pb2.RequestAccepted, _of_request),
    "SessionCreated": SealedType(events_pb2.SessionCreated, _of_new_session),
    "SessionUpdated": SealedType(events_pb2.SessionUpdated, _of_session),
    "SessionTextPushed": SealedType(events_pb2.SessionTextPushed, _of_push),
}
"""By the name of the event's type."""


def size_without_texts(type_: str, payload: bytes) -> int:
    """The length of a payload, but for the texts of its tenant and their seal: the same before
    and after they are erased. Never raises: what is not of its type counts as it is."""
    sealed_type = SEALED_TYPES.get(type_)
    if sealed_type is None:
        return len(payload)
    try:
        message = sealed_type.message.FromString(payload)
    except DecodeError:
        return len(payload)
    for slot in sealed_type.slots(message):
        slot.set("")
    message.ClearField("sealed")
    return int(message.ByteSize())
