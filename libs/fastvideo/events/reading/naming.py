"""Where in a message names are, and how they are read without the rest.

Of a message only the fields that name something are parsed: a type is made for it that has those
alone, under their numbers. To protobuf everything else is unknown, and it passes over that.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

REQUEST: Final = "request"
SESSION: Final = "session"
MODEL: Final = "model"
WORKER: Final = "worker"
TENANT: Final = "tenant"

# Of the metadata, and of payloads.
_NAMING: Final[Mapping[str, str]] = {
    "request_id": REQUEST,
    "session_id": SESSION,
    "model_id": MODEL,
    "worker_id": WORKER,
    "tenant_id": TENANT,
}
# Parts of a payload that name nothing that the payload does not name elsewhere.
_PASSED_BY: Final = frozenset(
    {"next_plan", "loop_result", "key", "lookup", "spec", "units", "manifest"}
)


class _Name(NamedTuple):
    """A field that names something, of a message or of one inside it: "loop.request_id"."""

    path: str
    get: Callable[[Any], str]
    # What goes before the value in its term.
    prefix: str

    @classmethod
    def at(cls, path: str, prefix: str) -> "_Name":
        return cls(path, attrgetter(path), prefix)


@dataclass(frozen=True, slots=True)
class NamingPlan:
    """Where in a message names are; `message` reads those of its bytes, and nothing else."""

    message: type[Message]
    names: tuple[_Name, ...] = ()
    # Inside of the messages of these fields; what a single one names itself is in `names`.
    single: "tuple[tuple[str, NamingPlan], ...]" = ()
    repeated: "tuple[tuple[str, NamingPlan], ...]" = ()
    # Fields of which one is set: asking which is cheaper than asking each.
    chosen: "tuple[tuple[str, Mapping[str, NamingPlan]], ...]" = ()

    @property
    def is_flat(self) -> bool:
        """Whether all that is named, `names` find."""
        return not (self.single or self.repeated or self.chosen)

    def collect(self, message: Any, found: set[str]) -> None:
        """Add the terms of a message."""
        for _, get, prefix in self.names:
            value = get(message)
            if value:
                found.add(prefix + value)
        for field, plan in self.single:
            plan.collect(getattr(message, field), found)
        for field, plan in self.repeated:
            plan.collect_all(getattr(message, field), found)
        for oneof, plans in self.chosen:
            field = message.WhichOneof(oneof)
            if field in plans:
                plans[field].collect(getattr(message, field), found)

    def collect_all(self, messages: Sequence[Any], found: set[str]) -> None:
        """Add the terms of several messages, which mostly name the same things."""
        if not self.is_flat:
            for message in messages:
                self.collect(message, found)
            return
        for _, get, prefix in self.names:
            found.update(prefix + value for value in set(map(get, messages)) if value)


@cache
def naming_plan(descriptor: Descriptor) -> NamingPlan | None:
    """The plan for a type of message; None when nothing in it names anything."""
    plans: dict[str, NamingPlan] = {}
    names: list[_Name] = []
    single: list[tuple[str, NamingPlan]] = []
    repeated: list[tuple[str, NamingPlan]] = []
    chosen: defaultdict[str, dict[str, NamingPlan]] = defaultdict(dict)
    for field in descriptor.fields:
        if _is_name(field):
            names.append(_Name.at(field.name, f"{_NAMING[field.name]}:"))
        elif _is_inside(field) and (plan := naming_plan(field.message_type)) is not None:
            plans[field.name] = plan
            if field.is_repeated:
                repeated.append((field.name, plan))
            elif field.containing_oneof is not None:
                chosen[field.containing_oneof.name][field.name] = plan
            else:
                names += (_Name.at(f"{field.name}.{n.path}", n.prefix) for n in plan.names)
                if not plan.is_flat:
                    single.append((field.name, replace(plan, names=())))
    if not names and not plans:
        return None
    message = _reduced(descriptor, plans)
    return NamingPlan(message, tuple(names), tuple(single), tuple(repeated), tuple(chosen.items()))


def _reduced(descriptor: Descriptor, inside: Mapping[str, NamingPlan]) -> type[Message]:
    """The type of message with its names and with what of it names something inside."""
    package = "fastvideo.naming"
    reduced = FileDescriptorProto(
        name=f"{descriptor.full_name}.naming", syntax="proto3", package=package
    )
    message = reduced.message_type.add(name=descriptor.full_name.replace(".", "_"))
    oneofs: dict[str, int] = {}
    for field in descriptor.fields:
        plan = inside.get(field.name)
        if plan is None and not _is_name(field):
            continue
        kept = message.field.add(
            name=field.name,
            number=field.number,
            type=field.type,
            label=FieldDescriptorProto.LABEL_OPTIONAL,
        )
        if plan is None:
            continue
        kept.type_name = f".{plan.message.DESCRIPTOR.full_name}"
        if field.is_repeated:
            kept.label = FieldDescriptorProto.LABEL_REPEATED
        elif field.containing_oneof is not None:
            name = field.containing_oneof.name
            kept.oneof_index = oneofs.setdefault(name, len(oneofs))
        if plan.message.DESCRIPTOR.file.name not in reduced.dependency:
            reduced.dependency.append(plan.message.DESCRIPTOR.file.name)
    for name in oneofs:
        message.oneof_decl.add(name=name)
    pool = _pool()
    pool.Add(reduced)
    return GetMessageClass(pool.FindMessageTypeByName(f"{package}.{message.name}"))


@cache
def _pool() -> DescriptorPool:
    return DescriptorPool()


def _is_name(field: Any) -> bool:
    return field.name in _NAMING and field.message_type is None and not field.is_repeated


def _is_inside(field: Any) -> bool:
    """Whether a field holds messages that may name something."""
    message = field.message_type
    return (
        message is not None
        and not message.GetOptions().map_entry
        and field.name not in _PASSED_BY
        and message.full_name.startswith("fastvideo.")
    )
