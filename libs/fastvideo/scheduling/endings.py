"""How a request begins to end, and what of it still runs to the next boundary."""

from fastvideo.scheduling.state import Ending, LiveRequest, Saving, SchedulerState
from fastvideo.scheduling.work import WorkUnit


def end_request(state: SchedulerState, request: LiveRequest, ending: Ending) -> None:
    """Begin to end a request: the first reason counts, and its units wait no longer."""
    state.touched_requests[request.request_id] = None
    if request.ending is not None:
        return
    request.ending = ending
    worker = state.workers.get(request.worker_id)
    if worker is None:
        return
    # A window of it shall stop.
    state.touched_workers[worker.worker_id] = None
    for run in request.loops.values():
        for unit in run.waiting.values():
            if is_held(request, unit):
                worker.queue(unit).remove(unit.unit_id)


def is_held(request: LiveRequest, unit: WorkUnit) -> bool:
    """Whether a request that ends or is set aside, or a cancelled loop, stops before the unit."""
    if unit.loop.node_id in request.cancelling and unit.cancel_boundary:
        return True
    if request.saving is Saving.SET_ASIDE:
        return True
    ending = request.ending
    return ending is not None and (ending.error is not None or unit.cancel_boundary)
