"""How inputs change the state: facts only, no choice.

Whatever is not of this moment is dropped here: results of other tries, of batches that are not
in flight, of workers that are gone.
"""

from bisect import insort
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from fastvideo.errors import (
    DeadlineExceeded,
    FastVideoError,
    ResourceExhausted,
)
from fastvideo.requests.failures import error_detail
from fastvideo.scheduling.admission import RESIDENT
from fastvideo.scheduling.affinity import text_keys
from fastvideo.scheduling.cancellation import cancel_loop, cancel_stream
from fastvideo.scheduling.endings import end_request
from fastvideo.scheduling.events import (
    BatchExecuted,
    LeaderElected,
    LoopFailed,
    LoopPrepared,
    RequestSnapshotted,
    WorkerAttached,
    WorkerDetached,
    WorkerDraining,
    WorkerLost,
    WorkerReattached,
)
from fastvideo.scheduling.inputs import (
    CancelRequested,
    RequestSubmitted,
    SchedulerInput,
    Tick,
)
from fastvideo.scheduling.loop_scheduler import LoopPhase
from fastvideo.scheduling.movement import (
    count_losses,
    keep_done,
    refused,
    restored_result,
    snapshotted,
)
from fastvideo.scheduling.preemption import look_for_room
from fastvideo.scheduling.reattach import detached, elected, is_news, reattached
from fastvideo.scheduling.results import finish_loop, offer, take_executed
from fastvideo.scheduling.state import Ending, LiveRequest, SchedulerState, Worker
from fastvideo.scheduling.wishes import place_kind, wish_of
from fastvideo.scheduling.work import (
    CancelScopeKind,
)

# What a worker answers that takes no request now: it is to stop, or its weights sleep.
NOT_NOW: Final = frozenset({"DRAINING", "WEIGHTS_ASLEEP"})
"""The reason that a worker gives when it takes no new request."""


def observe(state: SchedulerState, event: SchedulerInput, now: datetime) -> None:
    """Take in one input, and that it is now `now`."""
    if not is_news(state, event):
        return
    match event:
        case RequestSubmitted():
            _submitted(state, event, now)
        case CancelRequested():
            _cancel_requested(state, event)
        case WorkerAttached():
            _attached(state, event)
        case LeaderElected():
            elected(state, event)
        case WorkerDetached():
            detached(state, event)
        case WorkerReattached():
            reattached(state, event, now)
        case WorkerDraining():
            _draining(state, event, now)
        case WorkerLost():
            worker = state.workers.get(event.worker_id)
            if worker is not None and event.incarnation in ("", worker.attached.incarnation):
                _lose(state, worker, event.reason)
        case LoopPrepared():
            _prepared(state, event, now)
        case LoopFailed():
            _loop_failed(state, event, now)
        case BatchExecuted():
            take_executed(state, event, now)
        case RequestSnapshotted():
            snapshotted(state, event, now)
        case Tick():
            look_for_room(state, now)
    _expire(state, now)


# -- requests ----------------------------------------------------------------------------


def _submitted(state: SchedulerState, event: RequestSubmitted, now: datetime) -> None:
    spec = event.spec
    if spec.request_id in state.requests:
        return
    state.arrivals += 1
    accepted_at = event.accepted_at or now
    request = LiveRequest(
        spec=spec,
        graph=None,
        accepted_at=accepted_at,
        rank=state.rank_of(
            spec, state.arrivals, accepted_at, thrown_back=event.started_at is not None
        ),
        attempt=event.attempts + 1,
        place_kind=place_kind(state.policy, spec),
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
        request.cache_keys = text_keys(spec)
        state.placement.check_possible(spec, wish_of(state, request))
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
    if event.scope.kind is CancelScopeKind.LOOP:
        cancel_loop(state, event)
    elif event.scope.kind is CancelScopeKind.STREAM:
        cancel_stream(state, event)
    elif event.scope.kind is CancelScopeKind.REQUEST:
        targets = (event.scope.target_id,)
    elif event.scope.kind is CancelScopeKind.SESSION:
        targets = tuple(state.sessions.get(event.scope.target_id, ()))
    for request_id in targets:
        request = state.requests.get(request_id)
        if request is not None:
            end_request(state, request, Ending(event.reason))


def _expire(state: SchedulerState, now: datetime) -> None:
    for request in list(state.expired(now)):
        error = DeadlineExceeded(f"the deadline {request.spec.deadline} passed", subject="deadline")
        end_request(state, request, Ending(error.reason, error_detail(error)))


# -- workers -----------------------------------------------------------------------------


def _attached(state: SchedulerState, event: WorkerAttached) -> None:
    known = state.workers.get(event.worker_id)
    if known is not None:
        _lose(state, known, "it attached anew")
    worker = Worker(attached=event, ledger=state.admission.ledger(event))
    state.workers[event.worker_id] = worker
    state.placement.add(
        event.worker_id,
        event.instances,
        places=int(worker.ledger.budget[RESIDENT]),
        role=event.role,
        slots=event.compute_slots,
        budget=worker.ledger.budget,
    )
    for instance in event.instances:
        state.touched_models[instance.model_id] = None
    state.touched_workers[event.worker_id] = None


def _draining(state: SchedulerState, event: WorkerDraining, now: datetime) -> None:
    worker = state.workers.get(event.worker_id)
    if worker is not None:
        worker.draining = True
        worker.draining_since = worker.draining_since or now
        state.placement.drain(event.worker_id)
        for request_id in worker.residents:
            state.touched_requests[request_id] = None


def _lose(state: SchedulerState, worker: Worker, reason: str) -> None:
    del state.workers[worker.worker_id]
    state.placement.remove(worker.worker_id)
    state.affinity.forget(worker.worker_id)
    state.touched_workers.pop(worker.worker_id, None)
    count_losses(state, worker)
    for request_id in worker.residents:
        request = state.requests[request_id]
        request.lost_reason = f"worker {worker.worker_id} was lost: {reason}"
        request.lost_boundary = state.loop_rules.boundary(request.loops)
        state.vacate(request)
        keep_done(request)
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
    run.state_version = event.plan.state_version
    state.touched_requests[request.request_id] = None
    if event.plan.units:
        run.steps_done = run.restore.steps_done if run.restore is not None else 0
        offer(state, request, run, event.plan, now)
    else:
        # Nothing to run: the loop's outputs are what it was given, or what was saved.
        finish_loop(state, request, run, restored_result(run))


def _loop_failed(state: SchedulerState, event: LoopFailed, now: datetime) -> None:
    found = state.live(event.loop)
    if found is None or found[0].worker_id != event.worker_id:
        return
    request = found[0]
    if event.error.reason in NOT_NOW:
        # The request was placed before the worker's word of it came.
        _draining(state, WorkerDraining(worker_id=event.worker_id), now)
        request.lost_reason = f"worker {event.worker_id}: {event.error.reason}"
        state.touched_requests[request.request_id] = None
    elif found[1].restore is not None:
        refused(state, request, event.loop.node_id, event.error.reason)
    else:
        end_request(state, request, Ending(event.error.reason, event.error))
