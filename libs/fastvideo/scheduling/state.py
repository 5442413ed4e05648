"""What the core knows: live requests, workers, and indexes that make each step cheap.

Only `observe` (for inputs) and `evolve` (for decisions) change it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from math import inf
from typing import ClassVar, Final

from fastvideo.requests.types import ErrorDetail, RequestMetrics, RequestSpec
from fastvideo.scheduling.admission import AdmissionController, Ledger
from fastvideo.scheduling.affinity import Affinity
from fastvideo.scheduling.cost import CostEstimator
from fastvideo.scheduling.events import WorkerAttached
from fastvideo.scheduling.fairness import Bill, FairShares
from fastvideo.scheduling.lines import Lines, PlaceKind
from fastvideo.scheduling.loop_scheduler import LoopRun, LoopScheduler
from fastvideo.scheduling.placement import PlacementScheduler
from fastvideo.scheduling.policy import DEFAULT_BUDGET, SchedulingPolicy
from fastvideo.scheduling.ready import Rank, ReadyUnits
from fastvideo.scheduling.request_scheduler import ModelCatalog, ProgramGraph, RequestScheduler
from fastvideo.scheduling.work import LoopRef, LoopSnapshot, WorkUnit

NOWHERE: Final = PlaceKind("", "", "")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a request shall end at its next boundary: failed with an error, or cancelled."""

    reason: str = ""
    error: ErrorDetail | None = None


class Saving(StrEnum):
    """Whether a request is being saved, and what comes of it then."""

    NOT = ""
    # It goes on.
    GOES_ON = "goes_on"
    # It gives its place away.
    SET_ASIDE = "set_aside"


@dataclass(slots=True)
class LiveRequest:
    """A request that has not ended."""

    # Not in a snapshot: follows from the spec. And what only choosing notes, not taking in.
    DERIVED: ClassVar = frozenset({"graph"})
    INCIDENTAL: ClassVar = frozenset({"walk_due"})

    spec: RequestSpec
    graph: ProgramGraph | None
    accepted_at: datetime
    rank: Rank
    attempt: int = 1
    # Workers that were lost under it; its share in those in a row that it may have killed, as
    # something of it ran and it had got no further than at the loss before; and how far that
    # was, 0 to 1.
    losses: int = 0
    suspicion: float = 0.0
    lost_fraction: float = -1.0
    worker_id: str = ""
    model_instance_id: str = ""
    # Predicted device-seconds, as placement counts them.
    load_seconds: float = 0.0
    # What may be cached for it (`affinity`), its session left out.
    cache_keys: tuple[str, ...] = ()
    # What its tenant was charged for its place, and what it had used before.
    bill: Bill | None = None
    billed_from: float = 0.0
    loops: dict[str, LoopRun] = field(default_factory=dict)
    # When the first unit of any try began, and whether this try has begun.
    started_at: datetime | None = None
    running: bool = False
    ending: Ending | None = None
    # Why its worker's loss threw it back, and from where; empty when none did.
    lost_reason: str = ""
    lost_boundary: str = ""
    # Nodes whose loops a user cancels, with the reason, until each is at a boundary; and those
    # that were cancelled or can have no inputs any more.
    cancelling: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, None] = field(default_factory=dict)
    # Streams that a user cancels, with the reason; and those that the worker was told of.
    muted: dict[str, str] = field(default_factory=dict)
    muted_told: dict[str, None] = field(default_factory=dict)
    # What was saved of it last, by node, and nodes that ended and left nothing on their worker:
    # where it goes on when it loses its place.
    snapshots: dict[str, LoopSnapshot] = field(default_factory=dict)
    done: dict[str, None] = field(default_factory=dict)
    # Its worker saves it now; it has to say so again; it cannot.
    saving: Saving = Saving.NOT
    saving_lost: bool = False
    unsavable: bool = False
    # Device-seconds, and when, up to which it is saved or had nothing to save.
    saved_seconds: float = 0.0
    saved_at: datetime | None = None
    placed_at: datetime | None = None
    preemptions: int = 0
    # Node, step and steps of the unit that ended last.
    reached: tuple[str, int, int] = ("", 0, 0)
    progress: float = 0.0
    units: int = 0
    device_seconds: float = 0.0
    # A loop has ended and nobody has looked yet what begins by that.
    walk_due: bool = False
    artifact_ids: dict[str, None] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    # Resource name to the most that one of its units has declared.
    needs: dict[str, float] = field(default_factory=dict)
    # Where it waits for a place, and what it was told of that.
    place_kind: PlaceKind = NOWHERE
    queued_position: int = 0
    queued_reason: str = ""

    @property
    def request_id(self) -> str:
        """Its id."""
        return self.spec.request_id

    @property
    def in_flight(self) -> bool:
        """Whether any of its units runs now."""
        return any(run.in_flight for run in self.loops.values())

    def wants_boundary(self, node_id: str) -> bool:
        """Whether something shall happen once the loop of a node is at a boundary."""
        return (
            self.ending is not None
            or bool(self.lost_reason)
            or self.saving is not Saving.NOT
            or node_id in self.cancelling
        )

    def ref(self, node_id: str) -> LoopRef:
        """This try's run of a node."""
        return LoopRef(request_id=self.request_id, node_id=node_id, attempt=self.attempt)

    def metrics(self, now: datetime) -> RequestMetrics:
        """Its figures, were it to end now."""
        begun = self.started_at or now
        return RequestMetrics(
            total_seconds=max(0.0, (now - self.accepted_at).total_seconds()),
            queue_seconds=max(0.0, (begun - self.accepted_at).total_seconds()),
            device_seconds=self.device_seconds,
            units=self.units,
            attempts=self.attempt,
        )


@dataclass(frozen=True, slots=True)
class Flight:
    """A batch that a worker runs now, and what it reserved."""

    model_id: str
    units: tuple[WorkUnit, ...]
    # What is given back with the report; what loops keep is not in it.
    amounts: dict[str, float]
    # What each unit's tenant was charged, and their kind if kinds have shares.
    bills: tuple[Bill, ...] = ()
    kind_bill: Bill | None = None
    # Steps granted, and whether they were told to stop at the next boundary.
    window: int = 1
    yielding: bool = False


@dataclass(slots=True)
class Worker:
    """An attached worker."""

    attached: WorkerAttached
    ledger: Ledger
    compute: ReadyUnits = field(default_factory=ReadyUnits)
    io: ReadyUnits = field(default_factory=ReadyUnits)
    flights: dict[str, Flight] = field(default_factory=dict)
    residents: dict[str, None] = field(default_factory=dict)
    draining: bool = False
    # Its stream broke, or its scheduler did, and it has not come back yet.
    detached: bool = False
    # The number of its last report.
    reported: int = 0
    # Batches of a former scheduler that it runs and this one knows nothing of.
    strays: dict[str, None] = field(default_factory=dict)
    draining_since: datetime | None = None
    # What it holds and nobody wants: (request id, attempt) to nodes; no nodes means all.
    unwanted: dict[tuple[str, int], tuple[str, ...]] = field(default_factory=dict)
    # Loops that could not be admitted, and the reason that was told.
    deferred: dict[LoopRef, str] = field(default_factory=dict)

    @property
    def worker_id(self) -> str:
        """Its id."""
        return self.attached.worker_id

    @property
    def is_commanded(self) -> bool:
        """Whether it may be told to do something."""
        return not self.detached and not self.strays

    def queue(self, unit: WorkUnit) -> ReadyUnits:
        """The queue for the slot that the unit needs."""
        return self.compute if unit.resources.compute else self.io


@dataclass(slots=True)
class SchedulerState:
    """All that the core knows, with the layers whose rules it follows."""

    # Not in a snapshot (`snapshot`): rules, which the policy and the catalog give.
    DERIVED: ClassVar = frozenset({"policy", "admission", "programs", "loop_rules"})

    policy: SchedulingPolicy
    epoch: int
    admission: AdmissionController
    costs: CostEstimator
    placement: PlacementScheduler
    programs: RequestScheduler
    loop_rules: LoopScheduler
    requests: dict[str, LiveRequest] = field(default_factory=dict)
    workers: dict[str, Worker] = field(default_factory=dict)
    sessions: dict[str, dict[str, None]] = field(default_factory=dict)
    # Requests without a place.
    lines: Lines = field(default_factory=Lines)
    # (deadline, request id), in order.
    deadlines: list[tuple[float, str]] = field(default_factory=list)
    # What workers have cached; and of requests that are alike, what the one that needed least of a
    # resource needed of it.
    affinity: Affinity = field(default_factory=Affinity)
    needs: dict[str, dict[str, float]] = field(default_factory=dict)
    # Tenants' shares of the device-seconds of placed requests.
    shares: FairShares = field(default_factory=FairShares)
    arrivals: int = 0
    batches: int = 0
    # Requests that have a place, by the level of their priority, in the order of their coming;
    # and those of them that are being set aside.
    placed: dict[int, dict[str, None]] = field(default_factory=dict)
    setting_aside: dict[str, None] = field(default_factory=dict)
    # What the last input touched and no decision has looked at yet, in order.
    touched_requests: dict[str, None] = field(default_factory=dict)
    touched_workers: dict[str, None] = field(default_factory=dict)
    touched_models: dict[str, None] = field(default_factory=dict)
    # Workers that hold something unwanted.
    untidy: dict[str, None] = field(default_factory=dict)

    def live(self, ref: LoopRef) -> tuple[LiveRequest, LoopRun] | None:
        """The request and the loop that a reference means, if this try still lives."""
        request = self.requests.get(ref.request_id)
        if request is None or request.attempt != ref.attempt:
            return None
        run = request.loops.get(ref.node_id)
        return None if run is None else (request, run)

    def enqueue(self, request: LiveRequest) -> None:
        """Let a request wait for a place."""
        spec = request.spec
        self.lines.add(request.place_kind, spec.tenant_id, request.rank, spec.request_id)
        self.touched_models[request.spec.model_id] = None

    def dequeue(self, request: LiveRequest) -> None:
        """It waits no longer."""
        spec = request.spec
        self.lines.remove(request.place_kind, spec.tenant_id, request.rank, spec.request_id)

    def occupy(self, request: LiveRequest, worker: Worker, now: datetime) -> None:
        """The request has a place."""
        level = self.policy.level(request.spec.priority)
        self.placed.setdefault(level, {})[request.request_id] = None
        request.placed_at = request.saved_at = now
        request.saved_seconds = request.device_seconds
        request.unsavable = not worker.attached.snapshots

    def vacate(self, request: LiveRequest) -> None:
        """The request has no place any more."""
        level = self.policy.level(request.spec.priority)
        others = self.placed.get(level, {})
        others.pop(request.request_id, None)
        if not others:
            self.placed.pop(level, None)
        self.setting_aside.pop(request.request_id, None)
        request.saving = Saving.NOT
        request.saving_lost = False

    def expired(self, now: datetime) -> Iterator[LiveRequest]:
        """Live requests whose deadline has passed and that nothing ends yet."""
        moment = now.timestamp()
        for deadline, request_id in self.deadlines:
            if deadline > moment:
                return
            request = self.requests[request_id]
            if request.ending is None:
                yield request

    def rank_of(
        self,
        spec: RequestSpec,
        arrival: int,
        accepted_at: datetime,
        *,
        thrown_back: bool = False,
    ) -> Rank:
        """Where a request stands among others of its tenant."""
        deadline = spec.deadline.timestamp() if spec.deadline is not None else inf
        known = self.policy.slo_class(spec.priority) if self.policy.slo_classes else None
        if known is not None and known.target_seconds > 0:
            deadline = min(deadline, accepted_at.timestamp() + known.target_seconds)
        return Rank(0 if thrown_back else 1, -spec.priority, deadline, arrival)


def new_state(catalog: ModelCatalog, policy: SchedulingPolicy, epoch: int) -> SchedulerState:
    """An empty state over a catalog."""
    return SchedulerState(
        policy=policy,
        epoch=epoch,
        admission=AdmissionController(
            resident_requests_max=policy.resident_requests_max,
            worker_budget={**DEFAULT_BUDGET, **policy.worker_budget},
            role_budgets=policy.role_budgets,
        ),
        costs=CostEstimator(catalog.cost_prior, samples_max=policy.cost_samples_max),
        placement=PlacementScheduler(),
        programs=RequestScheduler(catalog),
        loop_rules=LoopScheduler(),
    )
