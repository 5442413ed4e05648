"""A trace in a terminal, as somebody reads it who was woken up by it.

Run as `python tests/unit/cli/test_trace_view.py` it writes `trace.txt` anew.
"""

from pathlib import Path
from typing import Any

from rich.console import Console

from fastvideo.cli.trace_view import TraceView, tree_record, tree_text
from fastvideo.telemetry.span_tree import fold, grow
from fastvideo.telemetry.spans import SpanLink, SpanRecord

DRAWN = Path(__file__).with_name("trace.txt")
DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"
WIDTH = 150
MINE, OTHERS = "4bf92f3577b34da6a3ce929d0e0e4736", "b" * 32
GATEWAY = "fastvideo.gateway.v1.GatewayService"
ARTIFACTS = "fastvideo.artifacts.v1.ArtifactService"
REQUEST = "req_01m8p0jrhs2sgbqs8p4a2vb9fg"


class Told:
    """Spans as they are told, one after the other."""

    def __init__(self) -> None:
        self.spans: list[SpanRecord] = []

    def span(
        self, service: str, name: str, parent: str, start_ms: float, end_ms: float, **given: Any
    ) -> str:
        """Tell of one; gives its id."""
        span_id = f"{len(self.spans) + 1:016x}"
        values = {"trace_id": MINE, "instance": service, **given}
        self.spans.append(
            SpanRecord(
                service=service.partition("-")[0],
                name=name,
                span_id=span_id,
                parent_id=parent,
                start_ns=int(start_ms * 1e6),
                end_ns=int(end_ms * 1e6),
                **values,
            )
        )
        return span_id

    def call(
        self, caller: str, server: str, method: str, parent: str, start_ms: float, end_ms: float
    ) -> str:
        """Both sides of an RPC; gives the server's."""
        asked = self.span(caller, method, parent, start_ms, end_ms, kind="client")
        return self.span(server, method, asked, start_ms + 1, end_ms - 1, kind="server")


def view() -> TraceView:
    """A request whose third decode failed, with steps that it shared with another."""
    told = Told()
    root = told.span("fastvideo-cli", "fastvideo.generate", "", 0, 2400, kind="client")
    submit = told.call("fastvideo-cli", "gateway", f"{GATEWAY}/SubmitRequest", root, 10, 60)
    told.span("gateway", "log.append", submit, 30, 55)
    request = told.span("scheduler-1", "scheduler.request", submit, 62, 2290, kind="consumer")
    told.span(
        "worker-1", "worker.prepare", request, 800, 806, attributes={"fastvideo.node_id": "denoise"}
    )
    at = 810.0
    for step in range(20):
        shared = step < 12
        links = (SpanLink(trace_id=MINE, span_id=request),) if shared else ()
        # A window of two steps each.
        about = {"fastvideo.batch.kind": "diffusion_step", "fastvideo.batch.units": 2}
        batch = told.span(
            "scheduler-1",
            "scheduler.batch",
            "9" * 16 if shared else request,
            at,
            at + 55,
            kind="producer",
            attributes=about,
            links=links,
            trace_id=OTHERS if shared else MINE,
        )
        told.span(
            "worker-1",
            "worker.batch",
            batch,
            at + 2,
            at + 53,
            kind="consumer",
            attributes=about,
            trace_id=OTHERS if shared else MINE,
        )
        at += 58
    about = {"fastvideo.batch.kind": "vae_tile"}
    for tile in range(3):
        failure = {"failed": True, "message": "OUT_OF_MEMORY: no room"} if tile == 2 else {}
        batch = told.span(
            "scheduler-1",
            "scheduler.batch",
            request,
            at,
            at + 90,
            kind="producer",
            attributes=about,
            **failure,
        )
        told.span("worker-1", "worker.batch", batch, at + 2, at + 88, attributes=about, **failure)
        at += 95
    told.call("fastvideo-cli", "gateway", f"{GATEWAY}/WatchRequest", root, 70, 2300)
    roots = grow(told.spans, MINE)
    return TraceView(MINE, REQUEST, "spans that the local stack keeps in /data/traces", (), roots)


def drawn(shown: TraceView) -> str:
    console = Console(width=WIDTH, color_system=None, highlight=False, soft_wrap=True)
    with console.capture() as captured:
        console.print(tree_text(shown, fold(shown.roots), console.width))
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def test_the_tree_is_drawn_as_it_was_read() -> None:
    assert drawn(view()) == DRAWN.read_text()
    assert DRAWN.read_text() in DOCUMENT.read_text()


def test_the_record_has_every_span_and_what_failed() -> None:
    shown = view()
    record = tree_record(shown, shown.roots)
    assert (record["spans"], record["failed"]) == (54, 2)
    assert record["source"].startswith("spans that the local stack keeps")
    (root,) = record["roots"]
    (submit, watch) = root["children"]
    request = submit["children"][0]["children"][1]
    batches = [node for node in request["children"] if node["name"] == "scheduler.batch"]
    assert (len(batches), request["seconds"]) == (23, 2.228)
    assert [node["requests"] for node in batches[:20]] == [2] * 12 + [1] * 8
    assert watch["children"][0]["self_seconds"] == 2.228


def test_a_narrow_terminal_loses_the_picture_and_no_word() -> None:
    text = tree_text(view(), fold(view().roots), 40).plain
    for word in (
        "diffusion_step ×20 (40 units)",
        "shared by up to 2 requests",
        "failed: OUT_OF_MEMORY: no room",
    ):
        assert word in text


if __name__ == "__main__":
    DRAWN.write_text(drawn(view()))
