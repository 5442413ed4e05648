"""Checks what must hold after every input, whatever the core thinks of itself.

The checker folds inputs and decisions into books of its own. It decides by itself which reports
are of the moment, and compares what the core does with what follows.
"""

from collections.abc import Callable, Mapping
from datetime import datetime

from fastvideo.scheduling.events import (
    AssignLoop,
    CancelRequest,
    CompleteRequest,
    Decision,
    DispatchBatch,
    FailRequest,
    PreemptRequest,
    ReleaseRequest,
    ReportProgress,
    RestartRequest,
    StartRequest,
)
from fastvideo.scheduling.inputs import SchedulerInput
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.work import WorkUnit
from fastvideo.simulation.agenda import MICROSECONDS
from fastvideo.simulation.books import ROUNDING, Batch, NodeBook, Offer, RequestBook, WorkerBook
from fastvideo.simulation.loops import expected_artifacts, expected_digest
from fastvideo.simulation.models import SimulatedModels
from fastvideo.simulation.places import Places
from fastvideo.simulation.resources import batch_amounts
from fastvideo.simulation.witness import InvariantBroken, Witness


class Checker(Witness):
    """Books over one history."""

    def __init__(self, models: SimulatedModels, policy: SchedulingPolicy) -> None:
        super().__init__(models, policy)
        self._now = datetime.min
        # Waits may be longer by what the leader's clock went back.
        self.clock_back_us = 0
        self._batch_ids: set[str] = set()
        self._places = Places(policy, self.queue, self.requests, self.workers, self.fits)

    # -- one step ------------------------------------------------------------------------

    def step(
        self,
        event: SchedulerInput,
        decisions: tuple[Decision, ...],
        now: datetime,
        now_us: int,
        reserved: Callable[[], Mapping[str, float]] | None,
    ) -> None:
        """Take in an input and its decisions. InvariantBroken when they may not be."""
        self.now_us, self._now = now_us, now
        self.observe(event)
        for decision in decisions:
            self._decide(decision)
        self._check_empty()
        if reserved is not None:
            self._check_reserved(reserved())

    def finish(self) -> None:
        """Nothing is left to happen: check that all ended and nothing is held."""
        for request_id, book in self.requests.items():
            if not book.ended_as:
                raise InvariantBroken(f"request {request_id} has not ended: {self.describe(book)}")
        for worker in self.workers.values():
            held = worker.batches or worker.residents or worker.reserved
            if held:
                raise InvariantBroken(f"worker {worker.attached.worker_id} holds {worker.reserved}")

    def describe(self, book: RequestBook) -> str:
        """Where a request stands."""
        if not book.worker_id:
            return f"it waits for a place, attempt {book.attempt}"
        nodes = ", ".join(
            f"{name} {'ended' if node.ended else len(node.accepted)}"
            + (f" in flight {list(node.in_flight)}" if node.in_flight else "")
            for name, node in book.nodes.items()
        )
        return f"it is on {book.worker_id}, attempt {book.attempt}: {nodes}"

    # -- decisions -----------------------------------------------------------------------

    def _decide(self, decision: Decision) -> None:
        match decision:
            case AssignLoop():
                self._assign(decision)
            case DispatchBatch():
                self._dispatch(decision)
            case StartRequest():
                book = self._live(decision.request_id, decision)
                if book.attempt != decision.attempt:
                    raise InvariantBroken(f"started another attempt: {decision}")
                if book.started:
                    raise InvariantBroken(f"started twice: {decision}")
                book.started = True
            case ReleaseRequest():
                self._release(decision)
            case RestartRequest():
                book = self._live(decision.request_id, decision)
                if not book.lost:
                    raise InvariantBroken(f"restarted, yet it lost nothing: {decision}")
                if book.worker_id:
                    raise InvariantBroken(f"restarted, yet it holds a place: {decision}")
                if book.attempt + 1 != decision.attempt:
                    raise InvariantBroken(f"attempts do not rise: {decision}")
                book.attempt, book.lost, book.started = decision.attempt, False, False
                self._keep_done(book)
                book.nodes = {}
                since = max(self._now, book.accepted_at) if book.accepted_at else self._now
                self.queue.enter(book.spec, since)
            case ReportProgress():
                book = self._live(decision.request_id, decision)
                if decision.fraction < book.progress:
                    raise InvariantBroken(f"progress fell: {decision}")
                book.progress = decision.fraction
            case PreemptRequest():
                book = self._live(decision.request_id, decision)
                if (book.worker_id, book.attempt) != (decision.worker_id, decision.attempt):
                    raise InvariantBroken(f"set aside where it is not: {decision}")
                book.set_aside = True
            case CompleteRequest() | CancelRequest() | FailRequest():
                self._end(decision)
            case _:
                pass

    def _assign(self, decision: AssignLoop) -> None:
        book = self._live(decision.loop.request_id, decision)
        worker = self.workers.get(decision.worker_id)
        if worker is None:
            raise InvariantBroken(f"assigned to a worker that is not there: {decision}")
        if decision.loop.attempt != book.attempt:
            raise InvariantBroken(f"assigned in another attempt: {decision}")
        if not book.worker_id:
            if worker.draining:
                raise InvariantBroken(f"placed on a draining worker: {decision}")
            if worker.detached or worker.strays:
                raise InvariantBroken(f"placed on a worker that is not at hand: {decision}")
            self._check_place(book, worker, decision)
            worker.residents[book.spec.request_id] = None
            passed = worker.take({"resident_requests": 1})
            if passed:
                raise InvariantBroken(f"placed beyond the budget, {passed}: {decision}")
            book.worker_id = decision.worker_id
        if book.worker_id != decision.worker_id:
            raise InvariantBroken(f"split over two workers: {decision}")
        node_id = decision.loop.node_id
        if node_id in book.nodes:
            raise InvariantBroken(f"a loop was assigned twice: {decision}")
        if node_id in book.done:
            raise InvariantBroken(f"assigned what need not run again: {decision}")
        if decision.restore is None:
            run = self._models.run(book.spec, node_id)
            missing = [s for s in run.sources if s not in book.nodes or not book.nodes[s].ended]
            if missing:
                raise InvariantBroken(f"assigned before {missing} ended: {decision}")
        elif book.snapshots.get(node_id) != decision.restore:
            raise InvariantBroken(f"goes on from what was not saved last: {decision}")
        book.nodes[node_id] = NodeBook(decision.loop, restored=decision.restore is not None)

    def _dispatch(self, decision: DispatchBatch) -> None:
        worker = self.workers.get(decision.worker_id)
        if worker is None:
            raise InvariantBroken(f"dispatched to a worker that is not there: {decision}")
        if worker.detached or worker.strays:
            raise InvariantBroken(f"dispatched to a worker that is not at hand: {decision}")
        if decision.batch_id in self._batch_ids:
            raise InvariantBroken(f"a batch id came twice: {decision}")
        self._batch_ids.add(decision.batch_id)
        units = []
        for unit_id, ref in zip(decision.unit_ids, decision.loops, strict=True):
            book = self._live(ref.request_id, decision)
            node = book.node(ref)
            if node is None:
                raise InvariantBroken(f"{unit_id} is of an attempt that is over: {decision}")
            if unit_id in node.in_flight:
                raise InvariantBroken(f"{unit_id} was granted twice: {decision}")
            offer = node.offers.pop(unit_id, None)
            if offer is None:
                raise InvariantBroken(f"{unit_id} is not offered: {decision}")
            if book.cancel_asked and offer.unit.cancel_boundary:
                raise InvariantBroken(f"{unit_id} was granted after the cancel: {decision}")
            if book.set_aside:
                raise InvariantBroken(f"{unit_id} was granted, yet it is set aside: {decision}")
            self._check_wait(offer, worker)
            self._keep_blocks(node, offer.unit, worker, decision)
            node.in_flight[unit_id] = decision.batch_id
            units.append(offer.unit)
        self._check_mix(units, decision)
        amounts = batch_amounts(units, decision.predicted_seconds, worker.budget)
        passed = worker.take(amounts)
        if passed:
            raise InvariantBroken(f"granted beyond the budget, {passed}: {decision}")
        worker.batches[decision.batch_id] = Batch(
            tuple(units), amounts, decision.window, self.now_us
        )

    def _keep_blocks(
        self, node: NodeBook, unit: WorkUnit, worker: WorkerBook, decision: DispatchBatch
    ) -> None:
        """A loop that keeps blocks takes what it needs beside those that it has."""
        if not unit.resources.cache_blocks_kept:
            return
        more = unit.resources.cache_blocks - node.kept_blocks
        if more > 0:
            node.kept_blocks += more
            passed = worker.take({"cache_blocks": more})
            if passed:
                raise InvariantBroken(f"kept beyond the budget, {passed}: {decision}")

    def _check_mix(self, units: list[WorkUnit], decision: DispatchBatch) -> None:
        """A forward holds only what may share it, by what the requests are in truth."""
        if not units:
            raise InvariantBroken(f"an empty batch: {decision}")
        first = units[0]
        for unit in units:
            facts, common = self._facts(unit), self._facts(first)
            if facts != common:
                raise InvariantBroken(
                    f"batch {decision.batch_id} mixes what must not mix: {unit.unit_id} is "
                    f"{facts}, {first.unit_id} is {common}"
                )
            if len(units) > unit.max_batch:
                raise InvariantBroken(
                    f"batch {decision.batch_id} has {len(units)} units, {unit.unit_id} shares with "
                    f"{unit.max_batch} at most"
                )
            if not (decision.window <= 1 or decision.window <= unit.unconditional_next + 1):
                raise InvariantBroken(
                    f"a window of {decision.window} steps, {unit.unit_id} is sure of "
                    f"{unit.unconditional_next} after it: {decision}"
                )

    def _facts(self, unit: WorkUnit) -> object:
        spec = self.requests[unit.loop.request_id].spec
        return self._models.run(spec, unit.loop.node_id).facts_on(unit.model_instance_id)

    def _check_wait(self, offer: Offer, worker: WorkerBook) -> None:
        """No unit waits longer than the policy's bound and its elders' turns."""
        if offer.unit.resources.cache_blocks_kept:
            # It may have to wait until loops of others end, which is in nobody's hands.
            return
        out_us = worker.outage(self.now_us) - offer.outage_us
        waited_us = self.now_us - offer.since_us - out_us
        turns = 2 * (self._policy.resident_requests_max + 1)
        bound_s = self._policy.starving_wait_seconds_max
        bound_us = bound_s * MICROSECONDS + turns * worker.longest_us + self.clock_back_us
        if waited_us > bound_us:
            raise InvariantBroken(
                f"{offer.unit.unit_id} waited {waited_us / MICROSECONDS:.3f} s; the bound is "
                f"{bound_us / MICROSECONDS:.3f} s"
            )

    def _check_place(self, book: RequestBook, worker: WorkerBook, decision: AssignLoop) -> None:
        """A place is given: it is not kept for others, and nobody is passed over for too long."""
        spec = book.spec
        if not self._places.is_free(spec, worker):
            kept = self._places.kept_from(spec, worker)
            raise InvariantBroken(
                f"placed where {len(worker.residents)} of {worker.places} places are taken and "
                f"{kept} are kept for higher classes: {decision}"
            )
        name = self._places.passed_over(spec, worker, self._now)
        if name:
            accepted_at = self.requests[name].accepted_at
            raise InvariantBroken(
                f"{name} waits for a place since {accepted_at}, and was passed over again and "
                f"again by later ones without a turn for it: {decision}"
            )

    def _check_empty(self) -> None:
        """Nobody waits beside a free place."""
        found = self._places.empty_beside()
        if found is not None:
            name, worker_id = found
            raise InvariantBroken(f"{name} waits, and {worker_id} has a place free for it")

    def _release(self, decision: ReleaseRequest) -> None:
        if decision.forget:
            self._check_forgotten(decision)
            return
        book = self.requests.get(decision.request_id)
        if book is None:
            raise InvariantBroken(f"released what is not known: {decision}")
        worker = self.workers.get(decision.worker_id)
        held = worker is not None and decision.request_id in worker.residents
        if not held:
            raise InvariantBroken(f"released what that worker does not hold: {decision}")
        assert worker is not None
        if book.in_flight:
            raise InvariantBroken(f"released while units run: {decision}")
        del worker.residents[decision.request_id]
        worker.give_back({"resident_requests": 1})
        for node in book.nodes.values():
            worker.let_go(node)
        self._keep_done(book)
        book.worker_id = ""
        book.set_aside = False
        self.queue.freed[decision.worker_id] = None

    def _check_forgotten(self, decision: ReleaseRequest) -> None:
        """What a worker is told to free unasked is nobody's."""
        book = self.requests.get(decision.request_id)
        if book is None or book.worker_id != decision.worker_id:
            return
        mine = book.attempt == decision.attempt
        known = [node_id for node_id in decision.node_ids if node_id in book.nodes]
        if mine and (known or not decision.node_ids):
            raise InvariantBroken(f"freed what is in use, as if it were nobody's: {decision}")

    def _end(self, decision: CompleteRequest | CancelRequest | FailRequest) -> None:
        book = self._live(decision.request_id, decision)
        if book.worker_id:
            raise InvariantBroken(f"ended, yet its place was not freed: {decision}")
        if isinstance(decision, CompleteRequest):
            self._check_complete(book, decision)
        elif isinstance(decision, CancelRequest):
            if not (book.cancel_asked):
                raise InvariantBroken(f"cancelled, yet nobody asked for it: {decision}")
        else:
            self._check_failed(book, decision)
        book.ended_as = type(decision).__name__
        self.queue.leave(book.spec)
        book.nodes = {}
        self.live -= 1

    def _check_complete(self, book: RequestBook, decision: CompleteRequest) -> None:
        for node_id in self._models.ends(book.spec):
            node = book.nodes.get(node_id)
            if node_id not in book.done and (node is None or not node.ended):
                raise InvariantBroken(f"completed without {node_id}: {decision}")
        digest = expected_digest(self._models, book.spec)
        if decision.latents_digest != digest:
            raise InvariantBroken(
                f"completed with digest {decision.latents_digest}, undisturbed it is {digest}: "
                f"{decision}"
            )
        artifacts = expected_artifacts(self._models, book.spec)
        if not (
            len(decision.artifact_ids) == len(artifacts) and artifacts == set(decision.artifact_ids)
        ):
            raise InvariantBroken(f"completed with artifacts {decision.artifact_ids}: {decision}")
        counted = decision.metrics.units
        if counted != book.units:
            raise InvariantBroken(
                f"{counted} results count for {decision.request_id}, "
                f"{book.units} were to be accepted"
            )

    def _check_failed(self, book: RequestBook, decision: FailRequest) -> None:
        reason = decision.error.reason
        if reason == "DEADLINE_EXCEEDED":
            deadline = book.spec.deadline
            late = deadline is not None and deadline <= self._now
            if not late:
                raise InvariantBroken(f"its deadline has not passed: {decision}")
        elif reason == "WORKER_LOST":
            if book.losses <= 0:
                raise InvariantBroken(f"no worker was lost under it: {decision}")
        elif reason == "RESOURCE_EXHAUSTED":
            if self.live <= self._policy.live_requests_max and self.fits_somewhere(book.spec):
                raise InvariantBroken(f"it failed for what a worker has: {decision}")
        elif reason not in book.faults:
            raise InvariantBroken(f"it failed and nothing of it did: {decision}")

    # -- common --------------------------------------------------------------------------

    def _check_reserved(self, reserved: Mapping[str, float]) -> None:
        """What the core says is reserved is what follows from what was granted."""
        total: dict[str, float] = {}
        for worker in self.workers.values():
            for resource, amount in worker.reserved.items():
                total[resource] = total.get(resource, 0) + amount
        for resource in sorted(total.keys() | reserved.keys()):
            held, known = reserved.get(resource, 0), total.get(resource, 0)
            # Seconds are rounded on each worker by itself.
            if abs(held - known) >= ROUNDING * max(1, len(self.workers)):
                raise InvariantBroken(
                    f"{held} {resource} are reserved, and {known} are granted: a leak"
                )

    def _find(self, request_id: str, worker_id: str) -> RequestBook | None:
        book = self.requests.get(request_id)
        return book if book is not None and book.worker_id == worker_id and worker_id else None

    def _live(self, request_id: str, decision: Decision) -> RequestBook:
        book = self.requests.get(request_id)
        if book is None:
            raise InvariantBroken(f"decided about a request that nobody submitted: {decision}")
        if book.ended_as:
            raise InvariantBroken(f"decided after the request's end ({book.ended_as}): {decision}")
        return book
