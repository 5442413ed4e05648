"""SchedulerCore: inputs in, decisions out; no IO, no clock, no randomness.

The same inputs with the same times give the same decisions, in the service, in the in-process
engine, in a simulation and in a replay. See the README of this folder for how to drive it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isinf

from fastvideo.deployment.card import CostEntry, CostModel, EngineLoad
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.decider import Decider
from fastvideo.scheduling.events import AssignLoop, Decision, WorkerAttached
from fastvideo.scheduling.evolve import evolve
from fastvideo.scheduling.inputs import SchedulerInput
from fastvideo.scheduling.load import engine_load
from fastvideo.scheduling.observe import observe
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.preemption import room_due
from fastvideo.scheduling.request_scheduler import ModelCatalog
from fastvideo.scheduling.snapshot import SchedulerSnapshot, put_back, take
from fastvideo.scheduling.state import new_state
from fastvideo.scheduling.views import RequestView, request_view
from fastvideo.scheduling.work import LoopRef


@dataclass(frozen=True, slots=True)
class WorkerView:
    """What the core says of a worker."""

    worker_id: str
    address: str
    models: tuple[str, ...]
    loops: int
    batches_in_flight: int
    # Empty is one that runs every loop.
    role: str = ""


class SchedulerCore:
    """The scheduler of one shard. Not thread-safe: one caller at a time.

    `epoch` is the lease's; it makes batch ids unique over all leaders.
    """

    def __init__(
        self, catalog: ModelCatalog, *, policy: SchedulingPolicy | None = None, epoch: int = 0
    ) -> None:
        self._state = new_state(catalog, policy or SchedulingPolicy(), epoch)
        self._decider = Decider(self._state)

    @classmethod
    def restore(
        cls,
        catalog: ModelCatalog,
        policy: SchedulingPolicy | None,
        snapshot: SchedulerSnapshot,
        epoch: int | None = None,
    ) -> "SchedulerCore":
        """The core whose snapshot it is: it decides as that one would have.

        `epoch` is the snapshot's unless given. Raises what the catalog raises when it has a live
        request's program no more.
        """
        core = cls(catalog, policy=policy)
        state = core._state
        put_back(state, snapshot.values)
        for request in state.requests.values():
            request.graph = state.programs.select(request.spec)
        if epoch is not None:
            state.epoch = epoch
        return core

    def snapshot(self) -> SchedulerSnapshot:
        """All that the core knows now; the core may go on at once."""
        return take(self._state)

    def digest(self) -> str:
        """SHA-256 of all that the core knows; equal for cores that will decide alike."""
        return self.snapshot().digest()

    def decide(self, event: SchedulerInput, now: datetime) -> tuple[Decision, ...]:
        """Take in an input and decide all that follows; the decisions are taken in already.

        Raises nothing for bad input: a request that cannot run is decided to fail, and a
        report that is late, doubled or from nobody is dropped.
        """
        observe(self._state, event, now)
        made = []
        for decision in self._decider.decisions(now):
            evolve(self._state, decision, now)
            made.append(decision)
        return tuple(made)

    def replay(self, event: SchedulerInput, decisions: Iterable[Decision], now: datetime) -> None:
        """Take in an input and the decisions that were made of it, without choosing again."""
        observe(self._state, event, now)
        for decision in decisions:
            evolve(self._state, decision, now)
        self._state.touched_requests.clear()
        self._state.touched_models.clear()
        self._state.touched_workers.clear()
        self._state.untidy.clear()

    # -- what drivers ask ----------------------------------------------------------------

    def loop_inputs(self, loop: LoopRef) -> Mapping[str, str]:
        """The inputs of an assigned loop: value name to "node.output"."""
        request = self._state.requests.get(loop.request_id)
        if request is None or request.graph is None:
            return {}
        return request.graph.inputs_of(loop.node_id, request.spec)

    def incarnation(self, worker_id: str) -> str:
        """The incarnation of a worker that is known, detached or not; empty of another."""
        worker = self._state.workers.get(worker_id)
        return worker.attached.incarnation if worker is not None else ""

    def reported(self, worker_id: str) -> int:
        """The number of a worker's last report that was taken in."""
        worker = self._state.workers.get(worker_id)
        return worker.reported if worker is not None else 0

    @property
    def attachments(self) -> tuple[WorkerAttached, ...]:
        """What every known worker said of itself, detached or not."""
        return tuple(worker.attached for worker in self._state.workers.values())

    @property
    def specs(self) -> tuple[RequestSpec, ...]:
        """The live requests, in the order of their arrival."""
        return tuple(request.spec for request in self._state.requests.values())

    @property
    def assignments(self) -> tuple[AssignLoop, ...]:
        """Where each live loop is, as it was decided."""
        return tuple(
            AssignLoop(
                loop=run.ref,
                loop_id=run.loop_id,
                worker_id=request.worker_id,
                model_instance_id=request.model_instance_id,
            )
            for request in self._state.requests.values()
            for run in request.loops.values()
        )

    def next_deadline(self) -> datetime | None:
        """When a Tick is due at the latest, if one is."""
        state = self._state
        due = state.lines.news_due(state.policy.queue_news_seconds_min)
        room = room_due(state)
        if room is not None:
            due = min(due, room.timestamp())
        for moment, request_id in state.deadlines:
            if state.requests[request_id].ending is None:
                due = min(due, moment)
                break
        if isinf(due):
            # What is overdue is due with the next input.
            return None if due > 0 else datetime.fromtimestamp(0, UTC)
        return datetime.fromtimestamp(due, UTC)

    @property
    def epoch(self) -> int:
        """The epoch under which it decides."""
        return self._state.epoch

    @property
    def live_requests(self) -> int:
        """Requests that have not ended."""
        return len(self._state.requests)

    @property
    def queued_requests(self) -> int:
        """Requests that wait for a place on a worker."""
        return len(self._state.lines)

    @property
    def queued_by_model(self) -> Mapping[str, int]:
        """Model to the requests that wait for it; a model for which none waits is left out."""
        waiting: dict[str, int] = {}
        for kind, _, line in self._state.lines.of(tuple(self._state.lines.by_model)):
            waiting[kind.model_id] = waiting.get(kind.model_id, 0) + len(line)
        return waiting

    @property
    def waiting_since(self) -> Mapping[str, datetime]:
        """Model to the acceptance of the request that has waited longest for it."""
        state = self._state
        since: dict[str, datetime] = {}
        for kind in state.lines.entered:
            request = state.requests.get(state.lines.longest(kind))
            if request is not None:
                known = since.get(kind.model_id, request.accepted_at)
                since[kind.model_id] = min(known, request.accepted_at)
        return since

    @property
    def free(self) -> Mapping[str, float]:
        """Limited resource name to what is left of it now over all workers."""
        total: dict[str, float] = {}
        for worker in self._state.workers.values():
            for resource in worker.ledger.budget:
                left = worker.ledger.free(resource)
                total[resource] = total.get(resource, 0.0) + left
        return total

    @property
    def reserved(self) -> Mapping[str, float]:
        """Resource name to what is reserved now over all workers; all zero when idle."""
        total: dict[str, float] = {}
        for worker in self._state.workers.values():
            for resource in worker.ledger.budget:
                total.setdefault(resource, 0.0)
            for resource, amount in worker.ledger.reserved.items():
                total[resource] = total.get(resource, 0.0) + amount
        return total

    @property
    def workers(self) -> tuple[WorkerView, ...]:
        """The attached workers."""
        state = self._state
        return tuple(
            WorkerView(
                worker_id=worker.worker_id,
                address=worker.attached.address,
                models=tuple(instance.model_id for instance in worker.attached.instances),
                loops=sum(len(state.requests[id_].loops) for id_ in worker.residents),
                batches_in_flight=len(worker.flights),
                role=worker.attached.role,
            )
            for worker in state.workers.values()
        )

    @property
    def requests(self) -> tuple[RequestView, ...]:
        """The live requests, in the order of their arrival."""
        return tuple(map(request_view, self._state.requests.values()))

    @property
    def slo_targets(self) -> Mapping[str, float]:
        """Class of service to the seconds in which its requests shall end, where it says so."""
        classes = self._state.policy.slo_classes
        return {
            name: known.target_seconds
            for name, known in classes.items()
            if known.target_seconds > 0
        }

    @property
    def prediction_error(self) -> float:
        """How far predictions were off lately, relative to what was measured, 0 to 1."""
        return self._state.costs.error

    @property
    def predictions(self) -> int:
        """Predictions that were compared with a measurement."""
        return self._state.costs.samples

    @property
    def cost_model(self) -> CostModel:
        """Predicted device-seconds, as the deployment card exports them."""
        return self._state.costs.export()

    def cost_entries(self) -> Iterator[CostEntry]:
        """The entries of the cost model one by one, for whoever must not be held up by all."""
        return self._state.costs.entries()

    @property
    def load(self) -> EngineLoad:
        """What is to be done and what is at hand now, for whoever routes."""
        return engine_load(self._state)
