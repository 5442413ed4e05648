"""The rows of a waterfall in a terminal: what ran and what waited, cell by cell."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from fastvideo.explain.types import (
    ExplainedStage,
    ExplainedUnit,
    ExplainedWait,
    Explanation,
    WaitCause,
)

RUNS: Final = "█"
RUNS_SHORT: Final = "▌"
WAITS: Final = "░"
NOTHING: Final = "·"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the waterfall: a time in the queue, or a loop."""

    name: str
    ran: tuple[tuple[datetime, datetime], ...]
    waited: tuple[tuple[datetime, datetime], ...]
    waited_seconds: float
    note: str = ""
    stage: ExplainedStage | None = None


def rows(explanation: Explanation) -> list[Row]:
    """Times on no worker, and each loop of each placement, in the order of time."""
    several = len(explanation.attempts) > 1
    made: list[tuple[datetime, Row]] = [
        (wait.begun_at, _pause_row(wait, explanation.explained_at))
        for wait in explanation.waits
        if wait.cause in (WaitCause.PLACE, WaitCause.PREEMPTION, WaitCause.LOSS)
    ]
    units: dict[tuple[str, int, str], list[ExplainedUnit]] = {}
    for unit in explanation.units:
        units.setdefault((unit.node_id, unit.attempt, unit.worker_id), []).append(unit)
    for stage in explanation.stages:
        mine = units.get((stage.node_id, stage.attempt, stage.worker_id), [])
        row = _stage_row(stage, mine, explanation, named_with_try=several)
        made.append((stage.assigned_at, row))
    return [row for _, row in sorted(made, key=lambda pair: pair[0])]


def bar(row: Row, begin: datetime, total_s: float, cells: int) -> str:
    """The row as so many characters from `begin` over `total_s` seconds."""
    drawn = [NOTHING] * cells
    _fill(drawn, row.waited, begin, total_s, WAITS)
    _fill(drawn, row.ran, begin, total_s, RUNS)
    return "".join(drawn)


def _fill(
    drawn: list[str],
    spans: Iterable[tuple[datetime, datetime]],
    begin: datetime,
    total_s: float,
    mark: str,
) -> None:
    per_cell = total_s / len(drawn) if total_s > 0 else 1.0
    for start, stop in spans:
        first = int((start - begin).total_seconds() / per_cell)
        last = int((stop - begin).total_seconds() / per_cell)
        for cell in range(max(0, first), min(len(drawn) - 1, last) + 1):
            drawn[cell] = mark


def _pause_row(wait: ExplainedWait, until: datetime) -> Row:
    ended = min(until, _end(wait))
    note = wait.reason if not wait.position else f"position {wait.position}: {wait.reason}"
    return Row(str(wait.cause), (), ((wait.begun_at, ended),), wait.seconds, note)


def _stage_row(
    stage: ExplainedStage,
    units: Sequence[ExplainedUnit],
    explanation: Explanation,
    *,
    named_with_try: bool,
) -> Row:
    ran = [
        (unit.started_at, unit.ended_at or explanation.explained_at)
        for unit in units
        if unit.started_at is not None
    ]
    waited = [(wait.begun_at, _end(wait)) for unit in units for wait in unit.waits]
    name = f"{stage.node_id} #{stage.attempt}" if named_with_try else stage.node_id
    note = "" if stage.units else "nothing ran"
    if stage.restored_from:
        name = f"{name} from {stage.restored_from.rpartition(' ')[2]}"
    return Row(name, tuple(ran), tuple(waited), stage.waited_seconds, note, stage)


def _end(wait: ExplainedWait) -> datetime:
    return wait.begun_at + timedelta(seconds=wait.seconds)
