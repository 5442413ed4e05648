"""Spans as a tree, and the same with what is alike as one.

A batch that several requests shared has its place in the trace of one of them; the others' spans
link to it, and it links to theirs. So it is told in the tree of each, once.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fastvideo.telemetry.spans import SpanRecord

# What a span of that name is one of, beside its name.
_DETAILS: Final = ("fastvideo.batch.kind", "fastvideo.node_id", "fastvideo.stage")
# Shared work is handed on; links of other spans, such as those of replays, are of another time.
SHARED_KIND: Final = "producer"
# How many requests share the work, where that is said.
REQUESTS: Final = "fastvideo.batch.requests"
UNITS: Final = "fastvideo.batch.units"
# So many alike are told one by one.
ALIKE_MAX: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceNode:
    """One span, or several that are alike, and what is under them."""

    service: str
    # Processes, in the order of their first spans.
    instances: tuple[str, ...]
    name: str
    # Such as "diffusion_step".
    detail: str = ""
    # As `SpanRecord.kind`.
    kind: str = "internal"
    count: int = 1
    # The first start and the last end, nanoseconds of Unix time.
    start_ns: int
    end_ns: int
    # Sums over all of them: how long they took, and of that when nothing under them did.
    seconds: float
    self_seconds: float
    failed: int = 0
    message: str = ""
    # The most requests that shared one of them; 1 shared nothing.
    requests: int = 1
    # Units of work in all of them, the steps of windows one by one; 0 where that is not said.
    units: int = 0
    # The parent is not among the spans.
    orphan: bool = False
    span_id: str = ""
    trace_id: str = ""
    children: tuple["TraceNode", ...] = ()


def linked_traces(spans: Iterable[SpanRecord], trace_id: str) -> frozenset[str]:
    """Other traces that may hold work that spans of this one shared."""
    found = set()
    for span in spans:
        if span.trace_id == trace_id:
            found |= {link.trace_id for link in span.links}
        elif any(link.trace_id == trace_id for link in span.links):
            found.add(span.trace_id)
    return frozenset(found - {trace_id})


def grow(spans: Iterable[SpanRecord], trace_id: str) -> tuple[TraceNode, ...]:
    """The tree of a trace, with the work in others that it shared; the roots in order of time."""
    known = {(span.trace_id, span.span_id): span for span in spans}
    own = {key: span for key, span in known.items() if key[0] == trace_id}
    below: dict[tuple[str, str], list[SpanRecord]] = defaultdict(list)
    roots: list[SpanRecord] = []
    for span in own.values():
        if span.parent_id and (trace_id, span.parent_id) in own:
            below[trace_id, span.parent_id].append(span)
        else:
            roots.append(span)
    for span, parent in _shared(known, own):
        below[parent].append(span)
    for span in known.values():
        if span.trace_id != trace_id and span.parent_id:
            below[span.trace_id, span.parent_id].append(span)
    return tuple(_node(root, below, frozenset()) for root in sorted(roots, key=_begun))


def _shared(
    known: Mapping[tuple[str, str], SpanRecord], own: Mapping[tuple[str, str], SpanRecord]
) -> Iterable[tuple[SpanRecord, tuple[str, str]]]:
    """Shared work of other traces, each once, and the span of this trace that it belongs to."""
    parents: dict[tuple[str, str], tuple[str, str]] = {}
    for key, span in known.items():
        for link in span.links:
            other = (link.trace_id, link.span_id)
            if key in own and other in known and other not in own:
                parents.setdefault(other, key)
            elif key not in own and other in own:
                parents.setdefault(key, other)
    for key, parent in parents.items():
        if known[key].kind == SHARED_KIND:
            yield known[key], parent


def _node(
    span: SpanRecord,
    below: Mapping[tuple[str, str], Sequence[SpanRecord]],
    above: frozenset[str],
) -> TraceNode:
    # Spans are what others sent: ids that go round in a circle end here.
    path = above | {span.span_id}
    children = tuple(
        _node(child, below, path)
        for child in sorted(below.get((span.trace_id, span.span_id), ()), key=_begun)
        if child.span_id not in path
    )
    covered = _covered(children, span.start_ns, span.end_ns)
    return TraceNode(
        service=span.service,
        instances=(span.instance or span.service,),
        name=span.name,
        detail=next((str(span.attributes[key]) for key in _DETAILS if key in span.attributes), ""),
        kind=span.kind,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        seconds=span.seconds,
        self_seconds=max(0.0, span.seconds - covered),
        failed=int(span.failed),
        message=span.message,
        requests=_requests(span),
        units=_count(span, UNITS),
        orphan=bool(span.parent_id) and not above,
        span_id=span.span_id,
        trace_id=span.trace_id,
        children=children,
    )


def _requests(span: SpanRecord) -> int:
    told = _count(span, REQUESTS)
    return told or (1 + len(span.links) if span.kind == SHARED_KIND else 1)


def _count(span: SpanRecord, name: str) -> int:
    """A number that a span tells; 0 when it tells none."""
    value = span.attributes.get(name, 0)
    return int(value) if isinstance(value, int | float) else 0


def _begun(span: SpanRecord) -> tuple[int, int, str]:
    return span.start_ns, -span.end_ns, span.span_id


def _covered(children: Iterable[TraceNode], start_ns: int, end_ns: int) -> float:
    """Seconds in which some child ran."""
    covered, until = 0, start_ns
    for child in sorted(children, key=lambda node: node.start_ns):
        begin, end = max(child.start_ns, until), min(child.end_ns, end_ns)
        covered += max(0, end - begin)
        until = max(until, end)
    return covered / 1e9


# -- alike -------------------------------------------------------------------------------


def fold(nodes: Sequence[TraceNode]) -> tuple[TraceNode, ...]:
    """Those that are alike as one, all the way down; failures stay alone.

    Roots too: while a request runs, the span of it is not there yet that its batches are under.
    """
    groups: dict[tuple[str, ...], list[TraceNode]] = defaultdict(list)
    for node in nodes:
        alone = node.span_id if _fails(node) else ""
        groups[node.service, node.kind, node.name, node.detail, alone].append(node)
    folded = [
        replace(node, children=fold(node.children))
        for group in groups.values()
        for node in ([_merged(group)] if len(group) > ALIKE_MAX else group)
    ]
    return tuple(sorted(folded, key=lambda node: (node.start_ns, -node.end_ns)))


def _fails(node: TraceNode) -> bool:
    return bool(node.failed) or any(map(_fails, node.children))


def _merged(group: Sequence[TraceNode]) -> TraceNode:
    first = group[0]
    return replace(
        first,
        instances=tuple(dict.fromkeys(name for node in group for name in node.instances)),
        count=sum(node.count for node in group),
        start_ns=min(node.start_ns for node in group),
        end_ns=max(node.end_ns for node in group),
        seconds=sum(node.seconds for node in group),
        self_seconds=sum(node.self_seconds for node in group),
        requests=max(node.requests for node in group),
        units=sum(node.units for node in group),
        orphan=any(node.orphan for node in group),
        span_id="",
        children=tuple(child for node in group for child in node.children),
    )
