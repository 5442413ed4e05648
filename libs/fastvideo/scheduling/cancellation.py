"""Cancellation of parts of a request: one loop, or one output stream.

A loop ends at its next boundary, and with it the nodes that need what it would have made; the
other branches of the program go on. The request completes once those have ended, or is cancelled
as a whole when no node is left that ends the program. A stream's chunks stop; everything is
computed as before, also when nobody is left to see it.
"""

from collections.abc import Collection, Iterator
from typing import Final

from fastvideo.scheduling.endings import end_request
from fastvideo.scheduling.events import CancelLoop, CancelStream
from fastvideo.scheduling.inputs import CancelRequested
from fastvideo.scheduling.loop_scheduler import LoopPhase
from fastvideo.scheduling.queueing import give_back_kept
from fastvideo.scheduling.request_scheduler import ProgramGraph
from fastvideo.scheduling.state import Ending, LiveRequest, SchedulerState

# Streams of one request that can be cancelled; further ones are passed over.
STREAMS_MAX: Final = 64


def cancel_loop(state: SchedulerState, event: CancelRequested) -> None:
    """A user cancels one loop; one that has ended or is unknown is left as it is."""
    request_id, _, node_id = event.scope.target_id.rpartition("/")
    request = state.requests.get(request_id)
    if request is None or request.graph is None or node_id not in request.graph.nodes:
        return
    run = request.loops.get(node_id)
    if node_id in request.skipped or (run is not None and run.phase is LoopPhase.ENDED):
        return
    request.cancelling.setdefault(node_id, event.reason)
    state.touched_requests[request_id] = None
    worker = state.workers.get(request.worker_id)
    if run is not None and worker is not None:
        state.touched_workers[worker.worker_id] = None
        for unit in run.waiting.values():
            if unit.cancel_boundary:
                worker.queue(unit).remove(unit.unit_id)


def cancel_stream(state: SchedulerState, event: CancelRequested) -> None:
    """A user cancels one output stream of a request."""
    request_id, _, name = event.scope.target_id.rpartition("/")
    request = state.requests.get(request_id)
    if request is not None and len(request.muted) < STREAMS_MAX:
        request.muted.setdefault(name, event.reason)
        state.touched_requests[request_id] = None


def loops_to_cancel(state: SchedulerState, request: LiveRequest) -> Iterator[CancelLoop]:
    """The loops that a user cancelled and that are at a boundary now."""
    worker = state.workers.get(request.worker_id)
    for node_id, reason in list(request.cancelling.items()):
        run = request.loops.get(node_id)
        runs_on = run is not None and (
            bool(run.in_flight)
            or any(
                worker is not None and unit.unit_id in worker.queue(unit).units
                for unit in run.waiting.values()
            )
        )
        if not runs_on:
            held = request.worker_id if run is not None else ""
            yield CancelLoop(loop=request.ref(node_id), worker_id=held, reason=reason)


def streams_to_cancel(state: SchedulerState, request: LiveRequest) -> Iterator[CancelStream]:
    """The cancelled streams that the request's worker does not know of yet."""
    worker = state.workers.get(request.worker_id)
    if worker is None or not worker.is_commanded:
        return
    for name, reason in list(request.muted.items()):
        if name not in request.muted_told:
            yield CancelStream(
                request_id=request.request_id,
                name=name,
                worker_id=request.worker_id,
                reason=reason,
                attempt=request.attempt,
            )


def skip_loop(state: SchedulerState, decision: CancelLoop) -> None:
    """Take in that a loop was cancelled: it and what needs it are skipped."""
    request = state.requests[decision.loop.request_id]
    node_id = decision.loop.node_id
    request.cancelling.pop(node_id, None)
    run = request.loops.pop(node_id, None)
    if run is not None:
        give_back_kept(state, request, run)
    worker = state.workers.get(request.worker_id)
    if worker is not None:
        worker.deferred.pop(decision.loop, None)
        state.touched_workers[worker.worker_id] = None
    graph = request.graph
    if graph is None:
        return
    request.skipped.update(dict.fromkeys((node_id, *dependents(graph, node_id))))
    request.walk_due = True
    state.touched_requests[request.request_id] = None
    if all(last in request.skipped for last in last_nodes(graph)):
        end_request(state, request, Ending(decision.reason))


def dependents(graph: ProgramGraph, node_id: str) -> tuple[str, ...]:
    """The nodes that need what a node makes, directly or through others."""
    found: dict[str, None] = {}
    pending = [node_id]
    while pending:
        needed = pending.pop()
        for other, needs in graph.upstream.items():
            if needed in needs and other not in found:
                found[other] = None
                pending.append(other)
    return tuple(found)


def last_nodes(graph: ProgramGraph) -> Collection[str]:
    """The nodes that nothing depends on."""
    needed = {need for needs in graph.upstream.values() for need in needs}
    return [node_id for node_id in graph.nodes if node_id not in needed]
