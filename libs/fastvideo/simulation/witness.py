"""What a checker makes of inputs: which reports are of the moment, and what follows from them.

This is the core's contract of inputs told a second time, without its code.
"""

from collections.abc import Sequence
from typing import Any, Final

from fastvideo.errors import ContractViolation
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.events import (
    BatchExecuted,
    LeaderElected,
    LoopFailed,
    LoopPrepared,
    RequestSnapshotted,
    ResidentLoop,
    WorkerAttached,
    WorkerDetached,
    WorkerDraining,
    WorkerLost,
    WorkerReattached,
)
from fastvideo.scheduling.inputs import CancelRequested, RequestSubmitted, SchedulerInput
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.work import LoopRef, StepResult, WorkPlan, WorkUnit
from fastvideo.simulation.books import NodeBook, Offer, RequestBook, WorkerBook
from fastvideo.simulation.models import SimulatedModels, make_unit
from fastvideo.simulation.places import Queue
from fastvideo.simulation.resources import batch_amounts, budget_of

# Of which each worker has one at least.
_SLOTS: Final = ("compute_slots", "io_slots")
# Why a worker refuses a unit whose loop it does not have; its request begins again.
_GONE: Final = frozenset({"LOOP_RELEASED", "UNKNOWN_UNIT"})


class InvariantBroken(ContractViolation):
    """Something that must hold in every world does not."""

    default_reason = "INVARIANT_BROKEN"


class Unsettled(InvariantBroken):
    """Requests had not ended when the world was over: too much work, or nobody does it."""

    default_reason = "UNSETTLED"


class Witness:
    """Books over the inputs of one history."""

    def __init__(self, models: SimulatedModels, policy: SchedulingPolicy) -> None:
        self._models = models
        self._policy = policy
        self.requests: dict[str, RequestBook] = {}
        self.workers: dict[str, WorkerBook] = {}
        self.now_us = 0
        # Requests that have not ended.
        self.live = 0
        # Who waits for a place.
        self.queue = Queue(policy)

    def observe(self, event: SchedulerInput) -> None:
        """Take in one input. InvariantBroken when two results of one unit count."""
        if not self._is_news(event):
            return
        match event:
            case RequestSubmitted():
                self._submit(event)
            case CancelRequested():
                book = self.requests.get(event.scope.target_id)
                if book is not None:
                    book.cancel_asked = True
            case WorkerAttached():
                self._lose(event.worker_id)
                self.workers[event.worker_id] = WorkerBook(event, budget_of(event, self._policy))
                self.queue.freed[event.worker_id] = None
            case WorkerLost():
                worker = self.workers.get(event.worker_id)
                if worker and event.incarnation in ("", worker.attached.incarnation):
                    self._lose(event.worker_id)
            case _:
                self._observe_worker(event)

    def _observe_worker(self, event: SchedulerInput) -> None:
        match event:
            case LeaderElected():
                for worker in self.workers.values():
                    self._detach(worker)
            case WorkerDetached():
                known = self.workers.get(event.worker_id)
                if known is not None and event.incarnation == known.attached.incarnation:
                    self._detach(known)
            case WorkerReattached():
                known = self.workers.get(event.worker_id)
                if known is not None and event.incarnation == known.attached.incarnation:
                    self._reattach(known, event)
            case WorkerDraining():
                known = self.workers.get(event.worker_id)
                if known is not None:
                    known.draining = True
            case LoopPrepared():
                self._prepare(event)
            case LoopFailed():
                self._fail_loop(event)
            case BatchExecuted():
                self._execute(event)
            case RequestSnapshotted():
                self._snapshot(event)
            case _:
                pass

    def _is_news(self, event: Any) -> bool:
        """Whether a numbered report comes for the first time."""
        number = getattr(event, "report", 0)
        worker = self.workers.get(event.worker_id) if number else None
        if worker is None:
            return True
        # A worker that is back says so under the number of its last report.
        if worker.reported > (number if isinstance(event, WorkerReattached) else number - 1):
            return False
        worker.reported = number
        return True

    # -- requests and workers ------------------------------------------------------------

    def _submit(self, event: RequestSubmitted) -> None:
        request_id = event.spec.request_id
        if request_id not in self.requests:
            self.requests[request_id] = RequestBook(
                event.spec,
                self.now_us,
                accepted_at=event.accepted_at,
                attempt=event.attempts + 1,
                progress=event.progress,
            )
            self.live += 1
            self.queue.enter(event.spec, event.accepted_at)

    def _lose(self, worker_id: str) -> None:
        worker = self.workers.pop(worker_id, None)
        for request_id in worker.residents if worker is not None else ():
            book = self.requests[request_id]
            book.lost = True
            book.losses += 1
            book.worker_id = ""
            book.set_aside = False
            self._keep_done(book)
            book.nodes = {}

    def _detach(self, worker: WorkerBook) -> None:
        worker.detached = True
        worker.strays = set()
        if worker.outage_since_us is None:
            worker.outage_since_us = self.now_us

    def _end_outage(self, worker: WorkerBook) -> None:
        if worker.outage_since_us is not None and not worker.detached and not worker.strays:
            worker.outage_us = worker.outage(self.now_us)
            worker.outage_since_us = None
            self.queue.freed[worker.attached.worker_id] = None

    def _reattach(self, worker: WorkerBook, event: WorkerReattached) -> None:
        """A worker is back: what never reached it is given again."""
        worker.detached = False
        worker.strays = set(event.batch_ids) - worker.batches.keys()
        for batch_id in [name for name in worker.batches if name not in event.batch_ids]:
            batch = worker.batches.pop(batch_id)
            worker.give_back(batch.amounts)
            for unit in batch.units:
                node = self._node(unit.loop)
                if node is not None and node.in_flight.pop(unit.unit_id, None) is not None:
                    node.offers[unit.unit_id] = self._offered(unit, worker)
        held = {loop.loop: loop for loop in event.loops}
        for request_id in worker.residents:
            self._compare(worker, self.requests[request_id], held, event.scopes)
        self._end_outage(worker)

    def _compare(
        self,
        worker: WorkerBook,
        book: RequestBook,
        held: dict[LoopRef, ResidentLoop],
        scopes: Sequence[str],
    ) -> None:
        for node_id, node in list(book.nodes.items()):
            resident = held.get(node.ref)
            if node.base is None and (resident is None or not resident.preparing):
                del book.nodes[node_id]
            elif node.base is not None and not node.ended and not (worker.strays or node.in_flight):
                there = resident.state_version if resident is not None else -1
                if there != node.version and (node.accepted or node.restored):
                    book.lost = True
                elif there != node.version:
                    # Nothing of it has run: it is made once more.
                    worker.let_go(book.nodes.pop(node_id))
        ended = any(node.ended for node in book.nodes.values())
        if ended and f"{book.spec.request_id}/{book.attempt}" not in scopes:
            book.lost = True

    # -- loops and units -----------------------------------------------------------------

    def _prepare(self, event: LoopPrepared) -> None:
        book = self._resident(event.plan.loop.request_id, event.worker_id)
        node = book.node(event.plan.loop) if book is not None else None
        if book is None or node is None or node.base is not None:
            return
        node.base = event.plan.state_version
        if event.plan.units:
            self._offer(node, event.plan, self.workers[event.worker_id])
        else:
            node.ended = True

    def _fail_loop(self, event: LoopFailed) -> None:
        book = self._resident(event.loop.request_id, event.worker_id)
        node = book.node(event.loop) if book is not None else None
        if book is None or node is None:
            return
        if event.error.reason == "DRAINING":
            self.workers[event.worker_id].draining = True
            book.lost = True
        elif node.restored:
            # It begins again without the snapshot.
            book.lost = True
            book.snapshots.pop(event.loop.node_id, None)
        else:
            book.faults.add(event.error.reason)

    def _snapshot(self, event: RequestSnapshotted) -> None:
        book = self.requests.get(event.request_id)
        if book is None:
            return
        here = book.attempt == event.attempt and book.worker_id == event.worker_id
        for snapshot in event.snapshots if event.error is None else ():
            if here or snapshot.loop.node_id not in book.snapshots:
                book.snapshots[snapshot.loop.node_id] = snapshot
        if not here:
            return
        book.set_aside = False
        if event.released:
            if book.in_flight:
                raise InvariantBroken(f"{event.request_id} was set aside while units of it run")
            worker = self.workers[event.worker_id]
            del worker.residents[event.request_id]
            worker.give_back({"resident_requests": 1})
            for node in book.nodes.values():
                worker.let_go(node)
            self._keep_done(book)
            book.worker_id = ""
            book.nodes = {}
            book.lost = True

    def _keep_done(self, book: RequestBook) -> None:
        """Nodes that left nothing on their worker need not run again."""
        for node_id, node in book.nodes.items():
            if node.ended and not self._leaves_values(book, node_id):
                book.done.add(node_id)

    def _leaves_values(self, book: RequestBook, node_id: str) -> bool:
        return self._models.run(book.spec, node_id).kind != "artifact_write"

    def _execute(self, event: BatchExecuted) -> None:
        worker = self.workers.get(event.worker_id)
        if worker is None:
            return
        batch = worker.batches.pop(event.batch_id, None)
        if batch is not None:
            worker.give_back(batch.amounts)
            worker.longest_us = max(worker.longest_us, self.now_us - batch.since_us)
            units = {unit.loop: unit.unit_id for unit in batch.units}
        elif event.batch_id in worker.strays or worker.detached:
            worker.strays.discard(event.batch_id)
            self._end_outage(worker)
            units = self._adopted(event, worker)
        else:
            return
        counted = set()
        for ref, unit_id in units.items():
            node = self._node(ref)
            if node is not None and node.in_flight.pop(unit_id, None) is not None:
                counted.add(ref)
        for result in event.results:
            if result.loop in counted:
                self._accept(result, worker)

    def _adopted(self, event: BatchExecuted, worker: WorkerBook) -> dict[LoopRef, str]:
        """The units of a batch that a dead leader gave and that are known here."""
        units: dict[LoopRef, str] = {}
        for result in event.results:
            book = self._resident(result.loop.request_id, worker.attached.worker_id)
            node = book.node(result.loop) if book is not None else None
            if node is None or result.loop in units:
                continue
            if result.unit_id in node.offers:
                node.offers.pop(result.unit_id)
                node.in_flight[result.unit_id] = event.batch_id
            if result.unit_id in node.in_flight:
                units[result.loop] = result.unit_id
        return units

    def _accept(self, result: StepResult, worker: WorkerBook) -> None:
        """A result that counts: its unit was in flight in the request's current attempt."""
        book = self.requests[result.loop.request_id]
        node = book.node(result.loop)
        if node is None:
            return
        book.units += 1
        if result.error is not None:
            if result.error.reason in _GONE:
                book.lost = True
            else:
                book.faults.add(result.error.reason)
            return
        index = result.step_range.start
        if index in node.accepted:
            raise InvariantBroken(
                f"two results count for {result.unit_id}: step {index} of {node.ref}"
            )
        in_order = not self._models.run(book.spec, result.loop.node_id).at_once
        if in_order and index != node.version:
            raise InvariantBroken(f"step {index} counts for {node.ref}, which is at {node.version}")
        node.accepted.add(index)
        if result.loop_result is not None:
            node.ended = True
            worker.let_go(node)
        elif result.next_plan is not None:
            self._offer(node, result.next_plan, worker)

    def _offer(self, node: NodeBook, plan: WorkPlan, worker: WorkerBook) -> None:
        if any(_is_too_large(unit, worker) for unit in plan.units):
            # It goes to a larger worker, or fails when there is none.
            self.requests[node.ref.request_id].lost = True
            return
        for unit in plan.units:
            if unit.unit_id not in node.in_flight and unit.unit_id not in node.offers:
                node.offers[unit.unit_id] = self._offered(unit, worker)

    def _offered(self, unit: WorkUnit, worker: WorkerBook) -> Offer:
        return Offer(unit, self.now_us, worker.outage(self.now_us))

    def fits_somewhere(self, spec: RequestSpec) -> bool:
        """Whether one of the workers can run every unit of a request."""
        return any(
            not worker.draining and self.fits(spec, worker) for worker in self.workers.values()
        )

    def fits(self, spec: RequestSpec, worker: WorkerBook) -> bool:
        """Whether a request may go to a worker, and every unit of it could run there alone."""
        attached, bound = worker.attached, self._policy.slo_class(spec.priority)
        pool, mesh = (bound.pool, bound.mesh) if bound is not None else ("", "")
        nodes = self._models.nodes(spec)
        if pool not in ("", attached.role) or not any(
            one.model_id == spec.model_id and mesh in ("", one.parallel_plan_hash)
            for one in attached.instances
        ):
            return False
        if attached.role and any(node.role not in ("", attached.role) for node in nodes):
            return False
        runs = [self._models.run(spec, node.node_id) for node in nodes]
        # The last one keeps most.
        units = [make_unit(spec, run, LoopRef(), "", run.units - 1) for run in runs]
        return not any(_is_too_large(unit, worker) for unit in units)

    # -- common --------------------------------------------------------------------------

    def _node(self, ref: LoopRef) -> NodeBook | None:
        book = self.requests.get(ref.request_id)
        return book.node(ref) if book is not None else None

    def _resident(self, request_id: str, worker_id: str) -> RequestBook | None:
        book = self.requests.get(request_id)
        return book if book is not None and worker_id and book.worker_id == worker_id else None


def _is_too_large(unit: WorkUnit, worker: WorkerBook) -> bool:
    """Whether a worker has too little of what a unit declares for it ever to run there."""
    amounts = batch_amounts([unit], 0.0, worker.budget)
    for slot in _SLOTS:
        amounts.pop(slot, None)
    if unit.resources.cache_blocks_kept:
        amounts["cache_blocks"] = unit.resources.cache_blocks
    return any(amount > worker.budget.get(resource, amount) for resource, amount in amounts.items())
