"""Loops summed up: the many units of one as a line."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Final

from fastvideo.explain.history import History
from fastvideo.explain.names import Names
from fastvideo.explain.records import LoopRecord, UnitRecord
from fastvideo.explain.totals import Timeline, predicted_seconds
from fastvideo.explain.types import ExplainedStage, StageMate
from fastvideo.explain.waits import Wait

MATES_MAX: Final = 16


def stages(history: History, laid_out: Timeline, names: Names) -> tuple[ExplainedStage, ...]:
    """One for each loop of each placement, in the order of their assignment."""
    by_loop: dict[int, list[UnitRecord]] = {id(loop): [] for loop in history.work.loops}
    for unit in history.work.units.values():
        by_loop[id(unit.loop)].append(unit)
    return tuple(
        _stage(loop, by_loop[id(loop)], laid_out.unit_waits, names) for loop in history.work.loops
    )


def _stage(
    loop: LoopRecord,
    units: Sequence[UnitRecord],
    waits: Mapping[str, tuple[Wait, ...]],
    names: Names,
) -> ExplainedStage:
    done = [unit for unit in units if unit.done]
    started = [at for unit in units if (at := unit.started_at) is not None]
    ended = [at for unit in done if (at := unit.ended_at) is not None]
    seconds = [unit.measured_seconds for unit in done] or [0.0]
    sizes = [unit.batch_size for unit in done] or [0]
    by_cause: Counter[str] = Counter()
    for unit in units:
        for wait in waits[unit.unit_id]:
            by_cause[wait.cause] += wait.seconds  # type: ignore[assignment]
    mates = Counter(mate for unit in done for mate in unit.mates)
    named, _ = names.split(mates)
    most = sorted(named, key=lambda id_: (-mates[id_], id_))[:MATES_MAX]
    return ExplainedStage(
        node_id=loop.ref.node_id,
        attempt=loop.ref.attempt,
        loop_id=loop.loop_id,
        kind=units[0].kind if units else None,
        worker_id=loop.worker_id,
        assigned_at=loop.assigned_at,
        prepared_at=loop.prepared_at,
        started_at=min(started, default=None),
        ended_at=max(ended, default=None),
        preparation_seconds=loop.preparation_seconds,
        restored_from=loop.restored_from,
        units=len(done),
        steps=max((unit.step_range.total for unit in units), default=0),
        seconds_min=min(seconds),
        seconds_median=median(seconds),
        seconds_max=max(seconds),
        predicted_seconds=sum(map(predicted_seconds, done)),
        measured_seconds=sum(unit.measured_seconds for unit in done),
        device_seconds=sum(unit.device_seconds for unit in done),
        waited_seconds=sum(by_cause.values()),
        waited_by_cause=dict(by_cause),
        batch_size_min=min(sizes),
        batch_size_mean=fmean(sizes),
        batch_size_max=max(sizes),
        mates=tuple(StageMate(request_id=id_, units=mates[id_]) for id_ in most),
        mate_count=len(mates),
        batches=len({unit.batch.batch_id for unit in done if unit.batch is not None}),
    )
