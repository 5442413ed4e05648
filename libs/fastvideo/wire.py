"""The one mapping between frozen dataclasses and protobuf messages.

A dataclass and its message have the same name and the same field names:

| protobuf                          | dataclass                                       |
|-----------------------------------|-------------------------------------------------|
| scalar, string, bytes             | int, float, bool, str, bytes                    |
| enum `UNIT_KIND_VAE_TILE`         | StrEnum member `UnitKind.VAE_TILE` ("vae_tile") |
| message                           | dataclass                                       |
| `google.protobuf.Timestamp`       | aware datetime, UTC                             |
| optional                          | `T | None`                                      |
| repeated                          | `tuple[T, ...]`                                 |
| map                               | `Mapping[str, T]`                               |
| message with one oneof and no more| union of dataclasses                            |
| oneof beside other fields         | a field named as the oneof, a union             |

Converters are built once a type and kept; a type whose fields do not match its message is
refused when it is first used, and a test does that for all of them.
"""

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp

from fastvideo.api.common.v1 import (
    artifact_pb2,
    cache_pb2,
    deployment_pb2,
    explain_pb2,
    model_pb2,
    program_pb2,
    request_pb2,
    session_pb2,
    tensor_pb2,
    transfer_pb2,
    work_pb2,
)
from fastvideo.api.events.v1 import events_pb2, log_pb2, projections_pb2
from fastvideo.api.replay.v1 import replay_pb2
from fastvideo.api.training.v1 import behavior_pb2
from fastvideo.api.worker.v1 import worker_pb2
from fastvideo.errors import ContractViolation, InvalidField

T = TypeVar("T")
R = TypeVar("R")
E = TypeVar("E", bound=StrEnum)

# A worker's commands share simple names with events, so the dataclass's module decides.
_DEFAULT_FILES = (
    artifact_pb2,
    cache_pb2,
    deployment_pb2,
    explain_pb2,
    model_pb2,
    program_pb2,
    request_pb2,
    session_pb2,
    tensor_pb2,
    transfer_pb2,
    work_pb2,
    events_pb2,
    log_pb2,
    projections_pb2,
    behavior_pb2,
    replay_pb2,
    worker_pb2,
)

_Fill = Callable[[Any, Message], None]


def _per_type(make: Callable[[Any], R]) -> Callable[[Any], R]:
    """Make once for each type."""
    return cache(make)


def to_proto(value: Any) -> Any:
    """The message of a dataclass."""
    cls = type(value)
    message = _message_class(cls)()
    _filler(cls)(value, message)
    return message


def enum_from_proto(cls: type[E], descriptor: Any, number: int, field: str) -> E | None:
    """The member of a number that a message's enum has; None for the unspecified one.

    Raises InvalidField naming `field` for a number that the enum does not have.
    """
    members = _enum_members(cls, descriptor)
    if number != 0 and number not in members:
        raise InvalidField(field, number, ", ".join(members.values()))
    return members.get(number)


def fill_proto(value: Any, message: Message) -> None:
    """Write a dataclass into an empty message of its type."""
    _filler(type(value))(value, message)


def from_proto(cls: type[T], message: Message) -> T:
    """The dataclass of a message.

    Raises InvalidField when an enum is unspecified or a required message is absent.
    """
    value: T = _builder(cls)(message)
    return value


def encode(value: Any) -> bytes:
    """Protobuf bytes of a dataclass, deterministic within one library version."""
    data: bytes = to_proto(value).SerializeToString(deterministic=True)
    return data


def decode(cls: type[T], data: bytes) -> T:
    """The dataclass that the bytes hold."""
    return from_proto(cls, _message_class(cls).FromString(data))


@_per_type
def _message_class(cls: Any) -> type[Message]:
    commands = cls.__module__.endswith(".commands")
    for file in (worker_pb2, *_DEFAULT_FILES) if commands else _DEFAULT_FILES:
        descriptor = file.DESCRIPTOR.message_types_by_name.get(cls.__name__)
        if descriptor is not None:
            return GetMessageClass(descriptor)
    raise ContractViolation(f"{cls.__name__} has no message", subject=cls.__name__)


@_per_type
def _fields(cls: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def check(cls: type) -> None:
    """Raise ContractViolation unless the dataclass and its message have the same fields."""
    descriptor = _message_class(cls).DESCRIPTOR
    oneofs = [oneof for oneof in descriptor.oneofs if not _is_synthetic(oneof)]
    inside = {field.name for oneof in oneofs for field in oneof.fields}
    wire = {f.name for f in descriptor.fields if f.name not in inside}
    wire |= {oneof.name for oneof in oneofs}
    if wire != set(_fields(cls)):
        raise ContractViolation(
            f"{cls.__name__} differs from its message in {sorted(wire ^ set(_fields(cls)))}",
            subject=cls.__name__,
        )
    _filler(cls)
    _builder(cls)


def _is_synthetic(oneof: Any) -> bool:
    return len(oneof.fields) == 1 and oneof.name == f"_{oneof.fields[0].name}"


# -- dataclass to message ----------------------------------------------------------------


@_per_type
def _filler(cls: Any) -> _Fill:
    descriptor = _message_class(cls).DESCRIPTOR
    parts = [_field_filler(descriptor, name, hint) for name, hint in _fields(cls).items()]

    def fill(value: Any, message: Message) -> None:
        for part in parts:
            part(value, message)

    return fill


def _field_filler(descriptor: Any, name: str, hint: Any) -> _Fill:
    if name in descriptor.oneofs_by_name:
        return _oneof_filler(name, _members(descriptor.oneofs_by_name[name].fields))
    field = descriptor.fields_by_name[name]
    if _is_map(field):
        return _map_filler(name, field, typing.get_args(hint)[1])
    if field.is_repeated:
        return _repeated_filler(name, field, typing.get_args(hint)[0])
    hint, optional = _strip_none(hint)
    if field.message_type is None:
        return _scalar_filler(name, _scalar_out(field), optional)
    put = _message_put(field.message_type, hint)

    def fill(value: Any, message: Message) -> None:
        inner = getattr(value, name)
        if inner is not None:
            target = getattr(message, name)
            target.SetInParent()
            put(inner, target)

    return fill


def _scalar_filler(name: str, convert: Callable[[Any], Any] | None, optional: bool) -> _Fill:
    def fill(value: Any, message: Message) -> None:
        inner = getattr(value, name)
        if inner is None and optional:
            return
        if inner or optional:  # Zero values are what an absent field means.
            setattr(message, name, convert(inner) if convert else inner)

    return fill


def _oneof_filler(name: str, members: Mapping[str, str]) -> _Fill:
    def fill(value: Any, message: Message) -> None:
        inner = getattr(value, name)
        if inner is not None:
            target = getattr(message, members[type(inner).__name__])
            target.SetInParent()
            _filler(type(inner))(inner, target)

    return fill


def _repeated_filler(name: str, field: Any, hint: Any) -> _Fill:
    if field.message_type is None:
        convert = _scalar_out(field)

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


def _map_filler(name: str, field: Any, hint: Any) -> _Fill:
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


def _message_put(descriptor: Any, hint: Any) -> _Fill:
    if descriptor.full_name == "google.protobuf.Timestamp":
        return _put_timestamp
    if _is_union(hint):
        members = _members(descriptor.oneofs[0].fields)

        def put_union(inner: Any, target: Message) -> None:
            chosen = getattr(target, members[type(inner).__name__])
            chosen.SetInParent()
            _filler(type(inner))(inner, chosen)

        return put_union

    def put(inner: Any, target: Message) -> None:
        _filler(type(inner))(inner, target)

    return put


def _put_timestamp(inner: datetime, target: Message) -> None:
    typing.cast(Timestamp, target).FromDatetime(inner)


def _scalar_out(field: Any) -> Callable[[Any], Any] | None:
    if field.enum_type is None:
        return None
    numbers = {text: number for number, text in _enum_names(field.enum_type).items()}
    return lambda member: numbers[str(member)]


# -- message to dataclass ----------------------------------------------------------------


@_per_type
def _builder(cls: Any) -> Callable[[Message], Any]:
    descriptor = _message_class(cls).DESCRIPTOR
    parts = [(name, _field_builder(descriptor, name, hint)) for name, hint in _fields(cls).items()]

    def build(message: Message) -> Any:
        return cls(**{name: part(message) for name, part in parts})

    return build


def _field_builder(descriptor: Any, name: str, hint: Any) -> Callable[[Message], Any]:
    if name in descriptor.oneofs_by_name:
        return _oneof_builder(descriptor.name, name, typing.get_args(hint))
    field = descriptor.fields_by_name[name]
    if _is_map(field):
        return _map_builder(name, field, typing.get_args(hint)[1])
    if field.is_repeated:
        each = _value_in(field, typing.get_args(hint)[0])
        if each is None:
            return lambda message: tuple(getattr(message, name))
        return lambda message: tuple(map(each, getattr(message, name)))
    hint, optional = _strip_none(hint)
    get = _value_in(field, hint)
    if optional:
        return lambda message: (
            (get(getattr(message, name)) if get else getattr(message, name))
            if message.HasField(name)
            else None
        )
    if field.message_type is not None:
        return _required_builder(descriptor.name, name, typing.cast(Any, get))
    if get is None:
        return lambda message: getattr(message, name)
    return lambda message: get(getattr(message, name))


def _required_builder(owner: str, name: str, get: Callable[[Any], Any]) -> Callable[[Message], Any]:
    def build(message: Message) -> Any:
        if not message.HasField(name):
            raise InvalidField(f"{owner}.{name}", None, "a value", reason="FIELD_REQUIRED")
        return get(getattr(message, name))

    return build


def _oneof_builder(owner: str, name: str, hints: Iterable[Any]) -> Callable[[Message], Any]:
    builders = {hint.__name__: hint for hint in hints if hint is not type(None)}
    optional = type(None) in hints

    def build(message: Message) -> Any:
        chosen = message.WhichOneof(name)
        if chosen is None:
            if optional:
                return None
            allowed = ", ".join(builders)
            raise InvalidField(f"{owner}.{name}", None, f"one of {allowed}")
        inner = getattr(message, chosen)
        return _builder(builders[inner.DESCRIPTOR.name])(inner)

    return build


def _map_builder(name: str, field: Any, hint: Any) -> Callable[[Message], Any]:
    get = _value_in(field.message_type.fields_by_name["value"], hint)
    # Protobuf's order of a map's keys is another one in each process.
    if get is None:
        return lambda message: dict(sorted(getattr(message, name).items()))
    return lambda message: {
        key: get(value) for key, value in sorted(getattr(message, name).items(), key=_first)
    }


def _first(item: tuple[Any, Any]) -> Any:
    return item[0]


def _value_in(field: Any, hint: Any) -> Callable[[Any], Any] | None:
    if field.enum_type is not None:
        return _enum_in(field, hint)
    if field.message_type is None:
        return None
    if field.message_type.full_name == "google.protobuf.Timestamp":
        return _timestamp_in(field)
    if _is_union(hint):
        owner, oneof = field.message_type.name, field.message_type.oneofs[0].name
        return _oneof_builder(owner, oneof, typing.get_args(hint))
    return lambda value: _builder(hint)(value)


def _timestamp_in(field: Any) -> Callable[[Any], datetime]:
    def convert(value: Any) -> datetime:
        try:
            moment: datetime = value.ToDatetime(tzinfo=UTC)
        except (ValueError, OverflowError) as error:
            path = f"{field.containing_type.name}.{field.name}"
            raise InvalidField(path, value.seconds, "a time of the years 1 to 9999") from error
        return moment

    return convert


def _enum_in(field: Any, hint: type[StrEnum]) -> Callable[[int], StrEnum]:
    members = _enum_members(hint, field.enum_type)
    allowed = ", ".join(members.values())

    def convert(number: int) -> StrEnum:
        if number not in members:
            raise InvalidField(f"{field.containing_type.name}.{field.name}", number, allowed)
        return members[number]

    return convert


# -- shapes ------------------------------------------------------------------------------


def _enum_members(cls: type[E], descriptor: Any) -> dict[int, E]:
    """Number to member; the unspecified one is none."""
    return {number: cls(text) for number, text in _enum_names(descriptor).items() if number != 0}


def _enum_names(descriptor: Any) -> dict[int, str]:
    """Number to text, the longest common prefix of the names cut off."""
    zero = descriptor.values_by_number[0].name
    prefix = zero.removesuffix("UNSPECIFIED")
    return {value.number: value.name.removeprefix(prefix).lower() for value in descriptor.values}


def _is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _is_union(hint: Any) -> bool:
    return isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union


def _strip_none(hint: Any) -> tuple[Any, bool]:
    if not _is_union(hint) or type(None) not in typing.get_args(hint):
        return hint, False
    rest = [arg for arg in typing.get_args(hint) if arg is not type(None)]
    if len(rest) == 1:
        return rest[0], True
    return typing.Union[tuple(rest)], True  # noqa: UP007 - built at run time


def _members(fields: Iterable[Any]) -> dict[str, str]:
    """Type name to field name of a oneof's members."""
    return {field.message_type.name: field.name for field in fields}
