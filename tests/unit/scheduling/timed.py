"""A world in which work takes time: batches run beside each other, windows step by step."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from heapq import heappop, heappush

from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.effects import TERMINAL
from fastvideo.scheduling.events import (
    AssignLoop,
    BatchExecuted,
    CancelLoop,
    Decision,
    DispatchBatch,
    YieldBatch,
)
from fastvideo.scheduling.work import LoopRef, StepResult, UnitKind, WorkUnit
from tests.unit.scheduling.world import (
    MODEL,
    START,
    Catalog,
    FakeWorker,
    PlanMaker,
    World,
    node,
    program,
    unit,
    units_of,
)

PREPARE_S = 0.0005
ONLY = Catalog(programs={MODEL: program(node("only"))})
"""A model whose program has one node."""

Seconds = Callable[[DispatchBatch, int], float]
"""Seconds of one step of a batch with so many units."""


def evenly(batch: DispatchBatch, units: int) -> float:
    """10 ms for every unit, however many share a forward."""
    return 0.01 * units


@dataclass
class Running:
    """A batch that runs."""

    batch: DispatchBatch
    # The unit that each loop runs next.
    units: dict[LoopRef, str]
    results: list[StepResult] = field(default_factory=list)
    steps: int = 0
    yielded: bool = False
    begun_s: float = 0.0


class Timed(World):
    """Everything happens at its time. `seconds` says how long a step takes."""

    def __init__(self, *, seconds: Seconds = evenly, **options: object) -> None:
        plan = options.pop("plan", units_of)
        super().__init__(plan=self._recorded(plan), **options)  # type: ignore[arg-type]
        self.seconds = seconds
        # Device-seconds by request, a batch's shared equally.
        self.spent: dict[str, float] = defaultdict(float)
        self.running: dict[str, Running] = {}
        self.executed: list[BatchExecuted] = []
        self.ended_at: dict[str, float] = {}
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._entries = 0

    @property
    def clock_s(self) -> float:
        return (self.now - START).total_seconds()

    def at(self, moment_s: float, action: Callable[[], object]) -> None:
        """Do something at a time."""
        self._entries += 1
        heappush(self._agenda, (moment_s, self._entries, action))  # type: ignore[misc]

    def advance(self, until_s: float) -> None:
        """Let everything happen that is due until then."""
        while self._agenda and self._agenda[0][0] <= until_s:
            moment, _, action = heappop(self._agenda)
            self.now = max(self.now, START + timedelta(seconds=moment))
            action()
        self.now = max(self.now, START + timedelta(seconds=until_s))

    def finish(self, within_s: float = 10_000.0) -> None:
        """Let everything happen until nothing is left to do."""
        limit = self.clock_s + within_s
        while self._agenda:
            assert self._agenda[0][0] <= limit, "the world does not come to rest"
            self.advance(self._agenda[0][0])

    def tell(self, event, *, after_s: float = 0.0):
        decisions = super().tell(event, after_s=after_s)
        for decision in decisions:
            if isinstance(decision, TERMINAL):
                self.ended_at[decision.request_id] = self.clock_s
        return decisions

    def device_seconds(self, group_of: Callable[[str], str]) -> dict[str, float]:
        """Seconds of compute, by whatever `group_of` makes of a request's id."""
        total: dict[str, float] = defaultdict(float)
        for request_id, spent in self.spent.items():
            total[group_of(request_id)] += spent
        return dict(total)

    def _recorded(self, plan: PlanMaker) -> PlanMaker:
        self.units: dict[str, WorkUnit] = {}

        def recording(spec: RequestSpec, loop: LoopRef, instance: str) -> list[WorkUnit]:
            units = plan(spec, loop, instance)
            self.units.update({unit.unit_id: unit for unit in units})
            return units

        return recording

    # -- the workers' side ---------------------------------------------------------------

    def _carry_out(self, decision: Decision) -> None:
        super()._carry_out(decision)
        match decision:
            case AssignLoop():
                worker = self.workers[decision.worker_id]
                self.at(self.clock_s + PREPARE_S, lambda: self._prepare_one(worker, decision))
            case DispatchBatch():
                units = dict(zip(decision.loops, decision.unit_ids, strict=True))
                run = Running(decision, units, begun_s=self.clock_s)
                self.running[decision.batch_id] = run
                self._next_step(run)
            case YieldBatch():
                if decision.batch_id in self.running:
                    self.running[decision.batch_id].yielded = True
            case CancelLoop() if decision.worker_id:
                worker = self.workers[decision.worker_id]
                key = (decision.loop.request_id, decision.loop.attempt)
                worker.held.get(key, {}).pop(decision.loop.node_id, None)
                worker.preparing = [a for a in worker.preparing if a.loop != decision.loop]

    def _prepare_one(self, worker: FakeWorker, told: AssignLoop) -> None:
        if told in worker.preparing:
            worker.preparing.remove(told)
            worker.preparing.insert(0, told)
            self.prepare(worker.worker_id)

    def _next_step(self, run: Running) -> None:
        taken = self.seconds(run.batch, len(run.units))
        self.at(self.clock_s + taken, lambda: self._step_ended(run, taken))

    def _step_ended(self, run: Running, taken: float) -> None:
        worker = self.workers.get(run.batch.worker_id)
        if worker is None or run.batch.batch_id not in worker.batches:
            return
        run.steps += 1
        share = taken / len(run.units)
        for ref, unit_id in list(run.units.items()):
            unit = self.units[unit_id]
            if unit.resources.compute:
                self.spent[ref.request_id] += share
            result = replace(
                self.result(worker, ref, unit_id),
                step_range=unit.step_range,
                measured_seconds=taken,
            )
            follows = result.next_plan.units[0] if result.next_plan is not None else None
            run.results.append(result)
            if follows is None:
                del run.units[ref]
            else:
                run.units[ref] = follows.unit_id
        if run.units and run.steps < run.batch.window and not run.yielded:
            # Only the last result of a loop says what comes next.
            run.results = [replace(r, next_plan=None) for r in run.results]
            self._next_step(run)
            return
        self._report(worker, run)

    def _report(self, worker: FakeWorker, run: Running) -> None:
        del worker.batches[run.batch.batch_id]
        del self.running[run.batch.batch_id]
        event = BatchExecuted(
            worker_id=worker.worker_id,
            batch_id=run.batch.batch_id,
            kind=run.batch.kind,
            results=tuple(run.results),
            predicted_seconds=run.batch.predicted_seconds,
            measured_seconds=self.clock_s - run.begun_s,
            forwards=run.steps,
            yielded=run.yielded,
        )
        self.executed.append(event)
        self.tell(event)


def tenant_of(request_id):
    return request_id.partition("-")[0]


def steps_of(kind=UnitKind.DIFFUSION_STEP, *, max_batch=1, steps=None, shape="16x3x6x6"):
    """A loop of as many steps as the request has, each of one kind."""

    def plan(spec, loop, instance):
        count = steps or spec.sampling.steps
        return [
            replace(
                unit(loop, n, count, kind=kind, max_batch=max_batch, instance=instance),
                cost_shape=shape,
            )
            for n in range(count)
        ]

    return plan


def one_unit(spec, loop, instance, **fields):
    return [unit(loop, instance=instance, max_batch=1, **fields)]


def places(world):
    return {d.loop.request_id: d.worker_id for d in world.made(AssignLoop)}
