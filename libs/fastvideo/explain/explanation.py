"""An explanation put together: sums, stages and marks whole, units page by page."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fastvideo.explain.headline import headline
from fastvideo.explain.history import History
from fastvideo.explain.names import Names
from fastvideo.explain.records import AttemptRecord, BatchRecord, UnitRecord
from fastvideo.explain.stages import stages
from fastvideo.explain.totals import Timeline, predicted_seconds, totals
from fastvideo.explain.types import (
    ExplainedAttempt,
    ExplainedBatch,
    ExplainedUnit,
    ExplainedWait,
    Explanation,
    UnitOutcome,
)
from fastvideo.explain.waits import BATCHES_PER_WAIT_MAX, Wait
from fastvideo.requests.types import RequestState


@dataclass(frozen=True, slots=True)
class Page:
    """Which units are told: so many from that place on, counted from 0."""

    first: int = 0
    size: int = 500


def explain(
    state: RequestState,
    history: History,
    laid_out: Timeline,
    names: Names,
    *,
    page: Page | None = None,
    events_read: int = 0,
    left_out: str = "",
) -> Explanation:
    """Explain a request as it stands in the log, up to where its history is laid out.

    `names` says which other requests may be named; the rest are counted.
    """
    page = page or Page()
    units = tuple(history.work.units.values())
    shown = units[page.first : page.first + page.size]
    sums = totals(history, laid_out)
    marks = tuple(replace(mark, text=names.clean(mark.text)) for mark in history.course.marks)
    return Explanation(
        request_id=state.spec.request_id,
        status=state.status,
        model_id=state.spec.model_id,
        program_id=state.spec.program_id,
        tenant_id=state.spec.tenant_id,
        session_id=state.spec.session_id,
        priority=state.spec.priority,
        deadline=state.spec.deadline,
        accepted_at=laid_out.begin,
        queued_at=next((mark.at for mark in marks if mark.name == "queued"), None),
        started_at=state.started_at,
        ended_at=history.course.ended_at or state.ended_at,
        explained_at=laid_out.end,
        headline=names.clean(headline(history, laid_out, sums)),
        totals=sums,
        metrics=state.metrics,
        error=state.error,
        attempts=tuple(_attempt(attempt, names) for attempt in history.course.attempts),
        stages=stages(history, laid_out, names),
        marks=marks,
        waits=_waits(laid_out.other_waits, names),
        waiting=_waiting(laid_out, history, names),
        units=tuple(_unit(unit, laid_out.unit_waits[unit.unit_id], names) for unit in shown),
        unit_count=len(units),
        batches=_batches(shown, laid_out, names),
        events_read=events_read,
        left_out=left_out,
    )


def others(history: History, laid_out: Timeline) -> frozenset[str]:
    """All other requests that an explanation of this one could name."""
    found = {mate for unit in history.work.units.values() for mate in unit.mates}
    for wait in _all_waits(laid_out):
        found.update(*(batch.request_ids for batch in wait.behind[:BATCHES_PER_WAIT_MAX]))
    return frozenset(found - {history.request_id})


def _all_waits(laid_out: Timeline) -> Sequence[Wait]:
    of_units = (wait for waits in laid_out.unit_waits.values() for wait in waits)
    return (*laid_out.other_waits, *of_units)


def _waits(waits: Sequence[Wait], names: Names) -> tuple[ExplainedWait, ...]:
    explained = (wait.explained() for wait in waits)
    return tuple(replace(wait, reason=names.clean(wait.reason)) for wait in explained)


def _waiting(laid_out: Timeline, history: History, names: Names) -> ExplainedWait | None:
    now = laid_out.now()
    if history.course.ended_at is not None or now.wait is None:
        return None
    return _waits([now.wait], names)[0]


def _attempt(attempt: AttemptRecord, names: Names) -> ExplainedAttempt:
    return ExplainedAttempt(
        attempt=attempt.attempt,
        worker_id=attempt.worker_id,
        model_instance_id=attempt.model_instance_id,
        begun_at=attempt.begun_at,
        ended_at=attempt.ended_at,
        end=names.clean(attempt.end),
        resumed_from=attempt.resumed_from,
        units=attempt.units,
    )


def _unit(unit: UnitRecord, waits: Sequence[Wait], names: Names) -> ExplainedUnit:
    batch = unit.batch
    mates, mates_of_others = names.split(unit.mates)
    return ExplainedUnit(
        unit_id=unit.unit_id,
        node_id=unit.loop.ref.node_id,
        attempt=unit.loop.ref.attempt,
        loop_id=unit.loop.loop_id,
        kind=unit.kind,
        step_range=unit.step_range,
        worker_id=unit.loop.worker_id,
        outcome=_outcome(unit),
        ready_at=unit.ready_at,
        dispatched_at=None if batch is None else batch.dispatched_at,
        started_at=unit.started_at,
        ended_at=unit.ended_at,
        waits=_waits(waits, names),
        waited_seconds=sum(wait.seconds for wait in waits),
        batch_id="" if batch is None else batch.batch_id,
        batch_size=unit.batch_size,
        shared_with=mates,
        shared_with_others=mates_of_others,
        window_position=unit.window_position,
        predicted_seconds=predicted_seconds(unit),
        measured_seconds=unit.measured_seconds,
        device_seconds=unit.device_seconds,
        cache_lookups=unit.lookups,
        error=unit.error,
    )


def _outcome(unit: UnitRecord) -> UnitOutcome:
    if unit.done:
        return UnitOutcome.FAILED if unit.error is not None else UnitOutcome.DONE
    if unit.dropped_at is not None:
        return UnitOutcome.DROPPED
    return UnitOutcome.WAITING if unit.batch is None else UnitOutcome.RUNNING


def _batches(
    shown: Sequence[UnitRecord], laid_out: Timeline, names: Names
) -> tuple[ExplainedBatch, ...]:
    """Every batch that these units and the request's own waits name, each once."""
    found: dict[str, BatchRecord] = {}
    for unit in shown:
        if unit.batch is not None:
            found[unit.batch.batch_id] = unit.batch
    waits = [wait for unit in shown for wait in laid_out.unit_waits[unit.unit_id]]
    for wait in (*laid_out.other_waits, *waits):
        for batch in wait.behind[:BATCHES_PER_WAIT_MAX]:
            found[batch.batch_id] = batch
    return tuple(_batch(batch, names) for batch in found.values())


def _batch(batch: BatchRecord, names: Names) -> ExplainedBatch:
    request_ids, of_others = names.split(batch.request_ids)
    return ExplainedBatch(
        batch_id=batch.batch_id,
        worker_id=batch.worker_id,
        kind=batch.kind,
        request_ids=request_ids,
        requests_of_others=of_others,
        units=batch.units,
        steps=batch.steps,
        window=batch.window,
        dispatched_at=batch.dispatched_at,
        started_at=batch.started_at,
        ended_at=batch.ended_at,
        predicted_seconds=batch.predicted_seconds,
        measured_seconds=batch.measured_seconds,
        forwards=batch.forwards,
        yield_reason=names.clean(batch.yield_reason),
    )
