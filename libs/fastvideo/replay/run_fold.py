"""The fold: what a shard's stream says of the run of one request.

Pure. Results of stale attempts, of loops that are elsewhere and of units that were taken in
already are passed over, as the scheduler's core passes over them.
"""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from fastvideo.events.types import EventPayload
from fastvideo.explain.workers import rounds_of
from fastvideo.replay.types import LoggedStep
from fastvideo.requests.behavior import BehaviorRecord
from fastvideo.scheduling.effects import TERMINAL
from fastvideo.scheduling.events import (
    AssignLoop,
    BatchExecuted,
    SchedulerDecided,
    WorkerAttached,
)
from fastvideo.scheduling.traces import (
    BehaviorRecorded,
    CacheAccess,
    CacheAccessed,
    ComponentsTraced,
)
from fastvideo.scheduling.work import LoopRef, ModelState, StepResult

_LATENTS: Final = "latents"


@dataclass(slots=True)
class _Node:
    """The run of one node: where it is now, and the steps that count."""

    assigned: AssignLoop
    # Steps of every attempt that this one goes on from, in order.
    steps: list[LoggedStep] = field(default_factory=list)
    # Units whose results were taken in.
    taken: set[str] = field(default_factory=set)

    def assign(self, decision: AssignLoop) -> None:
        """It is made anew, from its beginning or from a snapshot."""
        self.assigned, self.taken = decision, set()
        restore = decision.restore
        if restore is None:
            self.steps = []
        elif not restore.ended:
            self.steps = [s for s in self.steps if s.step_range.stop <= restore.steps_done]


class RunFold:
    """What is known of the run up to the last event that was taken."""

    ABOUT_WORKERS: ClassVar[frozenset[str]] = frozenset({WorkerAttached.__name__})

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        # In the order in which they first began.
        self._nodes: dict[str, _Node] = {}
        self._attached: dict[str, WorkerAttached] = {}
        # What each unit was traced to do.
        self._components: dict[str, ComponentsTraced] = {}
        self._behaviors: dict[str, BehaviorRecord] = {}
        self._accesses: list[CacheAccess] = []
        self.attempt = 0
        self.worker_id = ""
        self.model_instance_id = ""
        self.latents_digest = ""
        self.ended = False

    def take(self, payload: EventPayload) -> None:
        """Take in the next event of the shard's stream."""
        match payload:
            case SchedulerDecided(decisions=decisions):
                for decision in decisions:
                    if isinstance(decision, AssignLoop):
                        self._assigned(decision)
                    elif isinstance(decision, TERMINAL):
                        self.ended = self.ended or decision.request_id == self.request_id
            case BatchExecuted():
                self._executed(payload)
            case WorkerAttached(worker_id=worker_id):
                self._attached[worker_id] = payload
            case ComponentsTraced(request_id=self.request_id):
                self._components[payload.unit_id] = payload
            case CacheAccessed(accesses=accesses):
                self._accesses += [a for a in accesses if a.request_id == self.request_id]
            case BehaviorRecorded(record=record) if record.request_id == self.request_id:
                self._behaviors[payload.behavior_id] = record

    def take_attachment(self, attached: WorkerAttached) -> bool:
        """Take in what a worker said of itself earlier; whether it is the run's worker."""
        if attached.worker_id != self.worker_id:
            return False
        self._attached.setdefault(attached.worker_id, attached)
        return True

    @property
    def attached(self) -> WorkerAttached | None:
        """What the last worker of the run said of itself."""
        return self._attached.get(self.worker_id)

    @property
    def instance(self) -> ModelState | None:
        """The instance of the model that ran it last."""
        attached = self.attached
        if attached is None:
            return None
        name = self.model_instance_id
        return next((i for i in attached.instances if i.model_instance_id == name), None)

    @property
    def steps(self) -> tuple[LoggedStep, ...]:
        """The steps of the accepted run, node after node as they first began."""
        return tuple(
            replace(step, components=self._components.get(step.unit_id))
            for node in self._nodes.values()
            for step in node.steps
        )

    @property
    def behaviors(self) -> tuple[BehaviorRecord, ...]:
        """What was captured, by sample; the last attempt's where one was captured twice."""
        return tuple(self._behaviors.values())

    @property
    def accesses(self) -> tuple[CacheAccess, ...]:
        """The looks into caches, in order."""
        return tuple(self._accesses)

    def _assigned(self, decision: AssignLoop) -> None:
        ref = decision.loop
        if ref.request_id != self.request_id:
            return
        self.attempt, self.worker_id = ref.attempt, decision.worker_id
        self.model_instance_id = decision.model_instance_id
        self._nodes.setdefault(ref.node_id, _Node(decision)).assign(decision)

    def _executed(self, event: BatchExecuted) -> None:
        sizes: defaultdict[str, int] = defaultdict(int)
        for together in rounds_of(event.results):
            for result in together:
                sizes[result.unit_id] = len(together)
        for result in event.results:
            node = self._current(result.loop, event.worker_id)
            if node is None or result.unit_id in node.taken or result.error is not None:
                continue
            node.taken.add(result.unit_id)
            node.steps.append(_step(result, node.assigned.loop_id, sizes[result.unit_id]))
            if result.loop_result is not None:
                latents = result.loop_result.digests.get(_LATENTS, "")
                self.latents_digest = latents or self.latents_digest

    def _current(self, loop: LoopRef, worker_id: str) -> _Node | None:
        """The node whose run it is now; None when the run is another, or over."""
        node = self._nodes.get(loop.node_id) if loop.request_id == self.request_id else None
        if node is None or self.ended or loop.attempt != self.attempt:
            return None
        placed = node.assigned.loop == loop and node.assigned.worker_id == worker_id
        return node if placed else None


def _step(result: StepResult, loop_id: str, batch_size: int) -> LoggedStep:
    return LoggedStep(
        node_id=result.loop.node_id,
        loop_id=loop_id,
        unit_id=result.unit_id,
        state_version=result.state_version,
        step_range=result.step_range,
        state_digest=result.state_digest,
        measured_seconds=result.measured_seconds,
        batch_size=batch_size,
        cache_lookups=result.cache_lookups,
    )
