"""What a scheduler has to do and to offer now, for whoever routes to it."""

from typing import Final

from fastvideo.deployment.card import EngineLoad
from fastvideo.scheduling.cost import price_request
from fastvideo.scheduling.state import LiveRequest, SchedulerState

# Keys that are told, the newest.
WARM_KEYS_MAX: Final = 1_000


def engine_load(state: SchedulerState) -> EngineLoad:
    """The load of a shard: its backlog by the prices that admission and placement go by."""
    # Lists, since the in-process engine is asked by other threads than the one that decides.
    workers, requests = list(state.workers.values()), list(state.requests.values())
    taking = [worker for worker in workers if not (worker.draining or worker.detached)]
    models = {
        instance.model_id: None for worker in taking for instance in worker.attached.instances
    }
    return EngineLoad(
        backlog_seconds=sum(_left(state, request) for request in requests),
        compute_slots=sum(max(1, worker.attached.compute_slots) for worker in taking),
        live_requests=len(requests),
        queued_requests=len(state.lines),
        ready_models=tuple(sorted(models)),
        warm_keys=tuple(list(state.affinity.workers)[-WARM_KEYS_MAX:]),
        prediction_error=state.costs.error,
        predictions=state.costs.samples,
    )


def _left(state: SchedulerState, request: LiveRequest) -> float:
    """Predicted device-seconds of a request that have not run."""
    return max(0.0, price_request(state.costs, request.spec) - request.device_seconds)
