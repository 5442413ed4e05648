"""What `fastvideo log` prints and writes, without a server."""

import builtins
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer

from fastvideo.cli.log_export import COLUMNS, row_of, writer_of
from fastvideo.cli.log_options import event_filter, parse_moment
from fastvideo.cli.log_view import entry_line, entry_record, fault_line, stats_lines, stats_record
from fastvideo.errors import FailedPrecondition, InvalidField
from fastvideo.events.catalog import event_of
from fastvideo.events.reading.entries import UnreadableEvent
from fastvideo.events.reading.index import TypeCount
from fastvideo.events.reading.stats import LogStats
from fastvideo.events.reading.verifying import LogFault
from fastvideo.events.types import Event
from fastvideo.requests.events import RequestProgressed
from fastvideo.scheduling.events import BatchExecuted
from fastvideo.scheduling.work import UnitKind
from tests.unit.events.test_terms import AT, result, stored

BATCH = BatchExecuted(
    worker_id="w1",
    batch_id="b",
    kind=UnitKind.DIFFUSION_STEP,
    results=tuple(result(f"r{number}") for number in range(4)),
    measured_seconds=0.0125,
)
BROKEN = UnreadableEvent(
    event_id="evt_9",
    partition=1,
    offset=7,
    stream_id="request-r1",
    stream_version=3,
    type="ThingHappened",
    schema_version=2,
    reason="UNKNOWN_SCHEMA",
)
STATS = LogStats(
    heads={1: 2, 0: 1_000},
    log_epoch=1,
    events=1_002,
    streams=7,
    bytes=3 * 1024 * 1024,
    first_recorded_at=AT,
    last_recorded_at=AT + timedelta(hours=1),
    types=(TypeCount("RequestAccepted", "request.accepted", 2, 100), TypeCount("New", "", 1, 1)),
    projection_lag={"gateway": 0, "event_index": 12},
    quarantined=3,
    archived=5,
)


def progressed() -> Event:
    return event_of(stored(RequestProgressed(fraction=0.5), "request-r1", request_id="r1"))


def test_a_line_says_where_when_what_and_about_what() -> None:
    line = entry_line(event_of(stored(BATCH, worker_id="w1")))
    assert line.startswith("0:1 ")
    for part in ("2026-01-02 00:00:00.000", "trace.step", "scheduler-0@1", "on w1"):
        assert part in line
    assert "diffusion_step x4 in 12.5 ms for r0, r1, r2 ..." in line
    assert entry_line(progressed()).count("r1") == 1


def test_an_unreadable_event_is_told_as_such() -> None:
    assert "UNREADABLE ThingHappened" in entry_line(BROKEN)
    record = entry_record(BROKEN)["unreadable"]
    assert (record["offset"], record["reason"]) == ("7", "UNKNOWN_SCHEMA")


def test_figures_are_told_by_type_and_reader() -> None:
    text = "\n".join(stats_lines(STATS))
    for part in ("1,002 in 7 streams", "3.0 MiB", "0: 1,000, 1: 2", "event_index: 12", "New"):
        assert part in text
    record = json.loads(json.dumps(stats_record(STATS)))
    assert record["heads"] == {"0": 1_000, "1": 2}
    assert record["types"][0]["name"] == "request.accepted"


def test_a_fault_is_told_with_its_place() -> None:
    fault = LogFault(
        kind="payload_digest",
        partition=2,
        offset=9,
        stream_id="request-r1",
        event_id="evt_1",
        message="another SHA-256",
    )
    said = "payload_digest at 2:9 in request-r1 event evt_1: another SHA-256"
    assert fault_line(fault) == said
    assert fault_line(LogFault(kind="append_only", message="m")) == "append_only: m"


def test_rows_have_all_columns_in_order() -> None:
    for entry in (progressed(), event_of(stored(BATCH)), BROKEN):
        assert list(row_of(entry)) == list(COLUMNS)
    row = row_of(progressed())
    assert (row["name"], row["request_id"], row["unreadable"]) == ("request.progress", "r1", None)
    assert json.loads(row["payload"]) == {"fraction": 0.5}
    assert (row_of(BROKEN)["name"], row_of(BROKEN)["unreadable"]) == (None, "UNKNOWN_SCHEMA")


def test_another_ending_is_refused() -> None:
    with pytest.raises(InvalidField) as caught:
        writer_of(Path("log.csv"))
    assert ".parquet" in caught.value.allowed


def test_without_pyarrow_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refuse(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    file = tmp_path / "log.parquet"
    with pytest.raises(FailedPrecondition) as caught, writer_of(file)(file):
        pass
    assert caught.value.reason == "NOT_INSTALLED"
    assert "fastvideo-v2[local]" in caught.value.message
    assert not file.exists()


def test_times_are_moments_or_spans() -> None:
    now = datetime(2026, 1, 2, 12, tzinfo=UTC)
    assert parse_moment("", "--since") is None
    assert parse_moment("90m", "--since", now) == datetime(2026, 1, 2, 10, 30, tzinfo=UTC)
    assert parse_moment("3d", "--since", now) == datetime(2025, 12, 30, 12, tzinfo=UTC)
    assert parse_moment("2026-01-02T12:00:00", "--since") == now
    assert parse_moment("2026-01-02T13:00:00+01:00", "--since") == now
    with pytest.raises(typer.BadParameter):
        parse_moment("yesterday", "--since")
    with pytest.raises(typer.BadParameter):
        parse_moment("999999999d", "--since")


def test_options_become_a_filter() -> None:
    wanted = event_filter(requests=["r1"], types=["trace.*"], since="2026-01-02T00:00:00Z")
    assert (wanted.request_ids, wanted.types, wanted.since) == (("r1",), ("trace.*",), AT)
    assert wanted.until is None
