"""What an event is about, as terms such as "request:req_1", "worker:w0" and "type:LoopPrepared".

An event names one request in its metadata, but a batch that several requests shared is about each
of them, and so is a decision about several. Those are read from the payload: its message is parsed
and only the fields that name something are looked at.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from google.protobuf.message import DecodeError

from fastvideo.api.events.v1 import events_pb2
from fastvideo.errors import CorruptLog
from fastvideo.events.catalog import UPCASTERS
from fastvideo.events.reading.naming import (
    MODEL,
    REQUEST,
    SESSION,
    TENANT,
    WORKER,
    NamingPlan,
    naming_plan,
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


def terms_of(stored: StoredEvent) -> set[str]:
    """Everything that an event is about; of one that cannot be read, what its envelope says."""
    found = envelope_terms(stored.type, stored.stream_id)
    metadata, payloads = _plans()
    try:
        metadata.collect(metadata.message.FromString(stored.metadata), found)
        plan = payloads.get(stored.type)
        if plan is not None:
            payload = UPCASTERS.bring_up(stored.type, stored.schema_version, stored.payload)
            plan.collect(plan.message.FromString(payload), found)
    except (CorruptLog, DecodeError):
        return found
    return found


@cache
def _plans() -> tuple[NamingPlan, Mapping[str, NamingPlan]]:
    """Of the metadata, and by type of event; a type whose payload names nothing is absent."""
    metadata = naming_plan(events_pb2.EventMetadata.DESCRIPTOR)
    assert metadata is not None
    payloads: dict[str, NamingPlan] = {}
    for field in events_pb2.Event.DESCRIPTOR.oneofs_by_name["payload"].fields:
        assert field.message_type is not None
        plan = naming_plan(field.message_type)
        if plan is not None:
            payloads[field.message_type.name] = plan
    return metadata, payloads
