"""A shard's history told by hand: what was reported and decided, at which second."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from fastvideo.events.types import EventPayload
from fastvideo.explain.explanation import Page, explain
from fastvideo.explain.history import History
from fastvideo.explain.names import Names
from fastvideo.explain.totals import timeline
from fastvideo.explain.types import ExplainedUnit, Explanation
from fastvideo.requests.types import (
    OutputSpec,
    RequestKind,
    RequestMetrics,
    RequestSpec,
    RequestState,
    RequestStatus,
    SamplingParams,
)
from fastvideo.scheduling.events import (
    AssignLoop,
    BatchExecuted,
    CompleteRequest,
    Decision,
    DispatchBatch,
    LoopPrepared,
    SchedulerDecided,
)
from fastvideo.scheduling.work import (
    CachePlan,
    LoopRef,
    LoopResult,
    LoopSnapshot,
    PlacementHint,
    ResourceRequest,
    StepRange,
    StepResult,
    UnitKind,
    WorkPlan,
    WorkUnit,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
ME = "req_me"
OTHER = "req_other"
THIRD = "req_third"


def at(seconds: float) -> datetime:
    """A moment, in seconds after the request was accepted."""
    return START + timedelta(seconds=seconds)


def since(moment: datetime | None) -> float:
    """The seconds of a moment."""
    assert moment is not None
    return round((moment - START).total_seconds(), 6)


def ref(request_id: str = ME, node_id: str = "denoise", attempt: int = 1) -> LoopRef:
    return LoopRef(request_id=request_id, node_id=node_id, attempt=attempt)


def unit_id(loop: LoopRef, step: int) -> str:
    return f"{loop.request_id}/{loop.node_id}/{loop.attempt}/{step}"


def unit(loop: LoopRef, step: int, steps: int = 4, *, compute: bool = True) -> WorkUnit:
    return WorkUnit(
        unit_id=unit_id(loop, step),
        loop=loop,
        kind=UnitKind.DIFFUSION_STEP if compute else UnitKind.ARTIFACT_WRITE,
        step_range=StepRange(start=step, stop=step + 1, total=steps),
        resources=ResourceRequest(compute=compute),
        cache_plan=CachePlan(),
        placement_hint=PlacementHint(),
    )


def plan(loop: LoopRef, step: int, **options: bool) -> WorkPlan:
    return WorkPlan(loop=loop, state_version=step, units=(unit(loop, step, **options),))


def result(
    loop: LoopRef,
    step: int,
    seconds: float,
    *,
    then: WorkPlan | None = None,
    ends: bool = False,
) -> StepResult:
    return StepResult(
        unit_id=unit_id(loop, step),
        loop=loop,
        step_range=StepRange(start=step, stop=step + 1, total=4),
        measured_seconds=seconds,
        next_plan=then,
        loop_result=LoopResult(loop=loop) if ends else None,
    )


def assign(
    loop: LoopRef | None = None, worker: str = "w1", restore: LoopSnapshot | None = None
) -> AssignLoop:
    return AssignLoop(
        loop=loop or ref(),
        loop_id="denoise",
        worker_id=worker,
        model_instance_id=f"{worker}/m",
        restore=restore,
    )


def prepared(
    loop: LoopRef | None = None, step: int = 0, worker: str = "w1", seconds: float = 0.1
) -> LoopPrepared:
    return LoopPrepared(worker_id=worker, plan=plan(loop or ref(), step), seconds=seconds)


def dispatch(
    batch_id: str,
    *units: tuple[LoopRef, int],
    worker: str = "w1",
    predicted: float = 1.0,
    window: int = 1,
    kind: UnitKind = UnitKind.DIFFUSION_STEP,
) -> DispatchBatch:
    return DispatchBatch(
        batch_id=batch_id,
        worker_id=worker,
        kind=kind,
        unit_ids=tuple(unit_id(loop, step) for loop, step in units),
        loops=tuple(loop for loop, _ in units),
        predicted_seconds=predicted,
        window=window,
    )


def executed(
    batch_id: str,
    *results: StepResult,
    seconds: float,
    worker: str = "w1",
    waited: float = 0.0,
    kind: UnitKind = UnitKind.DIFFUSION_STEP,
) -> BatchExecuted:
    return BatchExecuted(
        worker_id=worker,
        batch_id=batch_id,
        kind=kind,
        results=results,
        measured_seconds=seconds,
        waited_seconds=waited,
        forwards=1,
    )


def complete() -> CompleteRequest:
    return CompleteRequest(request_id=ME, metrics=RequestMetrics())


class Tale:
    """Tells a history of `ME`, which is accepted at second 0."""

    def __init__(self) -> None:
        self.history = History(ME, START)

    def decides(self, seconds: float, *decisions: Decision) -> None:
        """The scheduler decides, upon nothing that is told."""
        self.history.take(
            at(seconds), SchedulerDecided(at=at(seconds), decisions=decisions, epoch=1)
        )

    def hears(self, seconds: float, report: EventPayload, *decisions: Decision) -> None:
        """Something is reported, and the scheduler decides upon it."""
        self.history.take(at(seconds), report)
        self.decides(seconds, *decisions)

    def begins(self, seconds: float = 0.0) -> None:
        """It is placed and prepared at once, and its first unit is ready."""
        self.decides(seconds, assign())
        self.hears(seconds, prepared(seconds=0.0))

    def explained(
        self,
        now: float = 100.0,
        names: Sequence[str] = (ME, OTHER, THIRD),
        page: Page | None = None,
        status: RequestStatus = RequestStatus.RUNNING,
    ) -> Explanation:
        state = RequestState(spec=spec(), status=status, accepted_at=START)
        allowed = Names(frozenset(names))
        laid_out = timeline(self.history, at(now))
        return explain(state, self.history, laid_out, allowed, page=page)

    def unit(self, step: int, attempt: int = 1, now: float = 100.0) -> ExplainedUnit:
        wanted = unit_id(ref(attempt=attempt), step)
        (found,) = [one for one in self.explained(now).units if one.unit_id == wanted]
        return found


def spec() -> RequestSpec:
    return RequestSpec(
        request_id=ME,
        kind=RequestKind.GENERATION,
        model_id="m",
        sampling=SamplingParams(),
        outputs=OutputSpec(),
        tenant_id="us",
    )


def waits(one: ExplainedUnit | Explanation) -> list[tuple[str, float, float]]:
    """Each wait as cause, beginning and seconds."""
    return [(str(wait.cause), since(wait.begun_at), round(wait.seconds, 6)) for wait in one.waits]
