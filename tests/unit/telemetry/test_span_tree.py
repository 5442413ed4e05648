"""Spans as a tree: shared work once, what is alike as one, failures by themselves."""

from typing import Any

from fastvideo.telemetry.span_tree import TraceNode, fold, grow, linked_traces
from fastvideo.telemetry.spans import SpanLink, SpanRecord

MINE, OTHERS = "a" * 32, "b" * 32


def span(name: str, parent: str, start: int, end: int, **given: Any) -> SpanRecord:
    """A span whose id is its name; times in milliseconds."""
    values = {"service": "scheduler", "trace_id": MINE, "span_id": name, "name": name, **given}
    return SpanRecord(
        **values, parent_id=parent, start_ns=start * 1_000_000, end_ns=end * 1_000_000
    )


def link(name: str, trace_id: str) -> tuple[SpanLink, ...]:
    return (SpanLink(trace_id=trace_id, span_id=name),)


def names(nodes: tuple[TraceNode, ...]) -> list[object]:
    """Names, and below each those of its children."""
    told: list[object] = []
    for node in nodes:
        told.append(node.name)
        if node.children:
            told.append(names(node.children))
    return told


def test_time_itself_is_what_no_child_took() -> None:
    (root,) = grow(
        [
            span("root", "", 0, 100),
            span("one", "root", 10, 40),
            # Overlaps with the first, and ends after its parent.
            span("two", "root", 30, 120),
        ],
        MINE,
    )
    assert root.seconds == 0.1
    assert round(root.self_seconds, 6) == 0.01
    assert names((root,)) == ["root", ["one", "two"]]


def test_a_batch_in_another_trace_is_told_once_with_what_ran_under_it() -> None:
    spans = [
        span("request", "", 0, 100, links=link("batch", OTHERS)),
        # Each links to the other; who looks finds it by either.
        span(
            "batch",
            "their request",
            10,
            60,
            trace_id=OTHERS,
            kind="producer",
            links=link("request", MINE),
        ),
        span("step", "batch", 20, 50, trace_id=OTHERS),
        span("their request", "", 0, 90, trace_id=OTHERS),
        # A replay of another day links to what it replays, and is not part of it.
        span("replay", "", 5_000, 9_000, trace_id="c" * 32, links=link("request", MINE)),
    ]
    assert linked_traces(spans, MINE) == {OTHERS, "c" * 32}
    (request,) = grow(spans, MINE)
    assert names((request,)) == ["request", ["batch", ["step"]]]
    assert request.children[0].requests == 2
    assert round(request.self_seconds, 6) == 0.05


def test_what_is_alike_is_one_line_and_a_failure_has_its_own() -> None:
    spans = [span("request", "", 0, 1_000)]
    for index in range(200):
        batch = {
            "span_id": f"batch-{index}",
            "attributes": {"fastvideo.batch.kind": "diffusion_step"},
            "failed": index == 150,
            "message": "a unit failed" if index == 150 else "",
        }
        spans.append(span("batch", "request", index * 5, index * 5 + 4, **batch))
        step = {"span_id": f"step-{index}", "service": "worker"}
        spans.append(span("step", f"batch-{index}", index * 5, index * 5 + 3, **step))
    (request,) = grow(spans, MINE)
    assert len(request.children) == 200
    [folded] = fold([request])
    alike, failed = folded.children
    assert (alike.count, round(alike.seconds, 6), alike.detail) == (199, 0.796, "diffusion_step")
    assert (failed.count, failed.message) == (1, "a unit failed")
    (steps,) = alike.children
    assert (steps.count, round(steps.seconds, 6)) == (199, 0.597)
    assert round(alike.self_seconds, 6) == 0.199
    assert folded.self_seconds == request.self_seconds


def test_while_a_request_runs_its_batches_are_one_line_too() -> None:
    # Its own span is told once it has ended.
    spans = [
        span("batch", "request", at, at + 4, span_id=f"batch-{at}", service="scheduler")
        for at in range(0, 1_000, 5)
    ]
    (alike,) = fold(grow(spans, MINE))
    assert (alike.count, alike.orphan) == (200, True)


def test_a_span_whose_parent_is_not_here_is_a_root_that_says_so() -> None:
    (lost, root) = grow([span("lost", "away", 0, 5), span("root", "", 1, 5)], MINE)
    assert (lost.orphan, root.orphan) == (True, False)


def test_ids_that_go_round_in_a_circle_end() -> None:
    spans = [span("root", "", 0, 9), span("a", "b", 0, 9), span("b", "a", 0, 9)]
    assert names(grow(spans, MINE)) == ["root"]
