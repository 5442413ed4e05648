"""What a unit, a loop or a request waited for: spans of time without gaps, each with its cause."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from fastvideo.explain.history import History
from fastvideo.explain.records import BatchRecord, LoopRecord, Pause, UnitRecord
from fastvideo.explain.types import ExplainedWait, WaitCause

BATCHES_PER_WAIT_MAX: Final = 16
# Shorter than what clocks tell apart.
SECONDS_MIN: Final = 1e-6
# Between two batches of a worker there is always a message's way.
GAP: Final = timedelta(seconds=0.02)


@dataclass(frozen=True, slots=True)
class Wait:
    """A span of time in which something waited."""

    cause: WaitCause
    begin: datetime
    end: datetime
    reason: str = ""
    position: int = 0
    # What had the worker meanwhile.
    behind: tuple[BatchRecord, ...] = ()

    @property
    def seconds(self) -> float:
        """How long it was."""
        return (self.end - self.begin).total_seconds()

    def explained(self) -> ExplainedWait:
        """As it is told."""
        return ExplainedWait(
            cause=self.cause,
            begun_at=self.begin,
            seconds=self.seconds,
            reason=self.reason,
            position=self.position,
            batch_ids=tuple(batch.batch_id for batch in self.behind[:BATCHES_PER_WAIT_MAX]),
            batches=len(self.behind),
        )


def unit_waits(history: History, unit: UnitRecord, now: datetime) -> tuple[Wait, ...]:
    """From ready to started, or to dropped, or to now; none for a later step of a window."""
    if unit.ready_at is None or unit.window_position > 1:
        return ()
    dispatched_at = None if unit.batch is None else unit.batch.dispatched_at
    given_up_at = unit.dropped_at or now
    queued_until = dispatched_at or unit.started_at or given_up_at
    waits = list(_queued(history, unit, unit.ready_at, queued_until))
    if unit.batch is not None and dispatched_at is not None:
        waits += _under_way(history, unit, unit.batch, dispatched_at, given_up_at)
    return _kept(waits)


def loop_waits(history: History, loop: LoopRecord, now: datetime) -> tuple[Wait, ...]:
    """From its assignment to its being prepared."""
    until = loop.prepared_at or loop.dropped_at or now
    begun = until
    if loop.prepared_at is not None:
        begun = max(loop.assigned_at, until - timedelta(seconds=loop.preparation_seconds))
    waits = [*_behind(history, loop.worker_id, loop.assigned_at, begun)]
    waits.append(
        Wait(WaitCause.PREPARATION, begun, until, f"{loop.worker_id} makes {loop.ref.node_id}")
    )
    return _kept(waits)


def pause_waits(pause: Pause, now: datetime) -> tuple[Wait, ...]:
    """A time on no worker: on its way to the scheduler, then in the queue."""
    until = pause.ended_at or now
    if pause.cause is WaitCause.PREEMPTION or not pause.told:
        cause = WaitCause.DELIVERY if pause.cause is WaitCause.PLACE else pause.cause
        return _kept([Wait(cause, pause.begun_at, until, pause.reason)])
    told_at, position, _ = pause.told[0]
    before = WaitCause.DELIVERY if pause.cause is WaitCause.PLACE else pause.cause
    return _kept(
        [
            Wait(before, pause.begun_at, told_at, pause.reason),
            Wait(WaitCause.PLACE, told_at, until, pause.told[-1][2], position),
        ]
    )


def late_reports(history: History) -> tuple[Wait, ...]:
    """From a batch's end to its report, where the stream to its worker was gone meanwhile."""
    batches = {
        unit.batch.batch_id: unit.batch
        for unit in history.work.units.values()
        if unit.batch is not None
    }
    return _kept(
        Wait(WaitCause.LOSS, batch.ended_at, batch.reported_at, "nobody took its report")
        for batch in batches.values()
        if batch.held_up_at is not None
        and batch.ended_at is not None
        and batch.reported_at is not None
    )


def _queued(history: History, unit: UnitRecord, begin: datetime, end: datetime) -> Iterator[Wait]:
    """Until it is dispatched: pauses of the request, then what it was deferred for, else others."""
    for pause in sorted(
        [*history.course.pauses, *history.course.absences], key=lambda one: one.begun_at
    ):
        paused_until = pause.ended_at or end
        if paused_until <= begin or pause.begun_at >= end:
            continue
        yield from _offered(history, unit, begin, max(begin, pause.begun_at))
        reason = pause.reason or (pause.told[-1][2] if pause.told else "")
        yield Wait(pause.cause, max(begin, pause.begun_at), min(end, paused_until), reason)
        begin = min(end, paused_until)
    yield from _offered(history, unit, begin, end)


def _offered(history: History, unit: UnitRecord, begin: datetime, end: datetime) -> Iterator[Wait]:
    """On a worker and not dispatched: behind others, then for each resource that is named."""
    worker_id = unit.loop.worker_id
    told = [(at, reason) for at, reason in unit.deferrals if begin <= at < end]
    yield from _behind(history, worker_id, begin, told[0][0] if told else end, unit.batch)
    for place, (at, reason) in enumerate(told):
        until = told[place + 1][0] if place + 1 < len(told) else end
        behind = tuple(history.workers.behind(worker_id, at, until, but=unit.batch))
        yield Wait(WaitCause.RESOURCE, at, until, reason, behind=behind)


def _under_way(
    history: History,
    unit: UnitRecord,
    batch: BatchRecord,
    dispatched_at: datetime,
    given_up_at: datetime,
) -> Iterator[Wait]:
    """From its dispatch to its start on the worker."""
    started_at = batch.started_at
    unheard_of = unit.dropped_at is not None and batch.reported_at is None
    if unheard_of or started_at is None:
        yield Wait(WaitCause.LOSS, dispatched_at, given_up_at, "what ran was lost")
        return
    there = min(started_at, batch.arrived_at or started_at)
    yield Wait(WaitCause.DELIVERY, dispatched_at, there)
    behind = tuple(history.workers.behind(batch.worker_id, there, started_at, but=batch))
    yield Wait(WaitCause.BATCH, there, started_at, "in the worker's queue", behind=behind)


def _behind(
    history: History,
    worker_id: str,
    begin: datetime,
    end: datetime,
    own: BatchRecord | None = None,
) -> Iterator[Wait]:
    """A wait for whatever ran on a worker, and for nothing but messages where nothing did."""
    batches = history.workers.behind(worker_id, begin, end, but=own)
    batches.sort(key=lambda batch: batch.started_at or begin)
    ran: list[BatchRecord] = []
    since = until = begin
    for batch in batches:
        started = max(begin, batch.started_at or begin)
        if started > until + GAP:
            if ran:
                yield Wait(WaitCause.BATCH, since, until, behind=tuple(ran))
            yield Wait(WaitCause.DELIVERY, until, started)
            ran, since = [], started
        ran.append(batch)
        until = max(until, min(end, batch.ended_at or end))
    if not ran:
        yield Wait(WaitCause.DELIVERY, since, end)
    elif end > until + GAP:
        yield Wait(WaitCause.BATCH, since, until, behind=tuple(ran))
        yield Wait(WaitCause.DELIVERY, until, end)
    else:
        yield Wait(WaitCause.BATCH, since, end, behind=tuple(ran))


def _kept(waits: Iterable[Wait]) -> tuple[Wait, ...]:
    return tuple(wait for wait in waits if wait.seconds >= SECONDS_MIN)
