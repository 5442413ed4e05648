"""Requests that are saved at a boundary, and go on from there on the same or another worker.

A worker saves each loop of a request: its state, or the outputs of one that has ended. What was
saved last of each node is kept for as long as the request lives, whatever becomes of its tries,
since a loop's state does not depend on where it runs. When the request gets a place anew, a node
with a snapshot needs nothing that flows into it; what only such nodes would need does not run.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from fastvideo.scheduling.admission import RESIDENT
from fastvideo.scheduling.cancellation import last_nodes
from fastvideo.scheduling.cost import request_size
from fastvideo.scheduling.effects import SET_ASIDE
from fastvideo.scheduling.events import PreemptRequest, RequestSnapshotted, SnapshotRequest
from fastvideo.scheduling.hosts import Placement
from fastvideo.scheduling.loop_scheduler import LoopPhase, LoopRun
from fastvideo.scheduling.queueing import give_back_kept, queue_unit
from fastvideo.scheduling.reattach import throw_back
from fastvideo.scheduling.request_scheduler import ProgramGraph
from fastvideo.scheduling.state import LiveRequest, Saving, SchedulerState, Worker
from fastvideo.scheduling.work import LoopResult, LoopSnapshot, ModelState

SNAPSHOT_PHASE: Final = "snapshot"
"""The phase under which the cost of saving a request is known; its shape is the request's."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """How a request goes on where it is placed."""

    # Nodes whose loops are made from a snapshot, and nodes that need not run at all.
    restores: Mapping[str, LoopSnapshot] = field(default_factory=dict)
    spared: frozenset[str] = frozenset()

    def startable(self, graph: ProgramGraph, request: LiveRequest) -> tuple[str, ...]:
        """The nodes, in the program's order, that have not begun and wait for nothing."""
        loops = request.loops
        ended = {name for name, run in loops.items() if run.phase is LoopPhase.ENDED}
        return tuple(
            node_id
            for node_id, needs in graph.upstream.items()
            if node_id not in loops
            and node_id not in request.skipped
            and node_id not in self.spared
            and (node_id in self.restores or ended.issuperset(needs))
        )


_FROM_THE_BEGINNING: Final = Resumption()


def resumption_of(
    state: SchedulerState,
    request: LiveRequest,
    graph: ProgramGraph,
    placement: Placement | None = None,
) -> Resumption:
    """How the request goes on at a place, or at the one that it has."""
    if not request.snapshots and not request.done:
        return _FROM_THE_BEGINNING
    worker_id = placement.worker_id if placement is not None else request.worker_id
    name = placement.model_instance_id if placement is not None else request.model_instance_id
    worker = state.workers[worker_id]
    instance = next((i for i in worker.attached.instances if i.model_instance_id == name), None)
    restores = {
        node_id: snapshot
        for node_id, snapshot in request.snapshots.items()
        if node_id not in request.done and _suits(snapshot, instance, worker)
    }
    needed = _needed(graph, restores, request)
    return Resumption(restores, frozenset(graph.nodes.keys() - needed - request.skipped.keys()))


def keep_done(request: LiveRequest) -> None:
    """Before a try is given up: what ended and leaves nothing to others need not run again."""
    if request.graph is None:
        return
    for node_id in last_nodes(request.graph):
        run = request.loops.get(node_id)
        if run is not None and run.phase is LoopPhase.ENDED:
            request.done[node_id] = None


def count_losses(state: SchedulerState, worker: Worker) -> None:
    """A worker was lost: before the loops of its requests are forgotten.

    Those that ran there share the suspicion. One that only waited, or that gets further from
    loss to loss, did not kill it.
    """
    requests = [state.requests[request_id] for request_id in worker.residents]
    suspects = [request for request in requests if _runs(request)]
    for request in requests:
        request.losses += 1
    for request in suspects:
        assert request.graph is not None
        fraction = state.loop_rules.fraction(request.graph, request.loops, request.done)
        if fraction > request.lost_fraction:
            request.lost_fraction = fraction
            request.suspicion = 0.0
        request.suspicion += 1 / len(suspects)


def _runs(request: LiveRequest) -> bool:
    """Whether its worker computes for it, or makes a loop of it."""
    return request.graph is not None and any(
        run.in_flight or run.phase is LoopPhase.PREPARING for run in request.loops.values()
    )


def leave(state: SchedulerState, request: LiveRequest, worker: Worker) -> None:
    """A request gives its place back, with all that it had reserved there."""
    for run in request.loops.values():
        for unit in run.waiting.values():
            worker.queue(unit).remove(unit.unit_id)
        give_back_kept(state, request, run)
        worker.deferred.pop(run.ref, None)
    del worker.residents[request.request_id]
    worker.ledger.release({RESIDENT: 1})
    state.placement.vacate(
        worker.worker_id,
        request.load_seconds,
        request.model_instance_id,
        state.policy.class_level(request.spec.priority),
    )
    state.vacate(request)
    request.worker_id = request.model_instance_id = ""
    for model_id in state.placement.models(worker.worker_id):
        state.touched_models[model_id] = None
    state.touched_workers[worker.worker_id] = None


# -- saving ------------------------------------------------------------------------------


def saves(
    state: SchedulerState, request: LiveRequest, now: datetime
) -> Iterator[SnapshotRequest | PreemptRequest]:
    """Have a request saved when it is time, or set aside when its worker goes."""
    worker = state.workers.get(request.worker_id)
    if worker is None or not worker.is_commanded or request.unsavable:
        return
    if request.saving_lost:
        yield _asked(request, request.saving, "it was not heard")
    elif request.saving is not Saving.NOT:
        return
    elif worker.draining:
        if _ends_too_late(state, request, worker, now):
            yield _asked(request, Saving.SET_ASIDE, f"worker {worker.worker_id} is draining")
    elif _is_due(state, request, now):
        yield _asked(request, Saving.GOES_ON, "what is not saved costs more than saving it")


def begin_saving(state: SchedulerState, decision: SnapshotRequest | PreemptRequest) -> None:
    """Take in that a request shall be saved."""
    request = state.requests[decision.request_id]
    again, request.saving_lost = request.saving_lost, False
    if isinstance(decision, SnapshotRequest):
        request.saving = Saving.GOES_ON
        return
    request.saving = Saving.SET_ASIDE
    state.setting_aside[request.request_id] = None
    request.preemptions += 0 if again else 1
    worker = state.workers[request.worker_id]
    for run in request.loops.values():
        for unit in run.waiting.values():
            worker.queue(unit).remove(unit.unit_id)
    # Windows end at their next boundary.
    state.touched_workers[worker.worker_id] = None


def snapshotted(state: SchedulerState, event: RequestSnapshotted, now: datetime) -> None:
    """Take in what a worker saved, or why it could not."""
    request = state.requests.get(event.request_id)
    if request is None:
        return
    present = request.attempt == event.attempt and request.worker_id == event.worker_id
    for snapshot in event.snapshots if event.error is None else ():
        node_id = snapshot.loop.node_id
        # A late one of an earlier try is better than none.
        if present or node_id not in request.snapshots:
            request.snapshots[node_id] = snapshot
    if not present:
        return
    state.touched_requests[request.request_id] = None
    saving, request.saving, request.saving_lost = request.saving, Saving.NOT, False
    if event.error is not None:
        request.unsavable = True
    else:
        request.saved_seconds, request.saved_at = request.device_seconds, now
        state.costs.measure(
            request.spec.model_id, SNAPSHOT_PHASE, request_size(request.spec), 1, event.seconds
        )
    if event.released:
        if saving is not Saving.SET_ASIDE:
            # A former scheduler wanted it; what this one has assigned since is there for nobody.
            worker = state.workers[event.worker_id]
            worker.unwanted[(request.request_id, request.attempt)] = ()
            state.untidy[worker.worker_id] = None
        _set_aside(state, request)
    elif saving is Saving.SET_ASIDE:
        _go_on(state, request, now)


def refused(state: SchedulerState, request: LiveRequest, node_id: str, reason: str) -> None:
    """A worker could not make a loop from its snapshot: without it, then."""
    request.snapshots.pop(node_id, None)
    throw_back(state, request, f"the snapshot of {node_id} is of no use: {reason}", is_loss=False)


def restored_result(run: LoopRun) -> LoopResult:
    """What a loop leaves behind that ended as soon as it was made."""
    saved = run.restore.loop_result if run.restore is not None else None
    return LoopResult(loop=run.ref) if saved is None else replace(saved, loop=run.ref)


def _asked(request: LiveRequest, saving: Saving, reason: str) -> SnapshotRequest | PreemptRequest:
    kind = PreemptRequest if saving is Saving.SET_ASIDE else SnapshotRequest
    return kind(
        request_id=request.request_id,
        attempt=request.attempt,
        worker_id=request.worker_id,
        reason=reason,
    )


def _is_due(state: SchedulerState, request: LiveRequest, now: datetime) -> bool:
    """Whether saving costs no more than its share of what was computed since the last time."""
    policy, since = state.policy, request.saved_at
    if not request.running or since is None or policy.snapshot_overhead_max == 0:
        return False
    if (now - since).total_seconds() < policy.snapshot_seconds_min:
        return False
    spent = request.device_seconds - request.saved_seconds
    shape = request_size(request.spec)
    cost = state.costs.predict(request.spec.model_id, SNAPSHOT_PHASE, shape)
    allowed = policy.snapshot_overhead_max * spent
    return spent > 0 and (cost or policy.snapshot_seconds_guess) <= allowed


def _ends_too_late(
    state: SchedulerState, request: LiveRequest, worker: Worker, now: datetime
) -> bool:
    """Whether a request will not end in the time that a draining worker is given."""
    limit = state.policy.drain_seconds_max
    left = request.load_seconds - request.device_seconds
    since = worker.draining_since or now
    return left > limit or (now - since).total_seconds() > limit


def _set_aside(state: SchedulerState, request: LiveRequest) -> None:
    """Its worker has freed it; it waits for a place, and goes on there."""
    request.lost_reason = f"{SET_ASIDE}: its place on worker {request.worker_id} was needed"
    request.lost_boundary = state.loop_rules.boundary(request.loops)
    keep_done(request)
    leave(state, request, state.workers[request.worker_id])
    request.loops = {}


def _go_on(state: SchedulerState, request: LiveRequest, now: datetime) -> None:
    """It was to be set aside and could not be saved."""
    state.setting_aside.pop(request.request_id, None)
    worker = state.workers[request.worker_id]
    if request.ending is None and not request.lost_reason:
        for run in request.loops.values():
            for unit in run.waiting.values():
                queue_unit(state, worker, request, run, unit, now)


# -- going on ----------------------------------------------------------------------------


def _suits(snapshot: LoopSnapshot, instance: ModelState | None, worker: Worker) -> bool:
    """Whether a worker may make a loop from a snapshot, as far as it has said."""
    if not worker.attached.snapshots or instance is None:
        return False
    return all(
        not has or not wants or has == wants
        for has, wants in (
            (instance.card_digest, snapshot.card_digest),
            (instance.weights_version, snapshot.weights_version),
        )
    )


def _needed(
    graph: ProgramGraph, restores: Mapping[str, LoopSnapshot], request: LiveRequest
) -> set[str]:
    """The nodes that must run or be restored, from the ends of the program backwards."""
    given_up = request.done.keys() | request.skipped.keys()
    open_nodes = [node for node in last_nodes(graph) if node not in given_up]
    # What runs already is needed, whatever was saved of it meanwhile.
    needed = set(request.loops)
    seen: set[str] = set()
    while open_nodes:
        node_id = open_nodes.pop()
        if node_id in seen:
            continue
        seen.add(node_id)
        if node_id not in restores:
            open_nodes += [need for need in graph.upstream[node_id] if need not in given_up]
    return needed | seen
