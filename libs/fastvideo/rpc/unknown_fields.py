"""Refuse what a message's schema does not name, instead of dropping it silently."""

from collections.abc import Iterator, Mapping, Sequence

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from fastvideo.errors import InvalidField


def refuse_unknown_fields(message: Message) -> None:
    """Raise InvalidField when the message, or any message inside it, has an unknown field.

    The error names the path and the number of the field, such as "sampling.99": an older
    server learns no name from the wire.
    """
    found = next(_unknown(message, ""), None)
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


def _unknown(message: Message, prefix: str) -> Iterator[tuple[str, Message, object]]:
    for unknown in UnknownFieldSet(message):  # type: ignore[attr-defined]
        yield f"{prefix}{unknown.field_number}", message, unknown.data
    for field, value in message.ListFields():
        if field.message_type is not None:
            for key, child in _children(value):
                yield from _unknown(child, f"{prefix}{field.name}{key}.")


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
