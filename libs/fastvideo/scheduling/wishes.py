"""What a request asks of its place: by its program, its class of service and what was learned.

Needs are learned: the most that a unit of a request has declared of each resource, and, of requests
that are alike, the least of these. So a request is refused before it waits for a place when no
worker can ever hold any of its kind, and none goes twice where it was too large.
"""

from collections.abc import Mapping
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
        needs=_most(state.needs.get(need_key(spec), {}), request.needs),
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


def learn_need(request: LiveRequest, run: LoopRun, unit: WorkUnit) -> bool:
    """Remember what a unit declares; False when its loop declared the same before."""
    if run.declared is not None and run.declared == unit.resources:
        run.declared = unit.resources
        return False
    run.declared = unit.resources
    run.amounts = declared_amounts(unit.resources)
    request.needs = _most(request.needs, unit_amounts(unit))
    return True


def learn_needs(state: SchedulerState, request: LiveRequest) -> None:
    """A request has declared all that it ever will: of its kind, none is known to need less."""
    key = need_key(request.spec)
    known = state.needs.get(key)
    if known is not None:
        own = request.needs
        state.needs[key] = {name: min(known[name], own[name]) for name in known if name in own}
        return
    if len(state.needs) >= NEEDS_MAX:
        del state.needs[next(iter(state.needs))]
    state.needs[key] = dict(request.needs)


def _most(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """The more of each resource."""
    return {name: max(one.get(name, 0.0), other.get(name, 0.0)) for name in {**one, **other}}


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
    """Under which needs are remembered: what is alike in it declares much the same."""
    asked = spec.outputs
    files = (asked.video, asked.sheet, asked.latents, asked.preview, asked.image)
    made = "".join(str(int(file)) for file in (*files, asked.capture is not None))
    return f"{spec.model_id}/{spec.program_id}/{request_shape(spec)}/{made}"
