"""Loops that keep what the others need, so that none can go on: one of them gives way.

Each alone fits its worker, or it would have been refused. So the request that came first can
always go on once those that came after it have given back what their loops keep.
"""

from fastvideo.scheduling.loop_scheduler import LoopPhase
from fastvideo.scheduling.state import LiveRequest, Saving, SchedulerState, Worker


def who_gives_way(state: SchedulerState, worker: Worker) -> LiveRequest | None:
    """The request that must leave a worker on which nothing runs and nothing can begin.

    To be asked once all that can begin has begun. None when the worker is not stalled.
    """
    if worker.flights or not (worker.compute.units or worker.io.units):
        return None
    keepers = []
    for request_id in worker.residents:
        request = state.requests[request_id]
        leaves = request.ending is not None or bool(request.lost_reason) or bool(request.cancelling)
        if leaves or request.saving is not Saving.NOT:
            # What it keeps will be free.
            return None
        if any(run.phase is LoopPhase.PREPARING for run in request.loops.values()):
            return None
        if any(run.kept for run in request.loops.values()):
            keepers.append(request)
    if len(keepers) < 2:
        return None
    return max(keepers, key=lambda request: request.rank.arrival)
