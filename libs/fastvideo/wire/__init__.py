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

from enum import StrEnum
from typing import Any, TypeVar

from google.protobuf.message import Message

from fastvideo.errors import ContractViolation, InvalidField
from fastvideo.wire.building import builder
from fastvideo.wire.filling import filler
from fastvideo.wire.shapes import enum_members, fields, is_synthetic, message_class

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


def to_proto(value: Any) -> Any:
    """The message of a dataclass."""
    cls = type(value)
    message = message_class(cls)()
    filler(cls)(value, message)
    return message


def enum_from_proto(cls: type[E], descriptor: Any, number: int, field: str) -> E | None:
    """The member of a number that a message's enum has; None for the unspecified one.

    Raises InvalidField naming `field` for a number that the enum does not have.
    """
    members = enum_members(cls, descriptor)
    if number != 0 and number not in members:
        raise InvalidField(field, number, ", ".join(members.values()))
    return members.get(number)


def fill_proto(value: Any, message: Message) -> None:
    """Write a dataclass into an empty message of its type."""
    filler(type(value))(value, message)


def from_proto(cls: type[T], message: Message) -> T:
    """The dataclass of a message.

    Raises InvalidField when an enum is unspecified or a required message is absent.
    """
    value: T = builder(cls)(message)
    return value


def encode(value: Any) -> bytes:
    """Protobuf bytes of a dataclass, deterministic within one library version."""
    data: bytes = to_proto(value).SerializeToString(deterministic=True)
    return data


def decode(cls: type[T], data: bytes) -> T:
    """The dataclass that the bytes hold."""
    return from_proto(cls, message_class(cls).FromString(data))


def check(cls: type) -> None:
    """Raise ContractViolation unless the dataclass and its message have the same fields."""
    descriptor = message_class(cls).DESCRIPTOR
    oneofs = [oneof for oneof in descriptor.oneofs if not is_synthetic(oneof)]
    inside = {field.name for oneof in oneofs for field in oneof.fields}
    wire = {f.name for f in descriptor.fields if f.name not in inside}
    wire |= {oneof.name for oneof in oneofs}
    if wire != set(fields(cls)):
        raise ContractViolation(
            f"{cls.__name__} differs from its message in {sorted(wire ^ set(fields(cls)))}",
            subject=cls.__name__,
        )
    filler(cls)
    builder(cls)
