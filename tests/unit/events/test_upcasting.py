"""Old events read as new ones, without a gap."""

from datetime import UTC, datetime

import pytest

from fastvideo.errors import ContractViolation, CorruptLog
from fastvideo.events.catalog import (
    PAYLOADS,
    UNREADABLE,
    UPCASTERS,
    decode_from_bus,
    encode_for_bus,
    event_of,
    is_unknown,
    message_of,
    metadata_of,
    new_event,
    payload_of,
)
from fastvideo.events.records import StoredEvent, payload_digest
from fastvideo.events.types import EventMetadata
from fastvideo.events.upcasting import Upcast, Upcasters
from fastvideo.events.views import event_for_view
from fastvideo.requests.events import RequestQueued

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def stored(**changes: object) -> StoredEvent:
    event = new_event("evt_1", RequestQueued(position=3), EventMetadata(occurred_at=NOW))
    whole = StoredEvent(
        partition=0,
        offset=7,
        stream_id="request-req_1",
        stream_version=2,
        event_id=event.event_id,
        type=event.type,
        schema_version=event.schema_version,
        payload=event.payload,
        payload_sha256=payload_digest(event.payload),
        metadata=event.metadata,
        fence_epoch=0,
        recorded_at=NOW,
        log_epoch=1,
    )
    return whole._replace(**changes)  # type: ignore[arg-type]


def test_a_chain_brings_every_released_version_to_todays() -> None:
    chain = Upcasters(
        {"A", "B"},
        [Upcast("A", 2, lambda data: data + b"3"), Upcast("A", 1, lambda data: data + b"2")],
    )
    assert chain.versions == {"A": 3, "B": 1}
    assert chain.bring_up("A", 1, b"1") == b"123"
    assert chain.bring_up("A", 2, b"x") == b"x3"
    assert chain.bring_up("A", 3, b"x") == b"x"
    assert chain.bring_up("B", 1, b"x") == b"x"


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([2], "a step from 2 where 1 is next"),
        ([1, 3], "a step from 3 where 2 is next"),
        ([1, 1], "a step from 1 where 2 is next"),
        ([0], "a step from 0 where 1 is next"),
    ],
)
def test_a_chain_with_a_gap_is_refused(steps: list[int], message: str) -> None:
    with pytest.raises(ContractViolation, match=message):
        Upcasters({"A"}, [Upcast("A", step, lambda data: data) for step in steps])


def test_a_step_for_nothing_is_refused() -> None:
    with pytest.raises(ContractViolation, match="B, which nobody knows"):
        Upcasters({"A"}, [Upcast("B", 1, lambda data: data)])


@pytest.mark.parametrize(
    ("type_", "version", "unknown"),
    [("A", 2, True), ("B", 1, True), ("A", 0, False), ("A", -1, False)],
)
def test_what_a_newer_program_wrote_is_told_from_what_nobody_wrote(
    type_: str, version: int, unknown: bool
) -> None:
    with pytest.raises(CorruptLog) as caught:
        Upcasters({"A"}).bring_up(type_, version, b"")
    assert is_unknown(caught.value) is unknown


def test_the_catalogs_chain_is_whole() -> None:
    assert UPCASTERS.versions.keys() == PAYLOADS.keys()


@pytest.mark.parametrize("changes", [{"type": "RequestPaused"}, {"schema_version": 9}])
def test_a_decider_halts_and_a_view_passes_over(changes: dict[str, object]) -> None:
    event = stored(**changes)
    with pytest.raises(CorruptLog) as caught:
        payload_of(event)
    assert is_unknown(caught.value)
    assert event_for_view(event, "test") is None
    assert event_for_view(stored(), "test") is not None


def test_the_bus_carries_what_the_relay_cannot_read() -> None:
    event = stored(type="RequestPaused")
    message = message_of(event)
    assert (message.offset, message.type, message.WhichOneof("payload")) == (
        7,
        "RequestPaused",
        None,
    )
    with pytest.raises(CorruptLog) as caught:
        decode_from_bus(encode_for_bus(event))
    assert is_unknown(caught.value)
    assert decode_from_bus(encode_for_bus(stored())).payload == RequestQueued(position=3)


def test_metadata_that_cannot_be_read_is_a_fault_of_the_log() -> None:
    for read in (metadata_of, event_of):
        with pytest.raises(CorruptLog) as caught:
            read(stored(metadata=b"\xff"))
        assert caught.value.reason == UNREADABLE
