"""How plans and reports of batches change the state.

A batch of one step has one result for each of its units. A window has more: the steps that
followed in the same loops, in order. The first result of a loop is that of the unit that was
dispatched; the last one says what comes next.
"""

from collections.abc import Sequence
from datetime import datetime

from fastvideo.errors import ContractViolation, FastVideoError, ResourceExhausted
from fastvideo.requests.failures import error_detail
from fastvideo.scheduling.endings import end_request, is_held
from fastvideo.scheduling.events import BatchExecuted
from fastvideo.scheduling.loop_scheduler import LoopPhase, LoopRun
from fastvideo.scheduling.queueing import give_back_kept, queue_unit
from fastvideo.scheduling.reattach import GONE, adopt, throw_back
from fastvideo.scheduling.state import Ending, Flight, LiveRequest, SchedulerState, Worker
from fastvideo.scheduling.wishes import check_role, learn_need, wish_of
from fastvideo.scheduling.work import LoopResult, StepResult, WorkPlan, WorkUnit


def take_executed(state: SchedulerState, event: BatchExecuted, now: datetime) -> None:
    """Take in a worker's report of a batch; one that is not in flight is dropped."""
    worker = state.workers.get(event.worker_id)
    if worker is None:
        return
    flight = worker.flights.pop(event.batch_id, None) or adopt(state, worker, event)
    if flight is None:
        return
    worker.ledger.release(flight.amounts)
    state.touched_workers[worker.worker_id] = None
    chains = _chains(flight, event.results)
    shares = _learn(state, flight, chains, event.measured_seconds)
    _correct_bills(worker, flight, chains, shares)
    for unit in flight.units:
        _settle(state, unit, chains[unit.unit_id], shares, now)


def offer(
    state: SchedulerState, request: LiveRequest, run: LoopRun, plan: WorkPlan, now: datetime
) -> None:
    """Let a plan's new units wait for their turn."""
    worker = state.workers[request.worker_id]
    try:
        units = state.loop_rules.offered(run, plan)
        for unit in units:
            check_role(unit, worker)
            if learn_need(request, run, unit):
                state.admission.check_possible(unit, worker.ledger)
    except FastVideoError as error:
        if isinstance(error, ResourceExhausted) and state.placement.could_fit(
            request.spec, wish_of(state, request), but=request.worker_id
        ):
            throw_back(state, request, f"worker {request.worker_id} is too small: {error.message}")
            return
        end_request(state, request, Ending(error.reason, error_detail(error)))
        return
    for unit in units:
        run.waiting[unit.unit_id] = unit
        run.steps = unit.step_range.total
        if not is_held(request, unit):
            queue_unit(state, worker, request, run, unit, now)


def finish_loop(
    state: SchedulerState, request: LiveRequest, run: LoopRun, result: LoopResult
) -> None:
    """A loop has ended and left something behind."""
    give_back_kept(state, request, run)
    run.phase = LoopPhase.ENDED
    request.walk_due = True
    run.result = result
    run.waiting.clear()
    request.artifact_ids.update(dict.fromkeys(result.artifact_ids))
    request.digests.update(result.digests)
    request.scores.update(result.scores)


def _chains(flight: Flight, results: Sequence[StepResult]) -> dict[str, list[StepResult]]:
    """The results of each unit of the batch: its own, then those of the steps that followed."""
    chains: dict[str, list[StepResult]] = {unit.unit_id: [] for unit in flight.units}
    followers = len(results) > len(flight.units)
    first_of = {unit.loop: unit.unit_id for unit in flight.units} if followers else {}
    seen: set[str] = set()
    for result in results:
        if result.unit_id in seen:
            continue
        seen.add(result.unit_id)
        chain = chains.get(result.unit_id)
        if chain is None and first_of:
            chain = chains.get(first_of.get(result.loop, ""))
        if chain is not None:
            chain.append(result)
    return chains


def _learn(
    state: SchedulerState,
    flight: Flight,
    chains: dict[str, list[StepResult]],
    batch_seconds: float,
) -> list[float]:
    """Learn what each step of the batch cost; gives the seconds of one unit's share in it."""
    steps = max(map(len, chains.values()), default=0)
    first = flight.units[0]
    shares = []
    for index in range(max(1, steps)):
        step = [chain[index] for chain in chains.values() if len(chain) > index]
        rows = len(step) or len(flight.units)
        seconds = max((result.measured_seconds for result in step), default=0.0)
        if seconds <= 0:
            # A worker that does not say how long each step took.
            seconds = batch_seconds / max(1, steps)
        shares.append(seconds / rows)
        if seconds > 0 and all(result.error is None for result in step):
            state.costs.measure(flight.model_id, first.cost_phase, first.cost_shape, rows, seconds)
    return shares


def _correct_bills(
    worker: Worker,
    flight: Flight,
    chains: dict[str, list[StepResult]],
    shares: Sequence[float],
) -> None:
    """Charge what was measured in place of what was predicted."""
    queue = worker.queue(flight.units[0])
    total = 0.0
    # A batch that an earlier scheduler gave was charged to nobody here.
    for unit, bill in zip(flight.units, flight.bills, strict=False):
        taken = sum(shares[: len(chains[unit.unit_id])])
        queue.tenants.correct(bill, taken)
        total += taken
    if flight.kind_bill is not None:
        queue.kinds.correct(flight.kind_bill, total)


def _settle(
    state: SchedulerState,
    unit: WorkUnit,
    chain: Sequence[StepResult],
    shares: Sequence[float],
    now: datetime,
) -> None:
    """Take in the results of a unit that ran, and of those that followed it in its window."""
    found = state.live(unit.loop)
    if found is None:
        return
    request, run = found
    if run.in_flight.pop(unit.unit_id, None) is None:
        return
    state.touched_requests[request.request_id] = None
    request.units += max(1, len(chain))
    if unit.resources.compute:
        request.device_seconds += sum(shares[: max(1, len(chain))])
    if not chain:
        missing = ContractViolation(
            f"the worker gave no result for unit {unit.unit_id}", subject=unit.unit_id
        )
        end_request(state, request, Ending(missing.reason, error_detail(missing)))
        return
    for result in chain:
        if result.error is not None and result.error.reason in GONE:
            throw_back(state, request, f"worker {request.worker_id} has loop {run.loop_id} no more")
            return
        if result.error is not None:
            end_request(state, request, Ending(result.error.reason, result.error))
            return
        _advance(request, run, unit, result)
        request.artifact_ids.update(dict.fromkeys(result.artifact_ids))
        if result.cache_lookups and request.cache_keys:
            keys_max = state.policy.affinity_keys_max
            state.affinity.learn(request.worker_id, request.cache_keys, keys_max)
    last = chain[-1]
    if last.loop_result is not None:
        finish_loop(state, request, run, last.loop_result)
    elif last.next_plan is not None:
        offer(state, request, run, last.next_plan, now)
    if run.phase is LoopPhase.ACTIVE and not run.waiting and not run.in_flight:
        stuck = ContractViolation(
            f"loop {run.loop_id} has neither ended nor anything left to run",
            subject=run.loop_id,
        )
        end_request(state, request, Ending(stuck.reason, error_detail(stuck)))


def _advance(request: LiveRequest, run: LoopRun, unit: WorkUnit, result: StepResult) -> None:
    """The loop is one step further."""
    covered = result.step_range if result.step_range.total else unit.step_range
    run.steps_done += covered.stop - covered.start
    run.state_version = max(run.state_version, result.state_version)
    request.reached = (unit.loop.node_id, covered.stop, covered.total)
