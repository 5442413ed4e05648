"""A trace as a tree in a terminal, and as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.text import Text

from fastvideo.explain.headline import span as length
from fastvideo.telemetry.span_tree import TraceNode

RUNS: Final = "█"
# Several one after the other, with what is between them.
RUN_ALIKE: Final = "▒"
NOTHING: Final = "·"
# The caller's side of an RPC.
CALLS: Final = "→"
_LEGEND: Final = f"{RUNS} one  {RUN_ALIKE} several, with gaps"
_CELLS_MIN: Final = 12
_CELLS_MAX: Final = 40
_LABEL_MAX: Final = 64
_MESSAGE_MAX: Final = 160
_INSTANCES_MAX: Final = 2
# Ahead of the note: the bar's frame, the two figures, and gaps.
_FIGURES: Final = 24


@dataclass(frozen=True, slots=True)
class TraceView:
    """A trace as it was found."""

    trace_id: str
    # Empty when it was asked for by its own id.
    request_id: str
    origin: str
    notes: tuple[str, ...]
    # Every span by itself.
    roots: tuple[TraceNode, ...]


@dataclass(frozen=True, slots=True)
class _Row:
    branch: str
    node: TraceNode

    @property
    def label(self) -> str:
        node = self.node
        words = [CALLS] if node.kind == "client" and "/" in node.name else []
        words.append(_short(node.name))
        words += [node.detail] if node.detail else []
        words += [f"×{node.count}"] if node.count > 1 else []
        words += [f"({node.units} units)"] if node.units > node.count else []
        return self.branch + " ".join(words)


def tree_text(view: TraceView, nodes: Sequence[TraceNode], width: int) -> Text:
    """The tree for a terminal of so many columns; `nodes` are the roots as they are to be shown."""
    rows = [row for node in nodes for row in _rows(node, "", "")]
    begin = min((node.start_ns for node in nodes), default=0)
    end = max((row.node.end_ns for row in rows), default=0)
    labels = min(_LABEL_MAX, max((len(row.label) for row in rows), default=0))
    places = max((len(_place(row.node)) for row in rows), default=0)
    cells = max(_CELLS_MIN, min(_CELLS_MAX, width - labels - places - _FIGURES))
    text = Text("\n").join(_head(view, (end - begin) / 1e9))
    text.append("\n\n")
    legend = _LEGEND if len(_LEGEND) <= cells else ""
    heading = f"{'':<{labels}}  {'where':<{places}}  {legend:<{cells}}  {'took':>8}  {'itself':>8}"
    text.append(f"{heading}\n", style="dim")
    for index, row in enumerate(rows):
        text.append("\n" if index else "")
        text.append(_line(row, labels, places, cells, begin, end))
    return text


def tree_record(view: TraceView, nodes: Sequence[TraceNode]) -> dict[str, Any]:
    """The same as JSON; seconds, and Unix times in nanoseconds."""
    everything = list(_all(view.roots))
    return {
        "trace_id": view.trace_id,
        "request_id": view.request_id or None,
        "source": view.origin,
        "notes": list(view.notes),
        "spans": len(everything),
        "failed": sum(node.failed for node in everything),
        "roots": [_record(node) for node in nodes],
    }


def _record(node: TraceNode) -> dict[str, Any]:
    return {
        "service": node.service,
        "instances": list(node.instances),
        "name": node.name,
        "detail": node.detail,
        "kind": node.kind,
        "count": node.count,
        "start_ns": node.start_ns,
        "end_ns": node.end_ns,
        "seconds": round(node.seconds, 6),
        "self_seconds": round(node.self_seconds, 6),
        "failed": node.failed,
        "message": node.message,
        "requests": node.requests,
        "units": node.units,
        "orphan": node.orphan,
        "span_id": node.span_id,
        "children": [_record(child) for child in node.children],
    }


def _head(view: TraceView, seconds: float) -> list[Text]:
    everything = list(_all(view.roots))
    failed = sum(node.failed for node in everything)
    processes = {(node.service, name) for node in everything for name in node.instances}
    subject = f"request {view.request_id}  " if view.request_id else ""
    lines = [
        Text(f"{subject}trace {view.trace_id or 'none'}", style="bold"),
        Text(f"{len(everything)} spans of {len(processes)} processes in {length(seconds)}"),
    ]
    lines[1].append(f", {failed} failed" if failed else "", style="bold red")
    lines.append(Text(f"from {view.origin}", style="dim"))
    lines += [Text(f"note: {note}", style="dim") for note in view.notes]
    return lines


def _line(row: _Row, labels: int, places: int, cells: int, begin: int, end: int) -> Text:
    node = row.node
    label = row.label if len(row.label) <= labels else f"{row.label[: labels - 1]}…"
    line = Text(f"{label:<{labels}}  ", style="red" if node.failed else "")
    line.append(f"{_place(node):<{places}}  ", style="cyan")
    line.append(f"{_bar(node, cells, begin, end)}  ", style="red" if node.failed else "green")
    line.append(f"{length(node.seconds):>8}")
    line.append(f"  {length(node.self_seconds):>8}", style="dim")
    notes = list(_notes(node))
    if notes:
        line.append("  " + "; ".join(notes), style="red" if node.failed else "yellow")
    return line


def _notes(node: TraceNode) -> Iterator[str]:
    if node.requests > 1:
        most = "up to " if node.count > 1 else ""
        yield f"shared by {most}{node.requests} requests"
    if node.orphan:
        yield "its caller's span is not here"
    if node.failed:
        yield f"failed: {node.message[:_MESSAGE_MAX]}" if node.message else "failed"


def _bar(node: TraceNode, cells: int, begin: int, end: int) -> str:
    per_cell = max(1, end - begin) / cells
    first = min(cells - 1, int((node.start_ns - begin) / per_cell))
    last = min(cells - 1, int((node.end_ns - begin) / per_cell))
    mark = RUN_ALIKE if node.count > 1 else RUNS
    return "".join(mark if first <= cell <= last else NOTHING for cell in range(cells))


def _place(node: TraceNode) -> str:
    """Which process; of several the first ones."""
    shown = ", ".join(node.instances[:_INSTANCES_MAX])
    more = len(node.instances) - _INSTANCES_MAX
    return f"{shown} +{more}" if more > 0 else shown


def _short(name: str) -> str:
    """An RPC without its package."""
    service, slash, method = name.partition("/")
    return f"{service.rpartition('.')[2]}/{method}" if slash and "." in service else name


def _rows(node: TraceNode, first: str, rest: str) -> Iterator[_Row]:
    yield _Row(first, node)
    for index, child in enumerate(node.children):
        is_last = index == len(node.children) - 1
        yield from _rows(
            child, rest + ("└─ " if is_last else "├─ "), rest + ("   " if is_last else "│  ")
        )


def _all(nodes: Sequence[TraceNode]) -> Iterator[TraceNode]:
    for node in nodes:
        yield node
        yield from _all(node.children)
