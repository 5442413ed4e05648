"""How inputs change the state: facts only, no choice.

Whatever is not of this moment is dropped here: results of other tries, of batches that are not
in flight, of workers that are gone.
"""

from bisect import insort
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from fastvideo.errors import (
    ContractViolation,
    DeadlineExceeded,
    FastVideoError,
    ResourceExhausted,
)
from fastvideo.requests.failures import error_detail
from fastvideo.scheduling.events import (
    BatchExecuted,
    LoopFailed,
    LoopPrepared,
    WorkerAttached,
    WorkerDraining,
    WorkerLost,
)
from fastvideo.scheduling.inputs import (
    CancelRequested,
    RequestSubmitted,
    SchedulerInput,
    Tick,
)
from fastvideo.scheduling.loop_scheduler import LoopPhase, LoopRun
from fastvideo.scheduling.state import Ending, LiveRequest, SchedulerState, Worker
from fastvideo.scheduling.work import (
    CancelScopeKind,
    LoopResult,
    StepResult,
    WorkPlan,
    WorkUnit,
)

DRAINING: Final = "DRAINING"
"""The reason that a worker gives when it takes no new request."""


def observe(state: SchedulerState, event: SchedulerInput, now: datetime) -> None:
    """Take in one input, and that it is now `now`."""
    match event:
        case RequestSubmitted():
            _submitted(state, event, now)
        case CancelRequested():
            _cancel_requested(state, event)
        case WorkerAttached():
            _attached(state, event)
        case WorkerDraining():
            _draining(state, event)
        case WorkerLost():
            worker = state.workers.get(event.worker_id)
            if worker is not None and event.incarnation in ("", worker.attached.incarnation):
                _lose(state, worker, event.reason)
        case LoopPrepared():
            _prepared(state, event, now)
        case LoopFailed():
            _loop_failed(state, event)
        case BatchExecuted():
            _executed(state, event, now)
        case Tick():
            pass
    _expire(state, now)


# -- requests ----------------------------------------------------------------------------


def _submitted(state: SchedulerState, event: RequestSubmitted, now: datetime) -> None:
    spec = event.spec
    if spec.request_id in state.requests:
        return
    state.arrivals += 1
    request = LiveRequest(
        spec=spec,
        graph=None,
        accepted_at=event.accepted_at or now,
        rank=state.rank_of(spec, state.arrivals, thrown_back=event.started_at is not None),
        attempt=event.attempts + 1,
        started_at=event.started_at,
        progress=event.progress,
    )
    try:
        if len(state.requests) >= state.policy.live_requests_max:
            raise ResourceExhausted(
                f"{len(state.requests)} requests are live, the most that the shard keeps",
                subject="live_requests",
            )
        request.graph = state.programs.select(spec)
    except FastVideoError as error:
        request.ending = Ending(error.reason, error_detail(error))
    state.requests[spec.request_id] = request
    state.touched_requests[spec.request_id] = None
    if spec.session_id:
        state.sessions.setdefault(spec.session_id, {})[spec.request_id] = None
    if spec.deadline is not None:
        insort(state.deadlines, (spec.deadline.timestamp(), spec.request_id))
    if request.ending is None:
        state.enqueue(request)


def _cancel_requested(state: SchedulerState, event: CancelRequested) -> None:
    targets: Iterable[str] = ()
    if event.scope.kind is CancelScopeKind.REQUEST:
        targets = (event.scope.target_id,)
    elif event.scope.kind is CancelScopeKind.SESSION:
        targets = tuple(state.sessions.get(event.scope.target_id, ()))
    for request_id in targets:
        request = state.requests.get(request_id)
        if request is not None:
            _end(state, request, Ending(event.reason))


def _expire(state: SchedulerState, now: datetime) -> None:
    for request in list(state.expired(now)):
        error = DeadlineExceeded(f"the deadline {request.spec.deadline} passed", subject="deadline")
        _end(state, request, Ending(error.reason, error_detail(error)))


def _end(state: SchedulerState, request: LiveRequest, ending: Ending) -> None:
    """Begin to end a request: the first reason counts, and its units wait no longer."""
    state.touched_requests[request.request_id] = None
    if request.ending is not None:
        return
    request.ending = ending
    worker = state.workers.get(request.worker_id)
    if worker is None:
        return
    for run in request.loops.values():
        for unit in run.waiting.values():
            if _is_held(request, unit):
                worker.queue(unit).remove(unit.unit_id)


def _is_held(request: LiveRequest, unit: WorkUnit) -> bool:
    """Whether an ending request stops before the unit."""
    ending = request.ending
    return ending is not None and (ending.error is not None or unit.cancel_boundary)


# -- workers -----------------------------------------------------------------------------


def _attached(state: SchedulerState, event: WorkerAttached) -> None:
    known = state.workers.get(event.worker_id)
    if known is not None:
        _lose(state, known, "it attached anew")
    worker = Worker(attached=event, ledger=state.admission.ledger(event))
    state.workers[event.worker_id] = worker
    state.placement.add(event.worker_id, event.instances, places=state.policy.resident_requests_max)
    for instance in event.instances:
        state.touched_models[instance.model_id] = None
    state.touched_workers[event.worker_id] = None


def _draining(state: SchedulerState, event: WorkerDraining) -> None:
    worker = state.workers.get(event.worker_id)
    if worker is not None:
        worker.draining = True
        state.placement.drain(event.worker_id)


def _lose(state: SchedulerState, worker: Worker, reason: str) -> None:
    del state.workers[worker.worker_id]
    state.placement.remove(worker.worker_id)
    state.touched_workers.pop(worker.worker_id, None)
    for request_id in worker.residents:
        request = state.requests[request_id]
        request.lost_reason = f"worker {worker.worker_id} was lost: {reason}"
        request.lost_boundary = state.loop_rules.boundary(request.loops)
        request.losses += 1
        request.loops = {}
        request.running = False
        request.worker_id = request.model_instance_id = ""
        state.touched_requests[request_id] = None


# -- loops and units ---------------------------------------------------------------------


def _prepared(state: SchedulerState, event: LoopPrepared, now: datetime) -> None:
    found = state.live(event.plan.loop)
    if found is None or found[0].worker_id != event.worker_id:
        return
    request, run = found
    if run.phase is not LoopPhase.PREPARING:
        return
    run.phase = LoopPhase.ACTIVE
    state.touched_requests[request.request_id] = None
    if event.plan.units:
        _offer(state, request, run, event.plan, now)
    else:
        # Nothing to run: the loop's outputs are what it was given.
        _finish_loop(request, run, LoopResult(loop=run.ref))


def _loop_failed(state: SchedulerState, event: LoopFailed) -> None:
    found = state.live(event.loop)
    if found is None or found[0].worker_id != event.worker_id:
        return
    request = found[0]
    if event.error.reason == DRAINING:
        # The request was placed before the worker's word of its end came.
        _draining(state, WorkerDraining(worker_id=event.worker_id))
        request.lost_reason = f"worker {event.worker_id} is draining"
        state.touched_requests[request.request_id] = None
    else:
        _end(state, request, Ending(event.error.reason, event.error))


def _executed(state: SchedulerState, event: BatchExecuted, now: datetime) -> None:
    worker = state.workers.get(event.worker_id)
    flight = worker.flights.pop(event.batch_id, None) if worker is not None else None
    if worker is None or flight is None:
        return
    worker.ledger.release(flight.amounts)
    state.touched_workers[worker.worker_id] = None
    results = {result.unit_id: result for result in event.results}
    share = event.measured_seconds / len(flight.units)
    for unit in flight.units:
        _settle(state, unit, results.get(unit.unit_id), share, now)
    if event.measured_seconds > 0 and all(result.error is None for result in event.results):
        first = flight.units[0]
        state.costs.measure(
            flight.model_id,
            first.cost_phase,
            first.cost_shape,
            len(flight.units),
            event.measured_seconds,
        )


def _settle(
    state: SchedulerState, unit: WorkUnit, result: StepResult | None, share: float, now: datetime
) -> None:
    """Take in the result of a unit that ran."""
    found = state.live(unit.loop)
    if found is None:
        return
    request, run = found
    if run.in_flight.pop(unit.unit_id, None) is None:
        return
    state.touched_requests[request.request_id] = None
    request.units += 1
    if unit.resources.compute:
        request.device_seconds += share
    if result is None:
        missing = ContractViolation(
            f"the worker gave no result for unit {unit.unit_id}", subject=unit.unit_id
        )
        _end(state, request, Ending(missing.reason, error_detail(missing)))
        return
    if result.error is not None:
        _end(state, request, Ending(result.error.reason, result.error))
        return
    run.steps_done += unit.step_range.stop - unit.step_range.start
    run.state_version = max(run.state_version, result.state_version)
    request.reached = (unit.loop.node_id, unit.step_range.stop, unit.step_range.total)
    if result.loop_result is not None:
        _finish_loop(request, run, result.loop_result)
    elif result.next_plan is not None:
        _offer(state, request, run, result.next_plan, now)
    if run.phase is LoopPhase.ACTIVE and not run.waiting and not run.in_flight:
        stuck = ContractViolation(
            f"loop {run.loop_id} has neither ended nor anything left to run",
            subject=run.loop_id,
        )
        _end(state, request, Ending(stuck.reason, error_detail(stuck)))


def _finish_loop(request: LiveRequest, run: LoopRun, result: LoopResult) -> None:
    run.phase = LoopPhase.ENDED
    request.walk_due = True
    run.result = result
    run.waiting.clear()
    request.artifact_ids.update(dict.fromkeys(result.artifact_ids))
    request.digests.update(result.digests)
    request.scores.update(result.scores)


def _offer(
    state: SchedulerState, request: LiveRequest, run: LoopRun, plan: WorkPlan, now: datetime
) -> None:
    """Let a plan's new units wait for their turn."""
    worker = state.workers[request.worker_id]
    try:
        units = state.loop_rules.offered(run, plan)
        for unit in units:
            state.admission.check_possible(unit, worker.ledger)
    except FastVideoError as error:
        _end(state, request, Ending(error.reason, error_detail(error)))
        return
    for unit in units:
        run.waiting[unit.unit_id] = unit
        run.steps = unit.step_range.total
        if not _is_held(request, unit):
            worker.queue(unit).add(unit, request.rank, running=request.running, now=now)
            state.touched_workers[worker.worker_id] = None
