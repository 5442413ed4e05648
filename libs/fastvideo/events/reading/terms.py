"""What an event is about, as terms such as "request:req_1", "worker:w0" and "type:LoopPrepared".

An event names one request in its metadata, but a batch that several requests shared is about each
of them, and so is a decision about several. Those are read from the payload: its message is parsed
and only the fields that name something are looked at.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from fastvideo.api.events.v1 import events_pb2
from fastvideo.errors import CorruptLog
from fastvideo.events.catalog import UPCASTERS
from fastvideo.events.records import StoredEvent
from fastvideo.requests import state as requests
from fastvideo.sessions import state as sessions

REQUEST: Final = "request"
SESSION: Final = "session"
MODEL: Final = "model"
WORKER: Final = "worker"
TENANT: Final = "tenant"
TYPE: Final = "type"
STREAM: Final = "stream"

# Of the metadata, and of payloads.
_NAMING: Final[Mapping[str, str]] = {
    "request_id": REQUEST,
    "session_id": SESSION,
    "model_id": MODEL,
    "worker_id": WORKER,
    "tenant_id": TENANT,
}
_NAMED: Final = tuple((name, f"{kind}:") for name, kind in _NAMING.items())
# An event is about the thing whose stream it is in.
_STREAMS: Final[Mapping[str, str]] = {
    requests.STREAM_PREFIX: REQUEST,
    sessions.STREAM_PREFIX: SESSION,
}
# Parts of a payload that name nothing that the payload does not name elsewhere.
_PASSED_BY: Final = frozenset(
    {"next_plan", "loop_result", "key", "lookup", "spec", "units", "manifest"}
)


def term(kind: str, name: str) -> str:
    """The term of a thing that an event may be about."""
    return f"{kind}:{name}"


def envelope_terms(type_: str, stream_id: str) -> set[str]:
    """What an event is about by its type and its stream alone."""
    found = {term(TYPE, type_), term(STREAM, stream_id)}
    for prefix, kind in _STREAMS.items():
        if stream_id.startswith(prefix):
            found.add(term(kind, stream_id.removeprefix(prefix)))
    return found


def terms_of(stored: StoredEvent) -> frozenset[str]:
    """Everything that an event is about; of one that cannot be read, what its envelope says."""
    found = envelope_terms(stored.type, stored.stream_id)
    try:
        metadata = events_pb2.EventMetadata.FromString(stored.metadata)
    except DecodeError:
        return frozenset(found)
    for name, prefix in _NAMED:
        value = getattr(metadata, name)
        if value:
            found.add(prefix + value)
    plan = _plans().get(stored.type)
    if plan is not None:
        try:
            payload = UPCASTERS.bring_up(stored.type, stored.schema_version, stored.payload)
            plan.collect(plan.message.FromString(payload), found)
        except (CorruptLog, DecodeError):
            return frozenset(found)
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where in a message names are: in fields of its own, and in those of messages inside it."""

    message: type[Message]
    # Field, and what goes before its value in a term.
    names: tuple[tuple[str, str], ...]
    # Fields that hold one message, and those that hold several.
    single: "tuple[tuple[str, _Plan], ...]"
    repeated: "tuple[tuple[str, _Plan], ...]"
    # Fields of which one is set: asking which is cheaper than asking each.
    chosen: "tuple[tuple[str, Mapping[str, _Plan]], ...]"

    def collect(self, message: Any, found: set[str]) -> None:
        """Add the terms of a message."""
        for name, prefix in self.names:
            value = getattr(message, name)
            if value:
                found.add(prefix + value)
        for name, plan in self.single:
            if message.HasField(name):
                plan.collect(getattr(message, name), found)
        for name, plan in self.repeated:
            for inner in getattr(message, name):
                plan.collect(inner, found)
        for oneof, plans in self.chosen:
            name = message.WhichOneof(oneof)
            if name in plans:
                plans[name].collect(getattr(message, name), found)


@cache
def _plans() -> dict[str, _Plan]:
    """By type of event; a type whose payload names nothing is absent."""
    oneof = events_pb2.Event.DESCRIPTOR.oneofs_by_name["payload"]
    plans: dict[str, _Plan] = {}
    for field in oneof.fields:
        assert field.message_type is not None
        plan = _plan(field.message_type)
        if plan is not None:
            plans[field.message_type.name] = plan
    return plans


@cache
def _plan(descriptor: Descriptor) -> _Plan | None:
    names: list[tuple[str, str]] = []
    single: list[tuple[str, _Plan]] = []
    repeated: list[tuple[str, _Plan]] = []
    chosen: defaultdict[str, dict[str, _Plan]] = defaultdict(dict)
    for field in descriptor.fields:
        if field.name in _NAMING and field.message_type is None and not field.is_repeated:
            names.append((field.name, f"{_NAMING[field.name]}:"))
        elif _is_inside(field) and (plan := _plan(field.message_type)) is not None:
            if field.is_repeated:
                repeated.append((field.name, plan))
            elif field.containing_oneof is not None:
                chosen[field.containing_oneof.name][field.name] = plan
            else:
                single.append((field.name, plan))
    if not (names or single or repeated or chosen):
        return None
    return _Plan(
        GetMessageClass(descriptor),
        tuple(names),
        tuple(single),
        tuple(repeated),
        tuple(chosen.items()),
    )


def _is_inside(field: Any) -> bool:
    """Whether a field holds messages that may name something."""
    message = field.message_type
    return (
        message is not None
        and not message.GetOptions().map_entry
        and field.name not in _PASSED_BY
        and message.full_name.startswith("fastvideo.")
    )
