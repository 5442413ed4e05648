"""An explanation as lines for people: the sentence, the waterfall, with whom, and what it met."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from fastvideo.cli.waterfall import Row, bar, rows
from fastvideo.explain.headline import span
from fastvideo.explain.lanes import short
from fastvideo.explain.types import (
    ExplainedBatch,
    ExplainedStage,
    ExplainedUnit,
    ExplainedWait,
    Explanation,
    WaitCause,
)

# Waits that are told one by one.
LONGEST_MAX: Final = 5
MATES_TOLD_MAX: Final = 3
_CAUSES: Final[Mapping[str, str]] = {
    WaitCause.PLACE: "no place",
    WaitCause.RESOURCE: "a resource",
    WaitCause.BATCH: "other batches",
    WaitCause.PREEMPTION: "preempted",
    WaitCause.LOSS: "a loss",
    WaitCause.PREPARATION: "making the loop",
    WaitCause.DELIVERY: "messages",
}


def explanation_lines(
    explanation: Explanation, width: int, *, with_units: bool = False
) -> list[str]:
    """All lines, for a terminal of so many columns."""
    lines = [
        f"{explanation.request_id}  {explanation.status}  {explanation.model_id}  "
        f"{explanation.accepted_at:%Y-%m-%d %H:%M:%S} UTC",
        explanation.headline,
    ]
    if explanation.error is not None:
        lines.append(f"error: {explanation.error.reason}: {explanation.error.message}")
    lines += ["", *_waterfall(explanation, width), "", *_sums(explanation)]
    for part in (_longest(explanation), _story(explanation)):
        lines += ["", *part] if part else []
    if with_units:
        lines += ["", *_units(explanation)]
    if explanation.left_out:
        lines += ["", f"left out: {explanation.left_out}"]
    return lines


# -- the waterfall -----------------------------------------------------------------------


def _waterfall(explanation: Explanation, width: int) -> list[str]:
    shown = rows(explanation)
    names = max((len(row.name) for row in shown), default=0)
    cells = max(20, min(72, width - names - 67))
    total = span(explanation.totals.total_seconds)
    head = f"0 {'─' * max(0, cells - len(total) - 4)} {total}"
    lines = [
        f"{'':<{names}}  {head:<{cells}}  {'waited':>8}{'ran':>9}  "
        f"{'units':>5}  {'step min/med/max':<18}{'batch':>5}{'predicted':>11}"
    ]
    lines += [_row_line(row, explanation, names, cells) for row in shown]
    lines.append(f"{'':<{names}}  █ runs  ░ waits  · on no worker or not begun")
    return lines


def _row_line(row: Row, explanation: Explanation, names: int, cells: int) -> str:
    drawn = bar(row, explanation.accepted_at, explanation.totals.total_seconds, cells)
    line = (
        f"{row.name:<{names}}  {drawn}  {span(row.waited_seconds) if row.waited_seconds else '':>8}"
    )
    stage = row.stage
    if stage is None or not stage.units:
        return f"{line}{'':>9}  {row.note}".rstrip()
    steps = _milliseconds(stage.seconds_min, stage.seconds_median, stage.seconds_max)
    return (
        f"{line}{span(stage.measured_seconds):>9}  {stage.units:>5}  {steps:<18}"
        f"{stage.batch_size_mean:>5.1f}{span(stage.predicted_seconds):>11}"
    )


def _milliseconds(*seconds: float) -> str:
    digits = 0 if min(seconds) >= 0.01 else 1
    return "/".join(f"{value * 1000:.{digits}f}" for value in seconds) + " ms"


# -- sums, mates and waits ---------------------------------------------------------------


def _sums(explanation: Explanation) -> list[str]:
    sums = explanation.totals
    parts = [f"device {span(sums.device_busy_seconds)}", f"writing {span(sums.io_seconds)}"]
    parts += [
        f"{_CAUSES[cause]} {span(seconds)}"
        for cause, seconds in sorted(sums.waited_by_cause.items(), key=lambda item: -item[1])
    ]
    lines = [f"time       {', '.join(parts)}"]
    if sums.units:
        lines.append(
            f"steps      measured {span(sums.measured_seconds)}, predicted "
            f"{span(sums.predicted_seconds)}; half of the units within {sums.prediction_error:.0%}"
        )
        lines.append(
            f"share      {span(sums.device_seconds)} of the device's time is this request's"
        )
    mates = _mates(explanation.stages)
    if mates:
        named = [f"{id_} ({_count(units, 'unit')})" for id_, units in mates[:MATES_TOLD_MAX]]
        more = len(mates) - len(named)
        lines.append(f"shared     {', '.join(named)}{f' and {more} more' if more > 0 else ''}")
    return lines


def _mates(stages: Iterable[ExplainedStage]) -> list[tuple[str, int]]:
    units: dict[str, int] = {}
    for stage in stages:
        for mate in stage.mates:
            units[mate.request_id] = units.get(mate.request_id, 0) + mate.units
    return sorted(units.items(), key=lambda item: -item[1])


def _longest(explanation: Explanation) -> list[str]:
    """The waits that cost most, with what they were for."""
    found = [(wait, "the request") for wait in explanation.waits]
    found += [(wait, _unit_name(unit)) for unit in explanation.units for wait in unit.waits]
    found.sort(key=lambda pair: -pair[0].seconds)
    batches = {batch.batch_id: batch for batch in explanation.batches}
    least = max(0.001, 0.01 * explanation.totals.total_seconds)
    return [
        f"{'waits' if place == 0 else '':<10} {_at(wait.begun_at, explanation):>8}  "
        f"{span(wait.seconds):>8}  {name}: {_why(wait, batches)}"
        for place, (wait, name) in enumerate(found[:LONGEST_MAX])
        if wait.seconds >= least
    ]


def _why(wait: ExplainedWait, batches: Mapping[str, ExplainedBatch]) -> str:
    told = wait.reason or _CAUSES[wait.cause]
    if wait.position:
        told = f"position {wait.position} in the queue, {told}"
    behind = [batches[id_] for id_ in wait.batch_ids if id_ in batches]
    if behind:
        whose = dict.fromkeys(id_ for batch in behind for id_ in batch.request_ids)
        kinds = dict.fromkeys(batch.kind for batch in behind)
        ids = ", ".join(map(short, list(whose)[:3])) + (" ..." if len(whose) > 3 else "")
        told += f": {_count(wait.batches, 'batch', 'batches')} of {', '.join(kinds)} for {ids}"
    return told


def _story(explanation: Explanation) -> list[str]:
    """What it met, where that was more than beginning and ending."""
    told = [
        (mark.at, f"{mark.name}{f': {mark.text}' if mark.text else ''}")
        for mark in explanation.marks
    ]
    told += [
        (attempt.begun_at, f"went on at {attempt.resumed_from} on {attempt.worker_id}")
        for attempt in explanation.attempts
        if attempt.resumed_from
    ]
    told.sort(key=lambda one: one[0])
    return [
        f"{'story' if place == 0 else '':<10} {_at(at, explanation):>8}  {text}"
        for place, (at, text) in enumerate(told)
    ]


# -- units -------------------------------------------------------------------------------


def _units(explanation: Explanation) -> list[str]:
    lines = [
        f"{'unit':<22}{'ready':>9}{'waited':>9}{'start':>9}{'ran':>9}{'predicted':>10}"
        f"  {'batch':<10}{'size':>4}  window  with"
    ]
    lines += [_unit_line(unit, explanation) for unit in explanation.units]
    more = explanation.unit_count - len(explanation.units)
    return [*lines, f"... and {more} units more"] if more > 0 else lines


def _unit_line(unit: ExplainedUnit, explanation: Explanation) -> str:
    with_ = [short(id_) for id_ in unit.shared_with]
    if unit.shared_with_others:
        with_.append(f"{unit.shared_with_others} of other tenants")
    hits = "".join(f" {look.cache_class}:{look.outcome}" for look in unit.cache_lookups)
    outcome = "" if unit.outcome == "done" else f" [{unit.outcome}]"
    return (
        f"{_unit_name(unit):<22}{_at(unit.ready_at, explanation):>9}"
        f"{span(unit.waited_seconds):>9}{_at(unit.started_at, explanation):>9}"
        f"{span(unit.measured_seconds):>9}{span(unit.predicted_seconds):>10}"
        f"  {unit.batch_id:<10}{unit.batch_size:>4}  {unit.window_position:>6}  "
        f"{', '.join(with_)}{hits}{outcome}"
    ).rstrip()


def _unit_name(unit: ExplainedUnit) -> str:
    tries = f" try {unit.attempt}" if unit.attempt > 1 else ""
    return f"{unit.node_id} {unit.step_range.stop}/{unit.step_range.total}{tries}"


def _at(moment: datetime | None, explanation: Explanation) -> str:
    """A moment, from acceptance on."""
    if moment is None:
        return "-"
    return f"+{max(0.0, (moment - explanation.accepted_at).total_seconds()):.3f}"


def _count(number: int, word: str, words: str = "") -> str:
    return f"{number} {word if number == 1 else words or word + 's'}"
