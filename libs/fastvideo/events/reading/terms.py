"""What an event is about, as terms such as "request:req_1", "worker:w0" and "type:LoopPrepared".

An event names one request in its metadata, but a batch that several requests shared is about each
of them, and so is a decision about several. Those are read from the payload: its message is parsed
and only the fields that name something are looked at.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from fastvideo.api.events.v1 import events_pb2
from fastvideo.errors import CorruptLog
from fastvideo.events.catalog import UPCASTERS
from fastvideo.events.reading.naming import (
    MODEL,
    NAMING,
    REQUEST,
    SESSION,
    TENANT,
    WORKER,
    collect_terms,
    naming_type,
)
from fastvideo.events.records import StoredEvent
from fastvideo.requests import state as requests
from fastvideo.sessions import state as sessions

__all__ = [
    "MODEL",
    "REQUEST",
    "SESSION",
    "STREAM",
    "TENANT",
    "TYPE",
    "WORKER",
    "envelope_terms",
    "metadata_terms",
    "named_by",
    "term",
    "terms_of",
]

TYPE: Final = "type"
STREAM: Final = "stream"

# An event is about the thing whose stream it is in.
_STREAMS: Final[Mapping[str, str]] = {
    requests.STREAM_PREFIX: REQUEST,
    sessions.STREAM_PREFIX: SESSION,
}

_NAMES: Final[Callable[[Any], tuple[str, ...]]] = attrgetter(*NAMING)


def term(kind: str, name: str) -> str:
    """The term of a thing that an event may be about."""
    return f"{kind}:{name}"


def envelope_terms(type_: str, stream_id: str) -> set[str]:
    """What an event is about by its type and its stream alone."""
    found = {f"{TYPE}:{type_}", f"{STREAM}:{stream_id}"}
    for prefix, kind in _STREAMS.items():
        if stream_id.startswith(prefix):
            found.add(f"{kind}:{stream_id[len(prefix) :]}")
    return found


def metadata_terms(names: Sequence[str]) -> set[str]:
    """What an event is about by the names in its metadata, as `named_by` gives them."""
    return {term(kind, name) for kind, name in zip(NAMING.values(), names, strict=False) if name}


def terms_of(stored: StoredEvent) -> set[str]:
    """Everything that an event is about; of one that cannot be read, what its envelope says."""
    names, terms = named_by(stored)
    return terms | metadata_terms(names) | envelope_terms(stored.type, stored.stream_id)


def named_by(stored: StoredEvent) -> tuple[Sequence[str], set[str]]:
    """What an event's metadata names, in the order of `NAMING`, and the terms of its payload.

    Apart, since of a running request many events have the same metadata but for times. Both are
    empty where nothing can be read.
    """
    names: Sequence[str] = ()
    terms: set[str] = set()
    try:
        names = _NAMES(events_pb2.EventMetadata.FromString(stored.metadata))
        naming = _payloads().get(stored.type)
        if naming is not None:
            payload = UPCASTERS.bring_up(stored.type, stored.schema_version, stored.payload)
            collect_terms(naming.FromString(payload), terms)
    except (CorruptLog, DecodeError):
        return names, terms
    return names, terms


@cache
def _payloads() -> Mapping[str, type[Message]]:
    """By type of event, what reads the names in its payload; absent where it has none."""
    found: dict[str, type[Message]] = {}
    for field in events_pb2.Event.DESCRIPTOR.oneofs_by_name["payload"].fields:
        assert field.message_type is not None
        naming = naming_type(field.message_type)
        if naming is not None:
            found[field.message_type.name] = naming
    return found
