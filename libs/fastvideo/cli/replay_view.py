"""How replays look: progress on standard error, the report on standard output."""

import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

from rich.markup import escape
from rich.progress import Progress, TimeElapsedColumn

from fastvideo.cli.counting import terminal_bar
from fastvideo.cli.failures import tell
from fastvideo.replay.types import Comparison, PolicyFigures, ReplayProgress, ReplayReport

# Differences that are shown one by one; --json has all.
SHOWN_MAX: Final = 10
SCHEDULER: Final = "scheduler"
# Lines of progress, where there is no terminal, come at most this often, in parts of the whole.
LINE_EVERY: Final = 0.25


class ReplayProgressView:
    """A bar on a terminal, lines elsewhere; differences are told as they are found."""

    def __init__(self) -> None:
        self._told = 0.0
        self._differing = 0
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            self._bar = terminal_bar(TimeElapsedColumn())
            self._task = self._bar.add_task("reading the log", total=None)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, told: ReplayProgress | Comparison) -> None:
        """Take up what a replay tells."""
        if isinstance(told, Comparison):
            if not told.equal:
                self._differing += 1
                if self._differing <= SHOWN_MAX:
                    tell(f"differs: {told.subject}")
        elif self._bar is not None:
            self._bar.update(
                self._task,
                description=escape(told.message),
                completed=told.done,
                total=told.total or None,
            )
        elif told.total and told.done / told.total >= self._told + LINE_EVERY:
            self._told = told.done / told.total
            tell(f"{self._told:4.0%} {told.message}")


def report_lines(report: ReplayReport) -> Iterator[str]:
    """The report for a person, as markup."""
    mark = "[green]equal[/]" if report.equal else "[red]different[/]"
    if report.policies:
        mark = "what if"
    yield f"{mark}  {escape(report.headline)}"
    if not report.policies:
        yield f"  compared   {report.compared}, of which {report.differing} differ"
    yield f"  promised   {report.promise.kind}: {escape(report.promise.reason)}"
    for name, difference in report.promise.differences.items():
        yield f"             {escape(name)}: {escape(difference)}"
    original = f", the original {report.original_seconds:.2f} s" if report.original_seconds else ""
    yield f"  took       {report.seconds:.2f} s{original}"
    for name, digest in report.digests.items():
        yield f"  digest     {escape(name)} {digest}"
    if report.original_traceparent:
        yield f"  trace      {report.original_traceparent.split('-')[1]}"
    yield from _policies(report.policies)
    yield from _differences(report)
    yield from _shown(report)


def _policies(policies: tuple[PolicyFigures, ...]) -> Iterator[str]:
    if not policies:
        return
    yield "  policy            requests   wait p50     p95  total p50     p95  utilised  batch"
    for one in policies:
        yield (
            f"  {one.policy:<17} {one.requests:>8} {one.wait_seconds_p50:>8.3f} s"
            f" {one.wait_seconds_p95:>7.3f} {one.total_seconds_p50:>8.3f} s"
            f" {one.total_seconds_p95:>7.3f} {one.utilisation:>8.0%} {one.mean_batch_size:>6.2f}"
        )


def _differences(report: ReplayReport) -> Iterator[str]:
    first = report.first_divergence
    if first is None:
        return
    yield f"[bold]first divergence: {escape(first.subject)}[/]"
    for name, value in (
        ("node", first.node_id),
        ("step", "" if first.step is None else str(first.step)),
        ("component", first.component),
        ("layer", first.layer),
        ("then", first.expected),
        ("now", first.found),
        ("apart", "" if first.max_abs_difference is None else f"{first.max_abs_difference:g}"),
        ("event", first.event_id),
        ("why", first.detail),
    ):
        if value:
            yield f"  {name:<10} {escape(value)}"
    others = [one for one in report.comparisons if not one.equal and one != first]
    for one in others[:SHOWN_MAX]:
        yield f"  also       {escape(one.subject)}"
    if len(others) > SHOWN_MAX:
        yield f"  and {report.differing - 1 - SHOWN_MAX} more; --json has them"


def _shown(report: ReplayReport) -> Iterator[str]:
    """What a replay of an earlier state shows: of the scheduler, a line for all that it knew."""
    shown = [one for one in report.comparisons if one.equal and one.detail]
    if len(report.comparisons) == 1:
        yield from (escape(one.detail) for one in shown)
    elif report.subject_id == SCHEDULER:
        yield from (f"  {escape(one.subject)}  {escape(one.detail)}" for one in shown)
