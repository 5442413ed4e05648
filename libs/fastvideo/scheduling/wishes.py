"""What a request asks of its place: by its program, its class of service and what was learned.

Needs are learned: the most that a unit of a program at a size has declared of each resource. So
a request that no worker can ever hold is refused before it waits for a place.
"""

from typing import Final

from fastvideo.errors import FailedPrecondition
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.admission import declared_amounts, unit_amounts
from fastvideo.scheduling.affinity import session_key
from fastvideo.scheduling.cost import request_shape
from fastvideo.scheduling.hosts import Wish
from fastvideo.scheduling.lines import PlaceKind
from fastvideo.scheduling.loop_scheduler import LoopRun
from fastvideo.scheduling.policy import SchedulingPolicy, SloClass
from fastvideo.scheduling.state import LiveRequest, SchedulerState, Worker
from fastvideo.scheduling.work import WorkUnit

# Programs and sizes whose needs are remembered; the oldest is forgotten first.
NEEDS_MAX: Final = 10_000

_NO_CLASS: Final = SloClass()


def wish_of(state: SchedulerState, request: LiveRequest) -> Wish:
    """What a request asks of its place beside its model."""
    spec, policy, graph = request.spec, state.policy, request.graph
    known = policy.slo_class(spec.priority) or _NO_CLASS
    keys = request.cache_keys
    session = session_key(spec)
    if session:
        keys = (*keys, session)
    return Wish(
        roles=graph.roles if graph is not None else frozenset(),
        pool=known.pool,
        mesh=known.mesh,
        kept=policy.kept_from(spec.priority) if policy.slo_classes else (),
        needs=state.needs.get(need_key(spec), {}),
        warm=state.affinity.warm(keys) if policy.affinity_seconds_max > 0 else {},
        warm_seconds=policy.affinity_seconds_max,
    )


def place_kind(policy: SchedulingPolicy, spec: RequestSpec) -> PlaceKind:
    """Whose places a request waits for."""
    place = ""
    if policy.slo_classes:
        known = policy.slo_class(spec.priority) or _NO_CLASS
        kept = sum(places for _, places in policy.kept_from(spec.priority)[-1:])
        place = f"{known.pool}/{known.mesh}/{kept}"
    return PlaceKind(spec.model_id, spec.card_digest, place)


def learn_need(state: SchedulerState, request: LiveRequest, run: LoopRun, unit: WorkUnit) -> bool:
    """Remember what a unit declares; False when its loop declared the same before."""
    if run.declared is not None and run.declared == unit.resources:
        run.declared = unit.resources
        return False
    run.declared = unit.resources
    run.amounts = declared_amounts(unit.resources)
    key = need_key(request.spec)
    needs = state.needs.get(key)
    if needs is None:
        if len(state.needs) >= NEEDS_MAX:
            del state.needs[next(iter(state.needs))]
        needs = state.needs[key] = {}
    for resource, amount in unit_amounts(unit).items():
        needs[resource] = max(amount, needs.get(resource, 0.0))
    return True


def check_role(unit: WorkUnit, worker: Worker) -> None:
    """Raise FailedPrecondition for a unit that is to run in another role than its worker's."""
    wanted, played = unit.placement_hint.role, worker.attached.role
    if wanted and played and wanted != played:
        raise FailedPrecondition(
            f"unit {unit.unit_id} runs in role {wanted}; worker {worker.worker_id} plays {played}",
            reason="ROLE_MISMATCH",
            subject=f"role/{wanted}",
        )


def need_key(spec: RequestSpec) -> str:
    """Under which needs are remembered."""
    return f"{spec.model_id}/{spec.program_id}/{request_shape(spec)}"
