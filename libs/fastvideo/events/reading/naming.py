"""Where in a message names are, and how they are read without the rest.

Of a message only the fields that name something are parsed: a type is made for it that has those
alone, under their numbers. To protobuf everything else is unknown, and it passes over that.

In such a type a name may occur many times and a message inside only once, whatever they do in the
real one: on the wire that is the same, and protobuf merges messages that come for one field. So
what all results of a batch name comes in one list.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

REQUEST: Final = "request"
SESSION: Final = "session"
MODEL: Final = "model"
WORKER: Final = "worker"
TENANT: Final = "tenant"

NAMING: Final[Mapping[str, str]] = {
    "request_id": REQUEST,
    "session_id": SESSION,
    "model_id": MODEL,
    "worker_id": WORKER,
    "tenant_id": TENANT,
}
"""Field of the metadata, and of payloads, to what it names."""
# Parts of a payload that name nothing that the payload does not name elsewhere.
_PASSED_BY: Final = frozenset(
    {"next_plan", "loop_result", "key", "lookup", "spec", "units", "manifest"}
)

_PACKAGE: Final = "fastvideo.naming"


@cache
def naming_type(descriptor: Descriptor) -> type[Message] | None:
    """The type that reads what a type of message names; None when nothing in it does."""
    reduced = FileDescriptorProto(
        name=f"{descriptor.full_name}.naming", syntax="proto3", package=_PACKAGE
    )
    message = reduced.message_type.add(name=descriptor.full_name.replace(".", "_"))
    for field in descriptor.fields:
        if _is_name(field):
            message.field.add(
                name=field.name,
                number=field.number,
                type=field.type,
                label=FieldDescriptorProto.LABEL_REPEATED,
            )
        elif _is_inside(field) and (inside := naming_type(field.message_type)) is not None:
            message.field.add(
                name=field.name,
                number=field.number,
                type=field.type,
                type_name=f".{inside.DESCRIPTOR.full_name}",
                label=FieldDescriptorProto.LABEL_OPTIONAL,
            )
            if inside.DESCRIPTOR.file.name not in reduced.dependency:
                reduced.dependency.append(inside.DESCRIPTOR.file.name)
    if not message.field:
        return None
    pool = _pool()
    pool.Add(reduced)
    return GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{message.name}"))


def collect_terms(message: Message, found: set[str]) -> None:
    """Add the terms of what is named in a message of a naming type."""
    for field, value in message.ListFields():
        prefix = _prefix(field)
        if prefix is None:
            collect_terms(value, found)
        else:
            # The results of a batch mostly name the same request.
            for name in value if len(value) == 1 else set(value):
                if name:
                    found.add(prefix + name)


@cache
def _prefix(field: FieldDescriptor) -> str | None:
    """What goes before a field's values in their terms; None for a message inside."""
    return None if field.message_type is not None else f"{NAMING[field.name]}:"


@cache
def _pool() -> DescriptorPool:
    return DescriptorPool()


def _is_name(field: Any) -> bool:
    return field.name in NAMING and field.message_type is None and not field.is_repeated


def _is_inside(field: Any) -> bool:
    """Whether a field holds messages that may name something."""
    message = field.message_type
    return (
        message is not None
        and not message.GetOptions().map_entry
        and field.name not in _PASSED_BY
        and message.full_name.startswith("fastvideo.")
    )
