"""Windows: several steps of a batch granted at once, while nobody else wants the worker.

A window is granted when the units' loops declare what follows as unconditional, nobody else is
ready on the worker or being prepared there, and it is short enough that a newcomer waits little.
Whoever begins to wait, and whatever is to happen to a member, ends it at its next boundary.
"""

from collections.abc import Iterator, Sequence
from math import inf

from fastvideo.scheduling.admission import SECONDS
from fastvideo.scheduling.events import YieldBatch
from fastvideo.scheduling.loop_scheduler import LoopPhase
from fastvideo.scheduling.ready import ReadyUnits
from fastvideo.scheduling.state import Flight, SchedulerState, Worker
from fastvideo.scheduling.work import WorkUnit


def window_steps(
    state: SchedulerState,
    worker: Worker,
    ready: ReadyUnits,
    units: Sequence[WorkUnit],
    step_seconds: float,
) -> int:
    """How many steps a batch of units is granted, each predicted to take `step_seconds`."""
    policy = state.policy
    # Without a prediction nobody knows how long a newcomer would wait.
    if policy.window_steps_max == 1 or step_seconds <= 0 or not units[0].resources.compute:
        return 1
    limit = min(policy.window_seconds_max, worker.ledger.budget.get(SECONDS, inf))
    steps = min(
        policy.window_steps_max,
        1 + min(unit.unconditional_next for unit in units),
        int(limit / step_seconds),
    )
    if steps <= 1 or len(ready.units) > len(units) or _someone_comes(state, worker):
        return 1
    return steps if all(_goes_on_alone(state, unit) for unit in units) else 1


def to_yield(state: SchedulerState, worker: Worker) -> Iterator[YieldBatch]:
    """The worker's windows that shall end at their next boundary."""
    for batch_id, flight in list(worker.flights.items()):
        if flight.window > 1 and not flight.yielding:
            reason = _why_yield(state, worker, flight)
            if reason:
                yield YieldBatch(batch_id=batch_id, worker_id=worker.worker_id, reason=reason)


def _someone_comes(state: SchedulerState, worker: Worker) -> bool:
    """Whether a loop is being prepared on the worker and will soon be ready."""
    return any(
        run.phase is LoopPhase.PREPARING
        for request_id in worker.residents
        for run in state.requests[request_id].loops.values()
    )


def _goes_on_alone(state: SchedulerState, unit: WorkUnit) -> bool:
    """Whether the unit is all that its loop runs, and nothing shall happen to its request."""
    request = state.requests[unit.loop.request_id]
    run = request.loops[unit.loop.node_id]
    alone = len(run.waiting) == 1 and not run.in_flight
    return alone and not request.wants_boundary(unit.loop.node_id)


def _why_yield(state: SchedulerState, worker: Worker, flight: Flight) -> str:
    """Why a window shall end; empty when it may go on."""
    waiting = next(iter(worker.compute.units), "")
    if waiting:
        return f"{waiting} waits"
    if _someone_comes(state, worker):
        return "a loop waits to be made"
    for unit in flight.units:
        request = state.requests.get(unit.loop.request_id)
        if request is not None and request.wants_boundary(unit.loop.node_id):
            return f"{request.request_id} waits for a boundary"
    return ""
