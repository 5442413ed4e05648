"""The choices: what follows from the state, one decision at a time.

Each generator reads the state and yields a decision; whoever drives it evolves the state by
that decision before asking for the next. Nothing here changes what the state says; only the
agenda of touched requests, workers and models is worked off.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

from fastvideo.errors import FastVideoError, ResourceExhausted
from fastvideo.requests.failures import error_detail
from fastvideo.requests.types import ErrorDetail
from fastvideo.scheduling.admission import COMPUTE, IO
from fastvideo.scheduling.batch_scheduler import BatchScheduler
from fastvideo.scheduling.cancellation import loops_to_cancel, streams_to_cancel
from fastvideo.scheduling.events import (
    AssignLoop,
    CancelRequest,
    CompleteRequest,
    Decision,
    DeferLoop,
    DispatchBatch,
    FailRequest,
    PreemptRequest,
    QueueRequest,
    ReleaseRequest,
    ReportProgress,
    RestartRequest,
    StartRequest,
)
from fastvideo.scheduling.hosts import Placement
from fastvideo.scheduling.lines import PlaceKind, front
from fastvideo.scheduling.loop_scheduler import LoopPhase
from fastvideo.scheduling.movement import resumption_of, saves
from fastvideo.scheduling.news import queue_news
from fastvideo.scheduling.preemption import make_room
from fastvideo.scheduling.ready import ReadyUnits
from fastvideo.scheduling.relief import overdue
from fastvideo.scheduling.request_scheduler import ProgramGraph
from fastvideo.scheduling.stalls import who_gives_way
from fastvideo.scheduling.state import LiveRequest, Saving, SchedulerState, Worker
from fastvideo.scheduling.transfer import PHASE as TRANSFER_PHASE
from fastvideo.scheduling.transfer import Held, TransferScheduler, refuse_moves
from fastvideo.scheduling.windows import to_yield, window_steps
from fastvideo.scheduling.wishes import wish_of
from fastvideo.scheduling.work import WorkUnit

WORKER_LOST = "WORKER_LOST"


class Decider:
    """Works off what the last input touched."""

    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        self._batches = BatchScheduler(state.policy, self._price)

    def decisions(self, now: datetime) -> Iterator[Decision]:
        """All that is to be decided now: requests, then places, then batches."""
        state = self._state
        while state.untidy:
            yield from self._tidy(_pop(state.untidy))
        while state.touched_requests or state.touched_models or state.touched_workers:
            while state.touched_requests:
                request = state.requests.get(_pop(state.touched_requests))
                if request is not None:
                    yield from self._advance(request, now)
            yield from self._place(now)
            while state.touched_workers:
                worker = state.workers.get(_pop(state.touched_workers))
                if worker is not None and worker.is_commanded:
                    yield from self._dispatch(worker, worker.compute, COMPUTE, now)
                    yield from self._dispatch(worker, worker.io, IO, now)
                    yield from to_yield(state, worker)
                    yield from self._break_stall(worker)
        yield from queue_news(state, now)

    # -- one request ---------------------------------------------------------------------

    def _advance(self, request: LiveRequest, now: datetime) -> Iterator[Decision]:
        if request.ending is not None:
            yield from self._end(request, now)
        elif request.lost_reason:
            yield from self._recover(request, now)
        elif request.graph is not None:
            if request.cancelling:
                yield from loops_to_cancel(self._state, request)
            if request.muted:
                yield from streams_to_cancel(self._state, request)
            if request.worker_id and request.ending is None:
                yield from self._go_on(request, request.graph, now)
                yield from saves(self._state, request, now)
            elif not request.worker_id and not request.needs:
                yield from self._refuse_impossible(request, now)

    def _go_on(
        self, request: LiveRequest, graph: ProgramGraph, now: datetime
    ) -> Iterator[Decision]:
        """Report how far it is, and begin what can begin, or complete."""
        if not request.walk_due:
            yield from self._report(request, graph)
            return
        loops = request.loops
        resumption = resumption_of(self._state, request, graph)
        known = len(loops) + len(request.skipped) + len(resumption.spared)
        if known == len(graph.nodes) and all(
            run.phase is LoopPhase.ENDED for run in loops.values()
        ):
            yield from self._complete(request, now)
            return
        yield from self._report(request, graph)
        worker = self._state.workers[request.worker_id]
        if not worker.is_commanded or request.saving is Saving.SET_ASIDE:
            return
        request.walk_due = False
        placement = Placement(request.worker_id, request.model_instance_id)
        yield from self._assign(request, graph, placement, now)

    def _complete(self, request: LiveRequest, now: datetime) -> Iterator[Decision]:
        if request.progress < 1.0:
            yield _progress(request, 1.0)
        yield self._release(request)
        yield CompleteRequest(
            request_id=request.request_id,
            artifact_ids=tuple(request.artifact_ids),
            latents_digest=request.digests.get("latents", ""),
            scores=request.scores,
            metrics=request.metrics(now),
        )

    def _end(self, request: LiveRequest, now: datetime) -> Iterator[Decision]:
        """Cancel or fail, unless something of it runs or must run to the next boundary."""
        ending = request.ending
        if ending is None or request.in_flight or self._runs_on(request):
            return
        if ending.error is not None:
            yield from self._fail(request, ending.error, now)
            return
        boundary = request.lost_boundary or self._state.loop_rules.boundary(request.loops)
        if request.worker_id:
            yield self._release(request)
        yield CancelRequest(
            request_id=request.request_id,
            reason=ending.reason,
            boundary=boundary,
            artifact_ids=tuple(request.artifact_ids),
            metrics=request.metrics(now),
        )

    def _fail(self, request: LiveRequest, error: ErrorDetail, now: datetime) -> Iterator[Decision]:
        if request.worker_id:
            yield self._release(request)
        yield FailRequest(request_id=request.request_id, error=error, metrics=request.metrics(now))

    def _runs_on(self, request: LiveRequest) -> bool:
        worker = self._state.workers.get(request.worker_id)
        if worker is None:
            return False
        return any(
            unit.unit_id in worker.queue(unit).units
            for run in request.loops.values()
            for unit in run.waiting.values()
        )

    def _recover(self, request: LiveRequest, now: datetime) -> Iterator[Decision]:
        """Without its worker: again elsewhere, or failed after too many losses."""
        if request.in_flight:
            return
        if request.suspicion < self._state.policy.attempts_max:
            if request.worker_id:
                yield self._release(request)
            yield RestartRequest(
                request_id=request.request_id,
                attempt=request.attempt + 1,
                reason=request.lost_reason,
            )
            return
        error = ErrorDetail(
            reason=WORKER_LOST,
            message=f"it may have killed its workers, {request.losses} in all; "
            f"{request.lost_reason}",
            subject=request.request_id,
            attributes={"attempts": str(request.attempt)},
        )
        yield from self._fail(request, error, now)

    def _break_stall(self, worker: Worker) -> Iterator[Decision]:
        """Have a request leave whose loops keep what others need, when nobody can go on."""
        request = who_gives_way(self._state, worker)
        if request is None:
            return
        reason = f"worker {worker.worker_id} is stalled: the others need what it keeps"
        if not request.unsavable:
            yield PreemptRequest(
                request_id=request.request_id,
                attempt=request.attempt,
                worker_id=worker.worker_id,
                reason=reason,
            )
            return
        yield self._release(request)
        yield RestartRequest(
            request_id=request.request_id, attempt=request.attempt + 1, reason=reason
        )

    def _report(self, request: LiveRequest, graph: ProgramGraph) -> Iterator[Decision]:
        fraction = min(1.0, self._state.loop_rules.fraction(graph, request.loops, request.done))
        node_id, step, steps = request.reached
        least = 0.0 if step == steps else self._state.policy.progress_step_min
        # Progress never falls, so a request that began again is silent until it has caught up.
        if fraction > request.progress and fraction - request.progress >= least and node_id:
            yield _progress(request, fraction)

    def _assign(
        self, request: LiveRequest, graph: ProgramGraph, placement: Placement, now: datetime
    ) -> Iterator[Decision]:
        """Begin the loops whose inputs are there."""
        transfers = TransferScheduler(
            lambda size_bytes: self._state.costs.predict(
                request.spec.model_id, TRANSFER_PHASE, str(size_bytes)
            )
        )
        resumption = resumption_of(self._state, request, graph, placement)
        for node_id in resumption.startable(graph, request):
            restore = resumption.restores.get(node_id)
            try:
                # A snapshot holds all that its loop still needs.
                inputs = graph.inputs_of(node_id, request.spec) if restore is None else {}
                held = _held(request, inputs.values(), placement.worker_id)
                plan = transfers.plan(placement.worker_id, inputs, held)
                refuse_moves(request.ref(node_id), plan)
            except FastVideoError as error:
                # Looked at again when what runs has ended.
                request.walk_due = True
                if not request.in_flight and not self._runs_on(request):
                    yield from self._fail(request, error_detail(error), now)
                return
            yield AssignLoop(
                loop=request.ref(node_id),
                loop_id=graph.nodes[node_id].loop_id,
                worker_id=placement.worker_id,
                model_instance_id=placement.model_instance_id,
                restore=restore,
            )

    def _tidy(self, worker_id: str) -> Iterator[Decision]:
        """Have a worker free what nobody wants."""
        worker = self._state.workers.get(worker_id)
        for (request_id, attempt), node_ids in list(worker.unwanted.items() if worker else ()):
            yield ReleaseRequest(
                request_id=request_id,
                attempt=attempt,
                worker_id=worker_id,
                node_ids=node_ids,
                forget=True,
            )

    def _release(self, request: LiveRequest) -> ReleaseRequest:
        return ReleaseRequest(
            request_id=request.request_id,
            attempt=request.attempt,
            worker_id=request.worker_id,
        )

    # -- places --------------------------------------------------------------------------

    def _place(self, now: datetime) -> Iterator[Decision]:
        """Give free places to who is next, the first in rank of all the lines that may move."""
        state = self._state
        models = tuple(state.touched_models)
        state.touched_models.clear()
        # How many at the front of a line can have no place now; the next may want another one.
        stuck: dict[tuple[PlaceKind, str], int] = {}
        tried: set[str] = set()
        while True:
            late = overdue(state, models, now, tried)
            if late is not None and late.graph is not None:
                tried.add(late.request_id)
                placement = state.placement.place(late.spec, wish_of(state, late))
                if placement is not None:
                    yield from self._assign(late, late.graph, placement, now)
                # The turn of one that can have no place is that of the next who waits too long.
                continue
            heads = [
                (front(line[index].rank, tenant_id, state.shares), line[index], (kind, tenant_id))
                for kind, tenant_id, line in state.lines.of(models)
                if (index := stuck.get((kind, tenant_id), 0))
                < min(len(line), state.policy.deferrals_max)
            ]
            if not heads:
                return
            _, head, key = min(heads)
            request = state.requests[head.request_id]
            placement = state.placement.place(request.spec, wish_of(state, request))
            if placement is not None and request.graph is not None:
                yield from self._assign(request, request.graph, placement, now)
            elif placement is None and request.losses == 0:
                # One that was thrown back waits for workers that may come back with its weights.
                yield from self._refuse_stale(request, now)
            if not request.worker_id and head.request_id in state.requests:
                yield from make_room(state, request, sum(stuck.values()), now)
                stuck[key] = stuck.get(key, 0) + 1

    def _refuse_impossible(self, request: LiveRequest, now: datetime) -> Iterator[Decision]:
        """Fail a request that waits and of whose kind no worker can hold any, as one has shown.

        One that has run waits for a worker that is large enough to come back.
        """
        try:
            self._state.placement.check_size(request.spec, wish_of(self._state, request))
        except ResourceExhausted as error:
            yield from self._fail(request, error_detail(error), now)

    def _refuse_stale(self, request: LiveRequest, now: datetime) -> Iterator[Decision]:
        """Fail a request whose weights no worker has any more, since a sync took them away."""
        try:
            self._state.placement.check_weights(request.spec, wish_of(self._state, request))
        except FastVideoError as error:
            yield from self._fail(request, error_detail(error), now)

    # -- batches -------------------------------------------------------------------------

    def _dispatch(
        self, worker: Worker, ready: ReadyUnits, slot: str, now: datetime
    ) -> Iterator[Decision]:
        """Fill a worker's free slots."""
        while ready.units and worker.ledger.free(slot) > 0:
            batch = self._batches.form(ready, worker.ledger, now)
            for unit, reason in batch.deferred:
                yield from self._defer(worker, ready, unit, reason)
            if not batch.units:
                return
            for request_id in dict.fromkeys(unit.loop.request_id for unit in batch.units):
                request = self._state.requests[request_id]
                if not request.running:
                    yield StartRequest(request_id=request_id, attempt=request.attempt)
            yield self._batch(worker, ready, batch.units)

    def _price(self, unit: WorkUnit, units: int) -> float:
        model_id = self._state.requests[unit.loop.request_id].spec.model_id
        return self._state.costs.predict(model_id, unit.cost_phase, unit.cost_shape, units)

    def _batch(
        self, worker: Worker, ready: ReadyUnits, units: tuple[WorkUnit, ...]
    ) -> DispatchBatch:
        state = self._state
        model_id = state.requests[units[0].loop.request_id].spec.model_id
        seconds = state.costs.predict_batch(model_id, units)
        steps = window_steps(state, worker, ready, units, seconds)
        return DispatchBatch(
            batch_id=f"{state.epoch}-{state.batches + 1}",
            worker_id=worker.worker_id,
            kind=units[0].kind,
            unit_ids=tuple(unit.unit_id for unit in units),
            loops=tuple(unit.loop for unit in units),
            predicted_seconds=steps * seconds,
            window=steps,
        )

    def _defer(
        self, worker: Worker, ready: ReadyUnits, unit: WorkUnit, reason: str
    ) -> Iterator[Decision]:
        """Say once why a unit does not run; a request that has not begun is queued by it."""
        resource = reason.partition(":")[0]
        if worker.deferred.get(unit.loop, "").startswith(resource):
            return
        first = unit.loop not in worker.deferred
        yield DeferLoop(loop=unit.loop, reason=reason)
        request = self._state.requests[unit.loop.request_id]
        if first and not request.running:
            position = list(ready.units).index(unit.unit_id) + 1
            yield QueueRequest(request_id=request.request_id, position=position, reason=reason)


def _held(request: LiveRequest, values: Iterable[str], worker_id: str) -> dict[str, Held]:
    """Where the values of a request are, as "node.output": its loops all run on one worker."""
    held = {}
    for value in values:
        node_id, _, name = value.partition(".")
        run = request.loops.get(node_id)
        if run is not None:
            size = run.result.value_bytes.get(name, 0) if run.result is not None else 0
            held[value] = Held(worker_id, size)
    return held


def _progress(request: LiveRequest, fraction: float) -> ReportProgress:
    node_id, step, steps = request.reached
    return ReportProgress(
        request_id=request.request_id, fraction=fraction, node_id=node_id, step=step, steps=steps
    )


def _pop(agenda: dict[str, None]) -> str:
    """The oldest entry, taken out."""
    first = next(iter(agenda))
    del agenda[first]
    return first
