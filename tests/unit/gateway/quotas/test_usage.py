"""What events change in the counters, and what a request is predicted to take."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from fastvideo.events.catalog import new_event
from fastvideo.events.records import StoredEvent, payload_digest
from fastvideo.events.types import EventMetadata, EventPayload
from fastvideo.requests.events import RequestAccepted, RequestCompleted, RequestStarted
from fastvideo.requests.types import RequestMetrics, RequestSpec
from fastvideo_gateway.quotas.types import Accepted, Ended
from fastvideo_gateway.quotas.usage import RequestCosts, changes_of
from tests.unit.scheduling.world import request

AT = datetime(2026, 1, 2, tzinfo=UTC)
AT_MS = int(AT.timestamp() * 1000)


def stored(offset: int, request_id: str, payload: EventPayload) -> StoredEvent:
    metadata = EventMetadata(tenant_id="one", request_id=request_id, occurred_at=AT)
    new = new_event(f"evt_{offset}", payload, metadata)
    return StoredEvent(
        partition=0,
        offset=offset,
        stream_id=f"request-{request_id}",
        stream_version=1,
        event_id=new.event_id,
        type=new.type,
        schema_version=new.schema_version,
        payload=new.payload,
        payload_sha256=payload_digest(new.payload),
        metadata=new.metadata,
        fence_epoch=0,
        recorded_at=AT,
        log_epoch=1,
    )


def spec(request_id: str) -> RequestSpec:
    return replace(request(request_id), tenant_id="one")


def done(seconds: float) -> RequestCompleted:
    return RequestCompleted(metrics=RequestMetrics(device_seconds=seconds))


def test_requests_begin_and_end_and_the_rest_changes_nothing() -> None:
    events = [
        stored(1, "req_1", RequestAccepted(spec=spec("req_1"))),
        stored(2, "req_1", RequestStarted(attempt=1)),
        stored(3, "req_1", done(5.0)),
    ]
    assert changes_of(events, RequestCosts()) == [
        Accepted(1, "one", "req_1", AT_MS, 0.0),
        Ended(3, "one", "req_1", AT_MS, 5.0),
    ]


def test_what_such_requests_took_is_what_the_next_one_is_predicted_to_take() -> None:
    costs = RequestCosts()
    assert costs.predict(spec("req_2")) == 0.0
    changes_of(
        [stored(1, "req_1", RequestAccepted(spec=spec("req_1"))), stored(2, "req_1", done(5.0))],
        costs,
    )
    assert costs.predict(spec("req_2")) == 5.0
    (change,) = changes_of([stored(3, "req_2", RequestAccepted(spec=spec("req_2")))], costs)
    assert change == Accepted(3, "one", "req_2", AT_MS, 5.0)


@pytest.mark.parametrize(
    "unreadable", [{"payload": b"\xff\xff"}, {"schema_version": 99}, {"payload_sha256": b"another"}]
)
def test_of_an_end_that_cannot_be_read_it_counts_that_it_is_one(unreadable: Any) -> None:
    costs = RequestCosts()
    changes_of(
        [stored(1, "req_1", RequestAccepted(spec=spec("req_1"))), stored(2, "req_1", done(5.0))],
        costs,
    )
    begun = stored(3, "req_2", RequestAccepted(spec=spec("req_2")))
    ended = stored(4, "req_2", done(7.0))._replace(**unreadable)
    assert changes_of([begun, ended], costs)[1] == Ended(4, "one", "req_2", AT_MS, 5.0)
    # What it did not say teaches nothing.
    assert costs.predict(spec("req_3")) == 5.0
    newer = begun._replace(**unreadable)
    assert changes_of([newer], costs) == [Accepted(3, "one", "req_2", AT_MS, 0.0)]
    assert changes_of([ended._replace(metadata=b"\xff\xff")], costs) == []
