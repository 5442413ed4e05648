"""Which workers the gateway lists, folded from what schedulers write."""

from collections.abc import Sequence
from datetime import UTC, datetime

from fastvideo.events.catalog import new_event
from fastvideo.events.records import StoredEvent, payload_digest
from fastvideo.events.types import EventMetadata, EventPayload
from fastvideo.scheduling.events import LeaderElected, WorkerAttached, WorkerLost
from fastvideo_gateway.index import fold_changes

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def stored(payloads: Sequence[EventPayload]) -> list[StoredEvent]:
    events = []
    for offset, payload in enumerate(payloads, start=1):
        new = new_event(f"evt_{offset}", payload, EventMetadata(occurred_at=NOW))
        events.append(
            StoredEvent(
                partition=0,
                offset=offset,
                stream_id="scheduler-0",
                stream_version=offset,
                event_id=new.event_id,
                type=new.type,
                schema_version=new.schema_version,
                payload=new.payload,
                payload_sha256=payload_digest(new.payload),
                metadata=new.metadata,
                fence_epoch=1,
                recorded_at=NOW,
                log_epoch=0,
            )
        )
    return events


def attached(name: str, incarnation: str = "i1") -> WorkerAttached:
    return WorkerAttached(worker_id=name, incarnation=incarnation)


def test_a_worker_is_listed_until_it_is_lost() -> None:
    events = stored([attached("w1"), attached("w2"), WorkerLost(worker_id="w1")])
    assert fold_changes(events, {}, {}).workers == {"w1": None, "w2": attached("w2")}


def test_a_leader_that_goes_on_keeps_its_workers() -> None:
    events = stored([attached("w1"), LeaderElected(epoch=2)])
    assert fold_changes(events, {}, {}).workers == {"w1": attached("w1")}


def test_a_leader_that_begins_anew_has_none_until_they_attach() -> None:
    known = {"old": attached("old")}
    events = stored([attached("w1"), LeaderElected(epoch=2, anew=True), attached("w2")])
    assert fold_changes(events, {}, known).workers == {
        "old": None,
        "w1": None,
        "w2": attached("w2"),
    }
