"""Every event type that can carry a text of a tenant is one that is sealed."""

from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor

from fastvideo.api.events.v1 import events_pb2
from fastvideo.events.sealing.texts import SEALED_TYPES, size_without_texts
from tests.contract.sealed_texts import accepted

# Messages that hold what a tenant wrote.
WRITTEN_BY_TENANTS = {
    "fastvideo.common.v1.TextPart",
    "fastvideo.common.v1.PromptMemoryEntry",
    "fastvideo.common.v1.PushedText",
}


def reachable(message: Descriptor, seen: set[str]) -> Iterator[str]:
    """Full names of a message and of all that it may hold."""
    if message.full_name in seen:
        return
    seen.add(message.full_name)
    yield message.full_name
    for field in message.fields:
        if field.message_type is not None:
            yield from reachable(field.message_type, seen)


def test_every_event_type_with_a_text_of_a_tenant_is_sealed() -> None:
    payloads = [
        field.message_type
        for field in events_pb2.Event.DESCRIPTOR.oneofs_by_name["payload"].fields
        if field.message_type is not None
    ]
    with_texts = {
        message.name for message in payloads if WRITTEN_BY_TENANTS & set(reachable(message, set()))
    }
    assert with_texts == set(SEALED_TYPES)


def test_the_size_without_texts_is_that_of_an_erased_event() -> None:
    written, erased = accepted("acme", "a long text"), accepted("acme", "")
    assert len(written.payload) > len(erased.payload)
    assert size_without_texts(written.type, written.payload) == len(erased.payload)
    assert size_without_texts(written.type, erased.payload) == len(erased.payload)
    assert size_without_texts("ThingHappened", b"abc") == 3
    assert size_without_texts(written.type, b"\xff") == 1


def test_a_sealed_type_has_a_place_for_its_seal() -> None:
    for sealed in SEALED_TYPES.values():
        assert "sealed" in sealed.message.DESCRIPTOR.fields_by_name
