"""The lanes of a waterfall picture: what each shows, before anything is drawn."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from fastvideo.explain.headline import span
from fastvideo.explain.types import (
    ExplainedBatch,
    ExplainedStage,
    ExplainedUnit,
    ExplainedWait,
    Explanation,
    UnitOutcome,
    WaitCause,
)
from fastvideo.scheduling.work import UnitKind

MATE_LANES_MAX: Final = 8
ON_NO_WORKER: Final = (WaitCause.PLACE, WaitCause.PREEMPTION, WaitCause.LOSS)


@dataclass(frozen=True, slots=True)
class Bar:
    """A piece of a lane; seconds since the request was accepted."""

    start_s: float
    seconds: float
    # What ran, or why nothing did.
    shows: UnitKind | WaitCause
    # The unit that ran or waited, and the batch that ran; empty where there is none.
    unit_id: str = ""
    batch_id: str = ""


@dataclass(slots=True)
class Lane:
    """One line of the picture."""

    # The worker it is on, or another heading.
    group: str
    name: str
    bars: list[Bar] = field(default_factory=list)
    # What is said of it at the right.
    note: str = ""
    # Drawn thinner and paler: it is not the request's own.
    is_other: bool = False


def lanes(explanation: Explanation) -> list[Lane]:
    """From top to bottom: the queue, each worker's loops and other batches, who shared steps."""
    made = _queue(explanation)
    several = len(explanation.attempts) > 1
    units: dict[tuple[str, int, str], list[ExplainedUnit]] = {}
    for unit in explanation.units:
        units.setdefault((unit.node_id, unit.attempt, unit.worker_id), []).append(unit)
    for worker_id in dict.fromkeys(stage.worker_id for stage in explanation.stages):
        for stage in explanation.stages:
            if stage.worker_id == worker_id:
                mine = units.pop((stage.node_id, stage.attempt, worker_id), [])
                made.append(_stage(stage, mine, explanation, several=several))
        made += _others(worker_id, explanation)
    return made + _mates(explanation)


def since(moment: datetime, explanation: Explanation) -> float:
    """Seconds from acceptance to a moment."""
    return (moment - explanation.accepted_at).total_seconds()


def short(request_id: str) -> str:
    """The end of an id, which tells requests of one time apart."""
    return f"…{request_id[-6:]}"


def _queue(explanation: Explanation) -> list[Lane]:
    waits = [wait for wait in explanation.waits if wait.cause in ON_NO_WORKER]
    if not waits:
        return []
    longest = max(waits, key=lambda wait: wait.seconds)
    note = f"waited {span(sum(wait.seconds for wait in waits))}"
    if longest.position:
        note += f", position {longest.position}"
    return [Lane("on no worker", "queue", [_wait(wait, explanation) for wait in waits], note)]


def _stage(
    stage: ExplainedStage,
    units: Sequence[ExplainedUnit],
    explanation: Explanation,
    *,
    several: bool,
) -> Lane:
    name = f"{stage.node_id} #{stage.attempt}" if several else stage.node_id
    lane = Lane(stage.worker_id, name)
    lane.bars += [
        _wait(wait, explanation)
        for wait in explanation.waits
        if wait.cause is WaitCause.PREPARATION
        and stage.assigned_at <= wait.begun_at
        and wait.begun_at <= (stage.prepared_at or explanation.explained_at)
    ]
    for unit in units:
        lane.bars += [_wait(wait, explanation, unit.unit_id) for wait in unit.waits]
    for unit in units:
        if unit.started_at is not None and unit.outcome is not UnitOutcome.DROPPED:
            end = unit.ended_at or explanation.explained_at
            start_s = since(unit.started_at, explanation)
            seconds = since(end, explanation) - start_s
            lane.bars.append(Bar(start_s, seconds, unit.kind, unit.unit_id, unit.batch_id))
    lane.note = _figures(stage)
    return lane


def _figures(stage: ExplainedStage) -> str:
    if not stage.units:
        return "nothing ran"
    figures = f"{stage.units} unit{'' if stage.units == 1 else 's'}, ran "
    figures += f"{span(stage.measured_seconds)} ({off(stage)}), waited {span(stage.waited_seconds)}"
    if stage.batch_size_max > 1:
        figures += f", batches of {stage.batch_size_mean:.1f}"
    return figures


def off(stage: ExplainedStage) -> str:
    """How far the measured seconds were from the predicted, such as "8% over prediction"."""
    if stage.predicted_seconds <= 0:
        return "not predicted"
    part = stage.measured_seconds / stage.predicted_seconds - 1
    return f"{abs(part):.0%} {'over' if part > 0 else 'under'} prediction"


def _others(worker_id: str, explanation: Explanation) -> list[Lane]:
    """The batches that it waited behind."""
    mine = {unit.batch_id for unit in explanation.units}
    behind = [
        batch
        for batch in explanation.batches
        if batch.worker_id == worker_id and batch.batch_id not in mine
    ]
    bars = [bar for batch in behind if (bar := _batch(batch, explanation)) is not None]
    if not bars:
        return []
    whose = {id_ for batch in behind for id_ in batch.request_ids}
    note = f"{len(bars)} batches of {len(whose)} other requests"
    return [Lane(worker_id, "other batches", bars, note, is_other=True)]


def _mates(explanation: Explanation) -> list[Lane]:
    """Those that shared most steps, and when."""
    units = [unit for unit in explanation.units if unit.outcome is UnitOutcome.DONE]
    count = Counter(id_ for unit in units for id_ in unit.shared_with)
    made = []
    for request_id, shared in count.most_common(MATE_LANES_MAX):
        bars = [
            Bar(since(unit.started_at, explanation), unit.measured_seconds, unit.kind)
            for unit in units
            if request_id in unit.shared_with and unit.started_at is not None
        ]
        note = f"shared {shared} unit{'' if shared == 1 else 's'}"
        made.append(Lane("ran together with", short(request_id), bars, note, is_other=True))
    more = len(count) - len(made)
    if more > 0:
        made[-1].note += f"; {more} more shared fewer"
    return made


def _batch(batch: ExplainedBatch, explanation: Explanation) -> Bar | None:
    if batch.started_at is None:
        return None
    end = batch.ended_at or explanation.explained_at
    start_s = since(batch.started_at, explanation)
    seconds = since(end, explanation) - start_s
    return Bar(start_s, seconds, batch.kind, batch_id=batch.batch_id)


def _wait(wait: ExplainedWait, explanation: Explanation, unit_id: str = "") -> Bar:
    return Bar(since(wait.begun_at, explanation), wait.seconds, wait.cause, unit_id)


def kinds(made: Iterable[Lane]) -> list[UnitKind]:
    """The kinds of work that lanes show, each once."""
    shown = (bar.shows for lane in made for bar in lane.bars)
    return list(dict.fromkeys(show for show in shown if isinstance(show, UnitKind)))


def causes(made: Iterable[Lane]) -> list[WaitCause]:
    """The causes of waiting that lanes show, each once."""
    shown = (bar.shows for lane in made for bar in lane.bars)
    return list(dict.fromkeys(show for show in shown if isinstance(show, WaitCause)))
