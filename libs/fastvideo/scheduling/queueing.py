"""How a unit begins to wait on its worker: charged to its tenant, with what its loop will keep."""

from datetime import datetime

from fastvideo.scheduling.admission import kept_amounts
from fastvideo.scheduling.fairness import Bill, bill
from fastvideo.scheduling.loop_scheduler import LoopRun
from fastvideo.scheduling.ready import kind_flow
from fastvideo.scheduling.state import LiveRequest, SchedulerState, Worker
from fastvideo.scheduling.work import UnitKind, WorkUnit


def queue_unit(
    state: SchedulerState,
    worker: Worker,
    request: LiveRequest,
    run: LoopRun,
    unit: WorkUnit,
    now: datetime,
) -> None:
    """Let a unit of a loop wait for its turn on the loop's worker."""
    spec = request.spec
    seconds = 0.0
    if unit.resources.compute:
        seconds = state.costs.predict(spec.model_id, unit.cost_phase, unit.cost_shape)
    wanted = kept_amounts(unit.resources)
    worker.queue(unit).add(
        unit,
        request.rank,
        running=request.running,
        now=now,
        bill=tenant_bill(state, request, seconds),
        amounts=run.amounts if run.declared is unit.resources else None,
        kept={
            resource: amount - run.kept.get(resource, 0)
            for resource, amount in wanted.items()
            if amount > run.kept.get(resource, 0)
        }
        if wanted
        else None,
    )
    state.touched_workers[worker.worker_id] = None


def tenant_bill(state: SchedulerState, request: LiveRequest, seconds: float) -> Bill:
    """The bill of a request's tenant over predicted seconds."""
    tenant_id = request.spec.tenant_id
    weight = state.policy.tenant_weights.get(tenant_id, 1.0)
    return bill(tenant_id, request.rank.negative_priority, weight, seconds)


def kind_bill(state: SchedulerState, kind: UnitKind, priority: int, seconds: float) -> Bill | None:
    """The bill of a kind of units over predicted seconds; None when kinds have no shares."""
    shares = state.policy.kind_shares
    if not shares:
        return None
    return bill(kind_flow(kind, shares), priority, shares.get(kind, 1.0), seconds)


def charge_place(state: SchedulerState, request: LiveRequest) -> None:
    """Charge a request's tenant for its whole run as it gets its place."""
    settle_place(state, request)
    request.billed_from = request.device_seconds
    request.bill = tenant_bill(state, request, request.load_seconds)
    state.shares.serve(request.bill.priority, state.shares.charge(request.bill))


def settle_place(state: SchedulerState, request: LiveRequest) -> None:
    """Charge what the request used of its place instead."""
    if request.bill is not None:
        state.shares.correct(request.bill, request.device_seconds - request.billed_from)
        request.bill = None


def give_back_kept(state: SchedulerState, request: LiveRequest, run: LoopRun) -> None:
    """What a loop kept is free again."""
    worker = state.workers.get(request.worker_id)
    if worker is not None and run.kept:
        worker.ledger.release(run.kept)
    run.kept = {}
