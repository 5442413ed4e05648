"""How decisions change the state.

`EVOLVER_VERSION` names the meaning of this fold and of `observe`: with the same inputs and
decisions, programs of one version come to the same state. Snapshots carry it and are refused by
programs of another, which fold the log instead. A test holds the digest of a fixed history beside
it, so that a change of the fold is not made without a new version.
"""

from bisect import bisect_left
from dataclasses import replace
from datetime import datetime
from typing import Final

from fastvideo.errors import ResourceExhausted
from fastvideo.scheduling.admission import (
    RESIDENT,
    SECONDS,
    add_amounts,
    slot_of,
    subtract_amounts,
)
from fastvideo.scheduling.affinity import session_key
from fastvideo.scheduling.cancellation import skip_loop
from fastvideo.scheduling.cost import price_request, request_phase, request_shape
from fastvideo.scheduling.effects import SET_ASIDE
from fastvideo.scheduling.events import (
    AssignLoop,
    CancelLoop,
    CancelRequest,
    CancelStream,
    CompleteRequest,
    Decision,
    DeferLoop,
    DispatchBatch,
    FailRequest,
    PreemptRequest,
    QueueRequest,
    ReleaseRequest,
    ReportProgress,
    RestartRequest,
    SnapshotRequest,
    StartRequest,
    YieldBatch,
)
from fastvideo.scheduling.loop_scheduler import LoopRun
from fastvideo.scheduling.movement import begin_saving, keep_done, leave
from fastvideo.scheduling.queueing import charge_place, kind_bill, settle_place
from fastvideo.scheduling.relief import note_relief
from fastvideo.scheduling.state import Flight, LiveRequest, SchedulerState
from fastvideo.scheduling.wishes import learn_needs, need_key

EVOLVER_VERSION: Final = 3


def evolve(state: SchedulerState, decision: Decision, now: datetime) -> None:
    """Take in one decision, made at `now`."""
    match decision:
        case QueueRequest():
            _queued(state, decision, now)
        case AssignLoop():
            _assign(state, decision, now)
        case SnapshotRequest() | PreemptRequest():
            begin_saving(state, decision)
        case StartRequest():
            _start(state, decision, now)
        case DispatchBatch():
            _dispatch(state, decision, now)
        case YieldBatch():
            flights = state.workers[decision.worker_id].flights
            flights[decision.batch_id] = replace(flights[decision.batch_id], yielding=True)
        case CancelLoop():
            skip_loop(state, decision)
        case CancelStream():
            state.requests[decision.request_id].muted_told[decision.name] = None
        case DeferLoop():
            request = state.requests[decision.loop.request_id]
            state.workers[request.worker_id].deferred[decision.loop] = decision.reason
        case ReportProgress():
            state.requests[decision.request_id].progress = decision.fraction
        case ReleaseRequest():
            _release(state, decision)
        case RestartRequest():
            _restart(state, decision)
        case CompleteRequest():
            request = state.requests[decision.request_id]
            _learn_request(state, request)
            _forget(state, request)
        case FailRequest():
            request = state.requests[decision.request_id]
            if request.needs and decision.error.reason == ResourceExhausted.default_reason:
                learn_needs(state, request)
                _look_again(state, request)
            _forget(state, request)
        case CancelRequest():
            _forget(state, state.requests[decision.request_id])


def _queued(state: SchedulerState, decision: QueueRequest, now: datetime) -> None:
    request = state.requests[decision.request_id]
    request.queued_position = decision.position
    request.queued_reason = decision.reason
    if decision.request_id in state.lines.untold:
        del state.lines.untold[decision.request_id]
    elif not request.worker_id:
        state.lines.told_at[request.place_kind] = now.timestamp()


def _assign(state: SchedulerState, decision: AssignLoop, now: datetime) -> None:
    request = state.requests[decision.loop.request_id]
    if not request.worker_id:
        worker = state.workers[decision.worker_id]
        worker.ledger.reserve({RESIDENT: 1})
        worker.residents[request.request_id] = None
        state.occupy(request, worker, now)
        request.load_seconds = price_request(state.costs, request.spec)
        state.placement.occupy(
            decision.worker_id,
            request.load_seconds,
            decision.model_instance_id,
            state.policy.class_level(request.spec.priority),
        )
        session = session_key(request.spec)
        if session:
            keys_max = state.policy.affinity_keys_max
            state.affinity.learn(decision.worker_id, (session,), keys_max)
        note_relief(state, request, worker, now)
        state.dequeue(request)
        charge_place(state, request)
        request.muted_told = {}
        request.worker_id = decision.worker_id
        request.model_instance_id = decision.model_instance_id
    request.loops[decision.loop.node_id] = LoopRun(
        decision.loop, decision.loop_id, restore=decision.restore
    )
    # A window of the worker ends, since the loop is made only behind it.
    state.touched_workers[decision.worker_id] = None


def _start(state: SchedulerState, decision: StartRequest, now: datetime) -> None:
    request = state.requests[decision.request_id]
    request.running = True
    request.started_at = request.started_at or now
    worker = state.workers[request.worker_id]
    for run in request.loops.values():
        for unit in run.waiting.values():
            worker.queue(unit).promote_unit(unit.unit_id)


def _dispatch(state: SchedulerState, decision: DispatchBatch, now: datetime) -> None:
    worker = state.workers[decision.worker_id]
    units = []
    bills = []
    amounts: dict[str, float] = {}
    for unit_id, ref in zip(decision.unit_ids, decision.loops, strict=True):
        run = state.requests[ref.request_id].loops[ref.node_id]
        unit = run.waiting.pop(unit_id)
        run.in_flight[unit_id] = unit
        ready = worker.queue(unit).units[unit_id]
        amounts = add_amounts(amounts or {slot_of(unit): 1}, ready.amounts)
        if ready.kept:
            run.kept = add_amounts(run.kept, ready.kept)
            amounts = subtract_amounts(amounts, ready.kept)
            worker.ledger.reserve(ready.kept)
        worker.deferred.pop(ref, None)
        units.append(unit)
        bills.append(ready.bill)
    first = units[0]
    seconds = decision.predicted_seconds
    if first.resources.compute and seconds > 0:
        amounts[SECONDS] = round(min(seconds, worker.ledger.budget.get(SECONDS, seconds)), 6)
    worker.ledger.reserve(amounts)
    charged = kind_bill(state, decision.kind, bills[0].priority, seconds)
    starving_s = state.policy.starving_wait_seconds_max
    worker.queue(first).dispatch(decision.unit_ids, now, starving_s, charged)
    worker.flights[decision.batch_id] = Flight(
        model_id=state.requests[decision.loops[0].request_id].spec.model_id,
        units=tuple(units),
        amounts=amounts,
        bills=tuple(bills),
        kind_bill=charged,
        window=max(1, decision.window),
    )
    state.batches += 1


def _release(state: SchedulerState, decision: ReleaseRequest) -> None:
    if decision.forget:
        # None of it was known here.
        state.workers[decision.worker_id].unwanted.pop((decision.request_id, decision.attempt))
        return
    leave(state, state.requests[decision.request_id], state.workers[decision.worker_id])


def _restart(state: SchedulerState, decision: RestartRequest) -> None:
    request = state.requests[decision.request_id]
    request.attempt = decision.attempt
    # It has waited once; it does not go behind those that came while it ran, unless it was to.
    if not request.lost_reason.startswith(SET_ASIDE):
        request.rank = request.rank._replace(thrown_back=0)
    request.lost_reason = request.lost_boundary = ""
    keep_done(request)
    request.loops = {}
    request.running = False
    state.enqueue(request)
    state.touched_requests[request.request_id] = None


def _learn_request(state: SchedulerState, request: LiveRequest) -> None:
    if request.attempt == 1:
        # Of one that went on from a snapshot not all was declared.
        learn_needs(state, request)
    if request.device_seconds > 0 and request.losses == 0:
        spec = request.spec
        state.costs.measure(
            spec.model_id, request_phase(spec), request_shape(spec), 1, request.device_seconds
        )


def _look_again(state: SchedulerState, request: LiveRequest) -> None:
    """A request was too large everywhere: so may be those of its kind that wait for a place."""
    key = need_key(request.spec)
    for *_, line in state.lines.of((request.spec.model_id,)):
        for waiting in line:
            if need_key(state.requests[waiting.request_id].spec) == key:
                state.touched_requests[waiting.request_id] = None


def _forget(state: SchedulerState, request: LiveRequest) -> None:
    """Drop an ended request from every index."""
    settle_place(state, request)
    del state.requests[request.request_id]
    state.dequeue(request)
    spec = request.spec
    session = state.sessions.get(spec.session_id)
    if session is not None:
        session.pop(spec.request_id, None)
        if not session:
            del state.sessions[spec.session_id]
    if spec.deadline is not None:
        entry = (spec.deadline.timestamp(), spec.request_id)
        index = bisect_left(state.deadlines, entry)
        if index < len(state.deadlines) and state.deadlines[index] == entry:
            del state.deadlines[index]
