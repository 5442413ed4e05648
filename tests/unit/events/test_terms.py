"""What events are about: by their metadata, their stream, and the names in their payloads."""

from datetime import UTC, datetime

import pytest

from fastvideo.errors import InvalidField
from fastvideo.events.catalog import NAMES, new_event
from fastvideo.events.reading.filters import VALUES_MAX, EventFilter, Matcher, types_named
from fastvideo.events.reading.terms import terms_of
from fastvideo.events.records import StoredEvent, payload_digest
from fastvideo.events.types import EventMetadata, EventPayload
from fastvideo.requests.events import RequestProgressed
from fastvideo.scheduling.events import (
    BatchExecuted,
    DeferLoop,
    DispatchBatch,
    QueueRequest,
    SchedulerDecided,
)
from fastvideo.scheduling.traces import NonFiniteFound
from fastvideo.scheduling.work import LoopRef, StepRange, StepResult, UnitKind
from fastvideo.sessions.events import SessionUpdated

AT = datetime(2026, 1, 2, tzinfo=UTC)


def stored(payload: EventPayload, stream_id: str = "scheduler-0", **about: str) -> StoredEvent:
    metadata = EventMetadata(occurred_at=AT, **about)  # type: ignore[arg-type]
    event = new_event("evt_1", payload, metadata)
    return StoredEvent(
        partition=0,
        offset=1,
        stream_id=stream_id,
        stream_version=1,
        event_id=event.event_id,
        type=event.type,
        schema_version=event.schema_version,
        payload=event.payload,
        payload_sha256=payload_digest(event.payload),
        metadata=event.metadata,
        fence_epoch=0,
        recorded_at=AT,
        log_epoch=1,
    )


def result(request_id: str) -> StepResult:
    return StepResult(
        unit_id="u",
        loop=LoopRef(request_id=request_id, node_id="denoise", attempt=1),
        step_range=StepRange(start=0, stop=1, total=2),
    )


def check(event: StoredEvent, *expected: str) -> None:
    """The event is about these, beside its type and stream."""
    own = {f"type:{event.type}", f"stream:{event.stream_id}"}
    assert terms_of(event) == own | set(expected)


def test_metadata_and_stream_say_what_an_event_is_about() -> None:
    about = {"request_id": "r1", "session_id": "s1", "model_id": "m", "tenant_id": "t"}
    check(
        stored(RequestProgressed(), "request-r1", **about),
        "request:r1",
        "session:s1",
        "model:m",
        "tenant:t",
    )
    check(stored(RequestProgressed(), "request-r2"), "request:r2")
    check(
        stored(SessionUpdated(session_id="s1", request_id="r3"), "session-s1"),
        "session:s1",
        "request:r3",
    )


def test_a_shared_batch_is_about_each_of_its_requests() -> None:
    batch = BatchExecuted(
        worker_id="w1",
        batch_id="b",
        kind=UnitKind.DIFFUSION_STEP,
        results=(result("r1"), result("r2"), result("r1")),
    )
    check(stored(batch), "worker:w1", "request:r1", "request:r2")


def test_decisions_are_about_each_request_that_they_name() -> None:
    decided = SchedulerDecided(
        at=AT,
        decisions=(
            QueueRequest(request_id="r1", position=1, reason=""),
            DeferLoop(loop=LoopRef(request_id="r2", node_id="n", attempt=1), reason=""),
            DispatchBatch(
                worker_id="w2",
                batch_id="b",
                kind=UnitKind.DIFFUSION_STEP,
                loops=(LoopRef(request_id="r3", node_id="n", attempt=1),),
            ),
        ),
    )
    check(stored(decided), "request:r1", "request:r2", "request:r3", "worker:w2")


def test_what_cannot_be_read_is_about_what_its_envelope_says() -> None:
    broken = stored(RequestProgressed(), request_id="r1")
    for type_ in ("ThingHappened", "BatchExecuted"):
        event = broken._replace(type=type_, payload=b"\xff")
        check(event, "request:r1")


def test_types_have_wire_names_public_names_and_beginnings() -> None:
    assert types_named(["RequestFailed"]) == types_named(["request.failed"]) == {"RequestFailed"}
    assert types_named(["*"]) == set(NAMES)
    assert types_named(["media.*"]) == {"MediaInitialized", "MediaChunkAdded", "MediaCompleted"}
    for wrong in ("request.acepted", "requestfailed", "nothing.*", ""):
        with pytest.raises(InvalidField) as caught:
            types_named([wrong])
        assert caught.value.field == "filter.types"


def test_groups_must_all_agree_and_any_value_will_do() -> None:
    event = stored(RequestProgressed(), "request-r1", worker_id="w1")

    def let_through(wanted: EventFilter) -> bool:
        return Matcher(wanted).matches(event)

    assert let_through(EventFilter())
    assert let_through(EventFilter(request_ids=("r0", "r1"), worker_ids=("w1",)))
    assert not let_through(EventFilter(request_ids=("r1",), worker_ids=("w2",)))
    assert let_through(EventFilter(since=AT))
    assert not let_through(EventFilter(until=AT))


def test_a_filter_has_a_bounded_number_of_values() -> None:
    values = tuple(str(number) for number in range(VALUES_MAX + 1))
    with pytest.raises(InvalidField) as caught:
        Matcher(EventFilter(worker_ids=values))
    assert caught.value.field == "filter.worker_ids"


def test_notes_are_about_the_requests_that_they_name() -> None:
    note = NonFiniteFound(worker_id="w1", request_id="r9", node_id="denoise", unit_id="u")
    check(stored(note), "worker:w1", "request:r9")
