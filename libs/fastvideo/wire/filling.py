"""From a dataclass to its message."""

import typing
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

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


@per_type
def filler(cls: Any) -> Fill:
    descriptor = message_class(cls).DESCRIPTOR
    parts = [_field_filler(descriptor, name, hint) for name, hint in fields(cls).items()]

    def fill(value: Any, message: Message) -> None:
        for part in parts:
            part(value, message)

    return fill


def _field_filler(descriptor: Any, name: str, hint: Any) -> Fill:
    if name in descriptor.oneofs_by_name:
        return _oneof_filler(name, member_fields(descriptor.oneofs_by_name[name].fields))
    field = descriptor.fields_by_name[name]
    if is_map(field):
        return _map_filler(name, field, typing.get_args(hint)[1])
    if field.is_repeated:
        return _repeated_filler(name, field, typing.get_args(hint)[0])
    hint, optional = strip_none(hint)
    if field.message_type is None:
        return _scalar_filler(name, scalar_out(field), optional)
    put = _message_put(field.message_type, hint)

    def fill(value: Any, message: Message) -> None:
        inner = getattr(value, name)
        if inner is not None:
            target = getattr(message, name)
            target.SetInParent()
            put(inner, target)

    return fill


def _scalar_filler(name: str, convert: Callable[[Any], Any] | None, optional: bool) -> Fill:
    def fill(value: Any, message: Message) -> None:
        inner = getattr(value, name)
        if inner is None and optional:
            return
        if inner or optional:  # Zero values are what an absent field means.
            setattr(message, name, convert(inner) if convert else inner)

    return fill


def _oneof_filler(name: str, members: Mapping[str, str]) -> Fill:
    def fill(value: Any, message: Message) -> None:
        inner = getattr(value, name)
        if inner is not None:
            target = getattr(message, members[type(inner).__name__])
            target.SetInParent()
            filler(type(inner))(inner, target)

    return fill


def _repeated_filler(name: str, field: Any, hint: Any) -> Fill:
    if field.message_type is None:
        convert = scalar_out(field)

        def fill_scalars(value: Any, message: Message) -> None:
            inner = getattr(value, name)
            if inner:
                getattr(message, name).extend(map(convert, inner) if convert else inner)

        return fill_scalars
    put = _message_put(field.message_type, hint)

    def fill(value: Any, message: Message) -> None:
        target = getattr(message, name)
        for inner in getattr(value, name):
            put(inner, target.add())

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
    typing.cast(Timestamp, target).FromDatetime(inner)


def scalar_out(field: Any) -> Callable[[Any], Any] | None:
    if field.enum_type is None:
        return None
    numbers = {text: number for number, text in enum_names(field.enum_type).items()}
    return lambda member: numbers[str(member)]
