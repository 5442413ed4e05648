"""From a dataclass to its message.

As in `building`, the function of a class is written out field by field and compiled once.
"""

import typing
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from fastvideo.wire.shapes import (
    enum_names,
    fields,
    is_map,
    is_union,
    member_fields,
    message_class,
    per_type,
    strip_none,
)

Fill = Callable[[Any, Message], None]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@per_type
def filler(cls: Any) -> Fill:
    """The function that writes a dataclass into a message, written out field by field."""
    descriptor = message_class(cls).DESCRIPTOR
    # What the written function refers to, by name.
    scope: dict[str, Any] = {}
    lines = ["def fill(v, m):", "    pass"]
    for name, hint in fields(cls).items():
        lines += (f"    {line}" for line in _statements(descriptor, name, hint, scope))
    exec(compile("\n".join(lines), f"<wire {cls.__name__}>", "exec"), scope)
    fill: Fill = scope["fill"]
    return fill


def _statements(descriptor: Any, name: str, hint: Any, scope: dict[str, Any]) -> list[str]:
    """What writes a field of `v` into the message `m`; what it needs goes into the scope."""
    put = f"put_{name}"
    if name in descriptor.oneofs_by_name:
        scope[put] = _oneof_filler(name, member_fields(descriptor.oneofs_by_name[name].fields))
        return [f"{put}(v, m)"]
    field = descriptor.fields_by_name[name]
    if is_map(field):
        scope[put] = _map_filler(name, field, typing.get_args(hint)[1])
        return [f"{put}(v, m)"]
    if field.message_type is not None:
        if field.is_repeated:
            scope[put] = _message_put(field.message_type, typing.get_args(hint)[0])
            return [f"t = m.{name}", f"for x in v.{name}: {put}(x, t.add())"]
        scope[put] = _message_put(field.message_type, strip_none(hint)[0])
        return [
            f"if (x := v.{name}) is not None:",
            f"    t = m.{name}; t.SetInParent(); {put}(x, t)",
        ]
    scope[put] = convert = scalar_out(field)
    if field.is_repeated:
        values = "x" if convert is None else f"map({put}, x)"
        return [f"if x := v.{name}: m.{name}.extend({values})"]
    value = "x" if convert is None else f"{put}(x)"
    if strip_none(hint)[1]:
        return [f"if (x := v.{name}) is not None: m.{name} = {value}"]
    # Zero values are what an absent field means.
    return [f"if x := v.{name}: m.{name} = {value}"]


def _oneof_filler(name: str, members: Mapping[str, str]) -> Fill:
    def fill(value: Any, message: Message) -> None:
        inner = getattr(value, name)
        if inner is not None:
            target = getattr(message, members[type(inner).__name__])
            target.SetInParent()
            filler(type(inner))(inner, target)

    return fill


def _map_filler(name: str, field: Any, hint: Any) -> Fill:
    value_field = field.message_type.fields_by_name["value"]
    if value_field.message_type is None:

        def fill_scalars(value: Any, message: Message) -> None:
            inner = getattr(value, name)
            if inner:
                getattr(message, name).update(inner)

        return fill_scalars
    put = _message_put(value_field.message_type, hint)

    def fill(value: Any, message: Message) -> None:
        target = getattr(message, name)
        for key, inner in getattr(value, name).items():
            put(inner, target[key])

    return fill


def _message_put(descriptor: Any, hint: Any) -> Fill:
    if descriptor.full_name == "google.protobuf.Timestamp":
        return _put_timestamp
    if is_union(hint):
        members = member_fields(descriptor.oneofs[0].fields)

        def put_union(inner: Any, target: Message) -> None:
            chosen = getattr(target, members[type(inner).__name__])
            chosen.SetInParent()
            filler(type(inner))(inner, chosen)

        return put_union

    def put(inner: Any, target: Message) -> None:
        filler(type(inner))(inner, target)

    return put


def _put_timestamp(inner: datetime, target: Message) -> None:
    moment = typing.cast(Timestamp, target)
    if inner.tzinfo is None:
        moment.FromDatetime(inner)
        return
    since = inner - _EPOCH
    moment.seconds = since.days * 86_400 + since.seconds
    moment.nanos = since.microseconds * 1_000


def scalar_out(field: Any) -> Callable[[Any], Any] | None:
    if field.enum_type is None:
        return None
    return {text: number for number, text in enum_names(field.enum_type).items()}.__getitem__
