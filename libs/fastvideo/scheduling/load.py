"""What a scheduler has to do and to offer now, for whoever routes to it."""

from collections.abc import Iterable
from typing import Final

from fastvideo.deployment.card import EngineLoad
from fastvideo.scheduling.cost import price_request, request_phase, request_shape
from fastvideo.scheduling.state import LiveRequest, SchedulerState

# Keys that are told, the newest.
WARM_KEYS_MAX: Final = 1_000


def engine_load(state: SchedulerState) -> EngineLoad:
    """The load of a shard: its backlog by the prices that admission and placement go by."""
    requests = state.requests.values()
    taking = [
        worker for worker in state.workers.values() if not (worker.draining or worker.detached)
    ]
    models = {
        instance.model_id: None for worker in taking for instance in worker.attached.instances
    }
    return EngineLoad(
        backlog_seconds=_backlog(state, requests),
        compute_slots=sum(max(1, worker.attached.compute_slots) for worker in taking),
        live_requests=len(requests),
        queued_requests=len(state.lines),
        ready_models=tuple(sorted(models)),
        warm_keys=tuple(list(state.affinity.workers)[-WARM_KEYS_MAX:]),
        prediction_error=state.costs.error,
        predictions=state.costs.samples,
    )


def _backlog(state: SchedulerState, requests: Iterable[LiveRequest]) -> float:
    """Predicted device-seconds of requests that have not run; those that are alike have one
    price, since a long line asks for few sizes."""
    prices: dict[tuple[str, str, str], float] = {}
    left = 0.0
    for request in requests:
        spec = request.spec
        alike = (spec.model_id, request_phase(spec), request_shape(spec))
        if alike not in prices:
            prices[alike] = price_request(state.costs, spec)
        left += max(0.0, prices[alike] - request.device_seconds)
    return left
