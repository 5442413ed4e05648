"""What a dataclass and its message look like: classes, fields, enums, maps and unions."""

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from fastvideo.api.common.v1 import (
    artifact_pb2,
    cache_pb2,
    deployment_pb2,
    explain_pb2,
    model_pb2,
    program_pb2,
    request_pb2,
    session_pb2,
    tenant_pb2,
    tensor_pb2,
    transfer_pb2,
    work_pb2,
)
from fastvideo.api.events.v1 import events_pb2, log_pb2, projections_pb2
from fastvideo.api.replay.v1 import replay_pb2
from fastvideo.api.training.v1 import behavior_pb2
from fastvideo.api.worker.v1 import worker_pb2
from fastvideo.errors import ContractViolation

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
    tenant_pb2,
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


def per_type(make: Callable[[Any], R]) -> Callable[[Any], R]:
    """Make once for each type."""
    return cache(make)


@per_type
def message_class(cls: Any) -> type[Message]:
    # What extends a dataclass by methods is written as that.
    for base in cls.__mro__[:-1]:
        commands = base.__module__.endswith(".commands")
        for file in (worker_pb2, *_DEFAULT_FILES) if commands else _DEFAULT_FILES:
            descriptor = file.DESCRIPTOR.message_types_by_name.get(base.__name__)
            if descriptor is not None:
                return GetMessageClass(descriptor)
    raise ContractViolation(f"{cls.__name__} has no message", subject=cls.__name__)


@per_type
def fields(cls: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def is_synthetic(oneof: Any) -> bool:
    return len(oneof.fields) == 1 and oneof.name == f"_{oneof.fields[0].name}"


def enum_members(cls: type[E], descriptor: Any) -> dict[int, E]:
    """Number to member; the unspecified one is none."""
    return {number: cls(text) for number, text in enum_names(descriptor).items() if number != 0}


def enum_names(descriptor: Any) -> dict[int, str]:
    """Number to text, the longest common prefix of the names cut off."""
    zero = descriptor.values_by_number[0].name
    prefix = zero.removesuffix("UNSPECIFIED")
    return {value.number: value.name.removeprefix(prefix).lower() for value in descriptor.values}


def is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def is_union(hint: Any) -> bool:
    return isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union


def strip_none(hint: Any) -> tuple[Any, bool]:
    if not is_union(hint) or type(None) not in typing.get_args(hint):
        return hint, False
    rest = [arg for arg in typing.get_args(hint) if arg is not type(None)]
    if len(rest) == 1:
        return rest[0], True
    return typing.Union[tuple(rest)], True  # noqa: UP007 - built at run time


def member_fields(fields: Iterable[Any]) -> dict[str, str]:
    """Type name to field name of a oneof's members."""
    return {field.message_type.name: field.name for field in fields}
