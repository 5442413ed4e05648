"""`fastvideo log` on a running stack: what a person reads, follows, exports and verifies."""

import json
import queue
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stack import Stack

STEPS = 4
# What is found for one request: its own events, and those of the shard that name it.
OF_A_REQUEST = {"request.accepted", "request.completed", "trace.step", "trace.scheduler"}
TAIL_S_MAX = 120.0


@pytest.fixture(scope="module")
def record(stack: Stack) -> Any:
    """A completed request."""
    return stack.generate("a blue two moving left", "--steps", str(STEPS), "--seed", "3")


def read_lines(out: Any, lines: "queue.Queue[Any]") -> None:
    """Put each line's object into the queue, until the program ends."""
    for line in out:
        lines.put(json.loads(line))


def records(out: str) -> list[Any]:
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.row("EVT-18")
def test_show_gives_a_requests_events_and_the_shards_about_it(stack: Stack, record: Any) -> None:
    outcome = stack.run("log", "show", record["id"], "--json")
    assert outcome.code == 0, outcome.err
    shown = records(outcome.out)
    assert {event["name"] for event in shown} >= OF_A_REQUEST
    stream = [e["sequence"] for e in shown if e["stream_id"] == f"request-{record['id']}"]
    assert stream == list(range(1, len(stream) + 1))
    steps = [e for e in shown if e["name"] == "trace.step"]
    denoised = [s for s in steps if s["batch_executed"]["kind"] == "UNIT_KIND_DIFFUSION_STEP"]
    assert sum(len(s["batch_executed"]["results"]) for s in denoised) == STEPS
    for step in steps:
        executed = step["batch_executed"]
        assert executed["measured_seconds"] > 0
        assert record["id"] in {result["loop"]["request_id"] for result in executed["results"]}
    plain = stack.run("log", "show", record["id"])
    assert "diffusion_step x" in plain.out
    assert len(plain.out.splitlines()) == len(shown)


def test_filters_narrow_what_is_shown(stack: Stack, record: Any) -> None:
    arguments = ("--request", record["id"], "--type", "artifact.*", "--worker", "worker-1")
    outcome = stack.run("log", "show", *arguments, "--json", "--since", "1h")
    assert {e["name"] for e in records(outcome.out)} >= {"artifact.created", "artifact.completed"}
    nothing = stack.run("log", "show", *arguments, "--until", "1h")
    assert nothing.code == 1
    wrong = stack.run("log", "show", "--type", "artefact.created")
    assert (wrong.code, "artifact.created" in wrong.err) == (2, True)


def test_tail_tells_each_event_of_a_request_as_it_comes(stack: Stack) -> None:
    told: list[Any] = []
    with stack.start("log", "tail", "-n", "1", "--type", "request.*", "--json") as process:
        lines: queue.Queue[Any] = queue.Queue()
        reading = threading.Thread(target=read_lines, args=(process.stdout, lines))
        reading.start()
        try:
            # The newest that was there: from then on it follows.
            lines.get(timeout=TAIL_S_MAX)
            made = stack.generate("a red nine", "--steps", "2")
            while not told or told[-1]["name"] != "request.completed":
                event = lines.get(timeout=TAIL_S_MAX)
                if event["metadata"]["request_id"] == made["id"]:
                    told.append(event)
        finally:
            process.send_signal(signal.SIGINT)
            reading.join(TAIL_S_MAX)
            code = process.wait(TAIL_S_MAX)
    watched = [e["event_id"] for e in stack.watch(made["id"]) if e["name"].startswith("request.")]
    assert [event["event_id"] for event in told] == watched
    assert code == 130


def test_export_holds_the_whole_log_as_rows(stack: Stack, record: Any, tmp_path: Path) -> None:
    import pyarrow.parquet

    file = tmp_path / "log.parquet"
    outcome = stack.run("log", "export", str(file))
    assert outcome.code == 0, outcome.err
    table = pyarrow.parquet.read_table(file)
    assert table.column("offset").to_pylist() == list(range(1, table.num_rows + 1))
    assert set(table.column("unreadable").to_pylist()) == {None}
    of_request = [i for i, r in enumerate(table.column("request_id")) if r.as_py() == record["id"]]
    assert len(of_request) > STEPS
    lines = tmp_path / "log.jsonl"
    assert stack.run("log", "export", str(lines), "--request", record["id"]).code == 0
    shown = stack.run("log", "show", record["id"], "--json")
    assert records(lines.read_text()) == records(shown.out)


def test_stats_and_verify_agree_that_the_log_is_whole(stack: Stack, record: Any) -> None:
    stats = stack.run("log", "stats", "--json").json
    assert sum(int(count["events"]) for count in stats["types"]) >= stats["events"] > 0
    assert {"event_index", "gateway"} <= set(stats["projection_lag"])
    verified = stack.run("log", "verify", "--json")
    assert verified.code == 0, verified.out
    assert verified.json["faults"] == []
    assert verified.json["events_checked"] >= stats["events"]
