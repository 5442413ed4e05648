"""Refuse what a message's schema does not name, instead of dropping it silently."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Final

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from fastvideo.errors import InvalidField

MESSAGES_MAX: Final = 10_000
"""Messages inside a message: millions of empty ones fit in a few megabytes."""

_LARGE_BYTES: Final = 65_536


def refuse_unknown_fields(message: Message) -> None:
    """Raise InvalidField when the message, or any message inside it, has an unknown field.

    The error names the path and the number of the field, such as "sampling.99": an older
    server learns no name from the wire. A message with too many others inside is refused as
    well, before it costs anything.
    """
    _refuse_many(message)
    found = next(_unknown(message, "", count()), None)
    if found is None:
        return
    path, holder, value = found
    names = ", ".join(field.name for field in holder.DESCRIPTOR.fields) or "none"
    raise InvalidField(
        path,
        value,
        f"the fields of {holder.DESCRIPTOR.full_name}: {names}",
        reason="UNKNOWN_FIELD",
    )


def _refuse_many(message: Message) -> None:
    """Refuse a flood of unknown fields by their size; to look at each would take seconds."""
    size = message.ByteSize()
    if size <= _LARGE_BYTES:
        return
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    unknown = size - known.ByteSize()
    if unknown > _LARGE_BYTES:
        raise InvalidField(
            "message",
            f"{unknown} bytes of unknown fields",
            f"the fields of {message.DESCRIPTOR.full_name}",
            reason="UNKNOWN_FIELD",
        )


def _unknown(
    message: Message, prefix: str, seen: Iterator[int]
) -> Iterator[tuple[str, Message, object]]:
    if next(seen) > MESSAGES_MAX:
        path = prefix.rstrip(".")
        raise InvalidField(path, "one too many", f"at most {MESSAGES_MAX} messages inside another")
    for unknown in UnknownFieldSet(message):  # type: ignore[attr-defined]
        yield f"{prefix}{unknown.field_number}", message, unknown.data
    for field, value in message.ListFields():
        if field.message_type is not None:
            for key, child in _children(value):
                yield from _unknown(child, f"{prefix}{field.name}{key}.", seen)


def _children(value: object) -> Iterator[tuple[str, Message]]:
    """The messages of a message field's value: one, a list of them, or a map."""
    if isinstance(value, Message):
        yield "", value
    elif isinstance(value, Mapping):
        for key, child in value.items():
            # A map of scalars holds no message that could have unknown fields.
            if isinstance(child, Message):
                yield f"[{key}]", child
    elif isinstance(value, Sequence):
        for index, child in enumerate(value):
            yield f"[{index}]", child
