"""A hand that writes a shard's stream, as a scheduler would of a worker w1."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from fastvideo.events.catalog import new_event
from fastvideo.events.records import AppendCommand, NewEvent, StreamAppend
from fastvideo.events.types import EventMetadata, EventPayload
from fastvideo.ids import new_id
from fastvideo.requests.types import RequestMetrics
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
    PlacementHint,
    ResourceRequest,
    StepRange,
    StepResult,
    UnitKind,
    WorkPlan,
    WorkUnit,
)
from tests.integration.gateway.worlds import World

SHARD = "scheduler-0"
OURS = "default"


class Shard:
    """Writes a shard's stream as a scheduler would, a millisecond between two events."""

    def __init__(self, world: World) -> None:
        self._log = world.log
        self._now = datetime.now(UTC)
        self._events: list[NewEvent] = []

    def note(self, payload: EventPayload, tenant_id: str = OURS) -> None:
        """One event more."""
        self._now += timedelta(milliseconds=1)
        about = EventMetadata(tenant_id=tenant_id, occurred_at=self._now)
        self._events.append(new_event(new_id("evt", 0), payload, about))

    def decide(self, *decisions: Decision, tenant_id: str = OURS) -> None:
        """One SchedulerDecided more."""
        at = self._now + timedelta(milliseconds=1)
        self.note(SchedulerDecided(at=at, decisions=decisions, epoch=1), tenant_id)

    async def write(self) -> None:
        """Append what was noted."""
        while self._events:
            some, self._events = self._events[:2_000], self._events[2_000:]
            await self._log.append(AppendCommand(streams=(StreamAppend(SHARD, tuple(some)),)))


def loop_of(request_id: str) -> LoopRef:
    return LoopRef(request_id=request_id, node_id="denoise", attempt=1)


def plan(loop: LoopRef, step: int, steps: int) -> WorkPlan:
    unit = WorkUnit(
        unit_id=f"{loop.request_id}/{step}",
        loop=loop,
        kind=UnitKind.DIFFUSION_STEP,
        step_range=StepRange(start=step, stop=step + 1, total=steps),
        resources=ResourceRequest(compute=True),
        cache_plan=CachePlan(),
        placement_hint=PlacementHint(),
    )
    return WorkPlan(loop=loop, state_version=step, units=(unit,))


def run(shard: Shard, request_id: str, steps: int, beside: Sequence[str] = ()) -> None:
    """A request on worker w1 from its placement to its end, its units shared with others."""
    loop = loop_of(request_id)
    shard.decide(AssignLoop(loop=loop, loop_id="denoise", worker_id="w1"))
    shard.note(LoopPrepared(worker_id="w1", plan=plan(loop, 0, steps)))
    for step in range(steps):
        loops = (loop, *map(loop_of, beside))
        batch_id = f"1-{step}"
        names = tuple(f"{one.request_id}/{step}" for one in loops)
        shard.decide(
            DispatchBatch(
                batch_id=batch_id,
                worker_id="w1",
                kind=UnitKind.DIFFUSION_STEP,
                unit_ids=names,
                loops=loops,
                predicted_seconds=0.001,
                window=1,
            ),
            tenant_id="" if beside else OURS,
        )
        last = step == steps - 1
        results = tuple(
            StepResult(
                unit_id=name,
                loop=one,
                next_plan=None if last else plan(one, step + 1, steps),
                loop_result=LoopResult(loop=one) if last else None,
                measured_seconds=0.001,
            )
            for name, one in zip(names, loops, strict=True)
        )
        executed = BatchExecuted(
            worker_id="w1",
            batch_id=batch_id,
            kind=UnitKind.DIFFUSION_STEP,
            results=results,
            measured_seconds=0.001,
        )
        shard.note(executed, tenant_id="" if beside else OURS)
    shard.decide(CompleteRequest(request_id=request_id, metrics=RequestMetrics()))
