"""Workers that outlive their stream or their scheduler, and what is made of them.

A worker whose stream broke is detached: its loops may live on, and nothing is given to it. When
it comes back it first sends again every report that the log does not have, then says what it
holds. From that follows what the dead scheduler had sent and not written:

| the worker                                  | the core then                               |
|---------------------------------------------|---------------------------------------------|
| reports units that the core did not give it | takes the results of those that it knows    |
| runs batches that the core knows nothing of | gives it nothing until they are reported    |
| was never given a batch or a loop           | gives it again                              |
| holds loops or values that are nobody's     | has them released                           |
| has lost a loop, or is elsewhere in it      | has its request begin again                 |
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from fastvideo.scheduling.endings import is_held
from fastvideo.scheduling.events import (
    BatchExecuted,
    LeaderElected,
    ResidentLoop,
    WorkerDetached,
    WorkerReattached,
)
from fastvideo.scheduling.loop_scheduler import LoopPhase, LoopRun
from fastvideo.scheduling.queueing import give_back_kept, queue_unit
from fastvideo.scheduling.state import Flight, LiveRequest, Saving, SchedulerState, Worker
from fastvideo.scheduling.work import LoopRef, WorkUnit

GONE: Final = frozenset({"LOOP_RELEASED", "UNKNOWN_UNIT"})
"""Why a worker refuses a unit whose loop it does not have."""


def is_news(state: SchedulerState, event: Any) -> bool:
    """Whether a worker's report was not taken in before; whatever is no report is news."""
    number = getattr(event, "report", 0)
    worker = state.workers.get(event.worker_id) if number else None
    if worker is None:
        return True
    # What the worker says on its return bears the number of the report before it.
    least = number if isinstance(event, WorkerReattached) else number - 1
    if worker.reported > least:
        return False
    worker.reported = number
    return True


def elected(state: SchedulerState, event: LeaderElected) -> None:
    """Another scheduler leads: no worker has a stream."""
    state.epoch = event.epoch
    for worker in state.workers.values():
        _detach(state, worker)


def detached(state: SchedulerState, event: WorkerDetached) -> None:
    """A worker's stream broke."""
    worker = state.workers.get(event.worker_id)
    if worker is not None and event.incarnation in ("", worker.attached.incarnation):
        _detach(state, worker)


def reattached(state: SchedulerState, event: WorkerReattached, now: datetime) -> None:
    """A worker is back with what it says that it holds."""
    worker = state.workers.get(event.worker_id)
    if worker is None or worker.attached.incarnation != event.incarnation:
        return
    worker.detached = False
    worker.strays = {name: None for name in event.batch_ids if name not in worker.flights}
    held = {loop.loop: loop for loop in event.loops}
    running = set(event.batch_ids)
    for batch_id in [name for name in worker.flights if name not in running]:
        _give_units_again(state, worker, batch_id, now)
    for request_id in worker.residents:
        request = state.requests[request_id]
        # Whether it was told to save the request nobody knows; a second time does no harm.
        request.saving_lost = request.saving is not Saving.NOT
        _compare(state, worker, request, held, set(event.scopes))
    worker.unwanted = _unwanted(state, worker, held, event.scopes)
    state.untidy[worker.worker_id] = None
    _command(state, worker)


def adopt(state: SchedulerState, worker: Worker, event: BatchExecuted) -> Flight | None:
    """The flight of a batch that a former scheduler gave; None when it is not such a one.

    It holds the units that the core knows and whose results it has not taken.
    """
    if event.batch_id in worker.strays:
        del worker.strays[event.batch_id]
        _command(state, worker)
    elif not worker.detached:
        return None
    units: dict[LoopRef, WorkUnit] = {}
    model_id = ""
    for result in event.results:
        found = state.live(result.loop)
        if found is None or found[0].worker_id != worker.worker_id or result.loop in units:
            continue
        request, run = found
        unit = run.in_flight.get(result.unit_id) or run.waiting.pop(result.unit_id, None)
        if unit is not None:
            worker.queue(unit).remove(unit.unit_id)
            run.in_flight[unit.unit_id] = unit
            units[result.loop] = unit
            model_id = model_id or request.spec.model_id
    return Flight(model_id, tuple(units.values()), {}) if units else None


def throw_back(
    state: SchedulerState, request: LiveRequest, reason: str, *, is_loss: bool = True
) -> None:
    """Have a request begin again, once nothing of it runs any more."""
    if request.ending is None and not request.lost_reason:
        request.lost_reason = reason
        request.lost_boundary = state.loop_rules.boundary(request.loops)
        request.losses += 1 if is_loss else 0
        _unqueue(state, request)
    state.touched_requests[request.request_id] = None


def _detach(state: SchedulerState, worker: Worker) -> None:
    worker.detached = True
    worker.strays = {}
    state.placement.hold(worker.worker_id, held=True)


def _command(state: SchedulerState, worker: Worker) -> None:
    """Let a worker be told what to do again, unless something speaks against it."""
    if not worker.is_commanded:
        state.placement.hold(worker.worker_id, held=True)
        return
    state.placement.hold(worker.worker_id, held=False)
    state.touched_workers[worker.worker_id] = None
    for request_id in worker.residents:
        state.touched_requests[request_id] = None
    for model_id in state.placement.models(worker.worker_id):
        state.touched_models[model_id] = None


def _give_units_again(state: SchedulerState, worker: Worker, batch_id: str, now: datetime) -> None:
    """A batch never arrived: its units wait again."""
    flight = worker.flights.pop(batch_id)
    worker.ledger.release(flight.amounts)
    queue = worker.queue(flight.units[0])
    for bill in flight.bills:
        queue.tenants.correct(bill, 0.0)
    if flight.kind_bill is not None:
        queue.kinds.correct(flight.kind_bill, 0.0)
    for unit in flight.units:
        found = state.live(unit.loop)
        if found is None or found[1].in_flight.pop(unit.unit_id, None) is None:
            continue
        request, run = found
        run.waiting[unit.unit_id] = unit
        state.touched_requests[request.request_id] = None
        if not is_held(request, unit) and not request.lost_reason:
            queue_unit(state, worker, request, run, unit, now)


def _compare(
    state: SchedulerState,
    worker: Worker,
    request: LiveRequest,
    held: dict[LoopRef, ResidentLoop],
    scopes: set[str],
) -> None:
    """What the core knows of a request against what its worker has of it."""
    for node_id, run in list(request.loops.items()):
        resident = held.get(run.ref)
        if run.phase is LoopPhase.PREPARING and (resident is None or not resident.preparing):
            # The command never arrived; a loop that is there was made for another one.
            _assign_again(state, worker, request, node_id)
        elif run.phase is LoopPhase.ACTIVE and _differs(worker, run, resident):
            if run.steps_done or run.restore is not None:
                throw_back(state, request, f"worker {worker.worker_id} lost loop {node_id}")
            else:
                _assign_again(state, worker, request, node_id)
    kept = any(run.result is not None and run.result.value_names for run in request.loops.values())
    if kept and f"{request.request_id}/{request.attempt}" not in scopes:
        throw_back(state, request, f"worker {worker.worker_id} lost its values")


def _assign_again(
    state: SchedulerState, worker: Worker, request: LiveRequest, node_id: str
) -> None:
    """A loop of which nothing has run is made once more."""
    run = request.loops.pop(node_id)
    for unit in run.waiting.values():
        worker.queue(unit).remove(unit.unit_id)
    give_back_kept(state, request, run)
    worker.deferred.pop(run.ref, None)
    request.walk_due = True


def _differs(worker: Worker, run: LoopRun, resident: ResidentLoop | None) -> bool:
    """Whether a loop is surely not where the core has it; what still runs may explain much."""
    if worker.strays or run.in_flight:
        return False
    return resident is None or resident.state_version != run.state_version


def _unwanted(
    state: SchedulerState,
    worker: Worker,
    held: Iterable[LoopRef],
    scopes: Iterable[str],
) -> dict[tuple[str, int], tuple[str, ...]]:
    """What is nobody's: whole attempts, or single nodes of attempts that live here."""
    unwanted: dict[tuple[str, int], tuple[str, ...]] = {}
    for scope in scopes:
        request_id, _, attempt = scope.rpartition("/")
        if not _lives_here(state, worker, request_id, int(attempt)):
            unwanted[(request_id, int(attempt))] = ()
    for ref in held:
        key = (ref.request_id, ref.attempt)
        if not _lives_here(state, worker, *key):
            unwanted[key] = ()
        elif ref.node_id not in state.requests[ref.request_id].loops:
            unwanted[key] = (*unwanted.get(key, ()), ref.node_id)
    return unwanted


def _lives_here(state: SchedulerState, worker: Worker, request_id: str, attempt: int) -> bool:
    request = state.requests.get(request_id)
    return (
        request is not None and request.worker_id == worker.worker_id and request.attempt == attempt
    )


def _unqueue(state: SchedulerState, request: LiveRequest) -> None:
    """Its units wait no longer for their turn."""
    worker = state.workers.get(request.worker_id)
    if worker is None:
        return
    for run in request.loops.values():
        for unit in run.waiting.values():
            worker.queue(unit).remove(unit.unit_id)
