"""What released programs wrote is read and folded for ever; what was altered is noticed."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from fastvideo import wire
from fastvideo.errors import FastVideoError
from fastvideo.events.catalog import PAYLOADS, UPCASTERS, event_of, message_of, payload_of
from fastvideo.events.records import StoredEvent
from fastvideo.scheduling.events import BatchExecuted
from tests.contract.histories import files
from tests.contract.histories.folds import fold

ALTERATIONS = json.loads((files.FOLDER / "must_diverge.json").read_text())


def folds(name: str) -> Any:
    return json.loads((files.FOLDER / f"{name}.folds.json").read_text())


def altered(events: Sequence[StoredEvent], how: dict[str, Any]) -> list[StoredEvent]:
    """The events with one of them as `how` says."""
    found = list(events)
    at = next(i for i, event in enumerate(found) if event.offset == how["offset"])
    if how.get("drop"):
        del found[at]
    elif "swap" in how:
        found[at], found[at + 1] = found[at + 1], found[at]
    elif "set" in how:
        message = wire.to_proto(payload_of(found[at]))
        ParseDict(how["set"], message)
        found[at] = found[at]._replace(payload=message.SerializeToString())
    else:
        changed = {name: how[name] for name in ("type", "schema_version") if name in how}
        found[at] = found[at]._replace(**changed)
    return found


@pytest.mark.parametrize("name", files.NAMES)
def test_a_released_history_folds_to_what_it_folded_to(name: str) -> None:
    assert fold(files.read(name)) == folds(name)


@pytest.mark.parametrize("how", ALTERATIONS, ids=lambda how: how["why"])
def test_an_altered_history_is_noticed(how: dict[str, Any]) -> None:
    events = altered(files.read(how["history"]), how)
    if how["notices"] == "folds":
        assert fold(events) != folds(how["history"])
        return
    with pytest.raises(FastVideoError) as caught:
        fold(events)
    assert caught.value.reason == how["notices"]


@pytest.mark.parametrize("name", files.NAMES)
def test_every_event_reads_as_today_would_write_it(name: str) -> None:
    for stored in files.read(name):
        event = event_of(stored)
        assert event.schema_version == UPCASTERS.version_of(stored.type)
        again: Any = wire.decode(PAYLOADS[stored.type], wire.encode(event.payload))
        assert again == event.payload


@pytest.mark.parametrize("name", files.NAMES)
def test_what_is_handed_on_unread_is_what_a_reader_would_write(name: str) -> None:
    for stored in files.read(name):
        assert message_of(stored) == wire.to_proto(event_of(stored))


def test_results_of_the_first_schema_say_which_step_they_were() -> None:
    batches = [
        payload
        for stored in files.read("services")
        if isinstance(payload := payload_of(stored), BatchExecuted)
    ]
    ranges = {
        (result.loop.request_id, result.loop.node_id, result.step_range.stop)
        for batch in batches
        for result in batch.results
        if result.loop.node_id == "denoise"
    }
    assert all(result.measured_seconds > 0 for batch in batches for result in batch.results)
    steps: dict[str, list[int]] = {}
    for request_id, _, stop in sorted(ranges):
        steps.setdefault(request_id, []).append(stop)
    assert sorted(map(len, steps.values()))[:3] == [3, 4, 5]
    assert all(stops == list(range(1, len(stops) + 1)) for stops in steps.values())
