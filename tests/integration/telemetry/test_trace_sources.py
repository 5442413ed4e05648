"""A trace store on the loopback, asked as `fastvideo trace` asks."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from fastvideo.cli.trace_sources import from_store
from fastvideo.errors import FailedPrecondition, InvalidField
from fastvideo.telemetry.span_tree import grow

MINE, OTHERS = f"{'a' * 32}", f"{'b' * 32}"


def span(trace_id: str, span_id: str, name: str, parent: str = "", **given: Any) -> dict[str, Any]:
    """A span as Jaeger tells it."""
    references = [{"refType": "CHILD_OF", "traceID": trace_id, "spanID": parent}] if parent else []
    references += [
        {"refType": "FOLLOWS_FROM", "traceID": trace, "spanID": other}
        for trace, other in given.get("links", ())
    ]
    return {
        "traceID": trace_id,
        "spanID": span_id,
        "operationName": name,
        "references": references,
        "startTime": 1_000,
        "duration": 500,
        "tags": [{"key": "span.kind", "value": given.get("kind", "internal")}],
        "processID": "p1",
    }


def answer(*spans: dict[str, Any]) -> Any:
    processes = {"p1": {"serviceName": "scheduler", "tags": []}}
    return {"data": [{"traceID": spans[0]["traceID"], "spans": spans, "processes": processes}]}


@contextmanager
def store(answers: Mapping[str, Any]) -> Iterator[str]:
    """A server of `/api/traces/ID`; its address. What is a number is a status."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path.removeprefix("/api/traces/"), 404)
            body = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(found if isinstance(found, int) else 200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Tests are quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_batches_in_other_traces_are_fetched_by_their_links() -> None:
    request = span(MINE, "1" * 16, "scheduler.request", links=[(OTHERS, "2" * 16)])
    batch = span(OTHERS, "2" * 16, "scheduler.batch", "9" * 16, kind="producer")
    step = span(OTHERS, "3" * 16, "worker.batch", "2" * 16)
    with store({MINE: answer(request), OTHERS: answer(batch, step)}) as url:
        found = await from_store(url, MINE)
    assert (found.origin, found.notes) == (f"the trace store at {url}", ())
    (root,) = grow(found.spans, MINE)
    assert [child.name for child in root.children] == ["scheduler.batch"]
    assert [child.name for child in root.children[0].children] == ["worker.batch"]


async def test_a_store_that_does_not_know_it_or_does_not_answer_says_so() -> None:
    with store({MINE: 500, OTHERS: b"no json"}) as url:
        assert "does not know it" in (await from_store(url, "c" * 32)).notes[0]
        assert "answered 500" in (await from_store(url, MINE)).notes[0]
        assert "no JSON" in (await from_store(url, OTHERS)).notes[0]
    gone = await from_store(url, MINE)
    assert (gone.spans, "does not answer" in gone.notes[0]) == ((), True)


async def test_what_is_no_trace_and_no_address_is_refused() -> None:
    with (
        store({MINE: {"hello": 1}}) as url,
        pytest.raises(FailedPrecondition, match="neither as Jaeger nor as OTLP"),
    ):
        await from_store(url, MINE)
    with pytest.raises(InvalidField):
        await from_store("file:///etc/passwd", MINE)
