"""A core with scripted workers in virtual time: pure, deterministic, no model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from fastvideo.errors import NotFound
from fastvideo.model.specs import CostPrior
from fastvideo.program.specs import (
    EdgeKind,
    NodeKind,
    ProgramEdge,
    ProgramKind,
    ProgramNode,
    ProgramSpec,
)
from fastvideo.requests.types import OutputSpec, RequestKind, RequestSpec, SamplingParams, TextPart
from fastvideo.scheduling.core import SchedulerCore
from fastvideo.scheduling.effects import TERMINAL
from fastvideo.scheduling.events import (
    AssignLoop,
    BatchExecuted,
    Decision,
    DispatchBatch,
    LoopPrepared,
    ReleaseRequest,
    WorkerAttached,
    WorkerLost,
)
from fastvideo.scheduling.inputs import CancelRequested, RequestSubmitted, SchedulerInput, Tick
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.work import (
    CachePlan,
    CancelScope,
    CancelScopeKind,
    LoopRef,
    LoopResult,
    ModelState,
    PlacementHint,
    ResourceRequest,
    StepRange,
    StepResult,
    UnitKind,
    WorkPlan,
    WorkUnit,
)

D = TypeVar("D")
START = datetime(2026, 1, 1, tzinfo=UTC)
MODEL = "tiny"


def node(node_id: str, kind: NodeKind = NodeKind.MODEL_LOOP, weight: float = 1.0) -> ProgramNode:
    return ProgramNode(node_id=node_id, kind=kind, loop_id=node_id, progress_weight=weight)


def edge(source: str, target: str, value: str = "x") -> ProgramEdge:
    return ProgramEdge(kind=EdgeKind.TENSOR, source_node=source, target_node=target, value=value)


def program(*nodes: ProgramNode, edges: tuple[ProgramEdge, ...] = ()) -> ProgramSpec:
    return ProgramSpec(
        program_id="text_to_video",
        kind=ProgramKind.INLINE,
        request_kind=RequestKind.GENERATION,
        nodes=nodes,
        edges=edges,
        is_default=True,
    )


TEXT_TO_VIDEO = program(
    node("encode", weight=1),
    node("denoise", weight=7),
    node("decode", weight=1),
    node("write", NodeKind.ARTIFACT, weight=1),
    edges=(
        edge("encode", "denoise", "text"),
        edge("denoise", "decode", "latents"),
        edge("decode", "write", "frames"),
    ),
)


@dataclass
class Catalog:
    programs: Mapping[str, ProgramSpec] = field(default_factory=lambda: {MODEL: TEXT_TO_VIDEO})
    priors: Mapping[tuple[str, str], CostPrior] = field(default_factory=dict)

    def program(self, model_id: str, program_id: str) -> ProgramSpec:
        found = self.programs.get(model_id)
        if found is None or program_id not in ("", found.program_id):
            raise NotFound(f"no program {program_id}", subject=program_id)
        return found

    def cost_prior(self, model_id: str, phase: str) -> CostPrior | None:
        return self.priors.get((model_id, phase))


def request(
    request_id: str,
    *,
    steps: int = 4,
    model: str = MODEL,
    priority: int = 0,
    deadline_s: float | None = None,
    session: str = "",
    card: str = "",
    tenant: str = "",
    prompt: str = "",
    width: int = 48,
) -> RequestSpec:
    return RequestSpec(
        request_id=request_id,
        kind=RequestKind.GENERATION,
        model_id=model,
        card_digest=card,
        program_id="text_to_video",
        inputs=(TextPart(role="prompt", text=prompt),) if prompt else (),
        sampling=SamplingParams(width=width, height=48, num_frames=9, fps=8, steps=steps),
        outputs=OutputSpec(video=True),
        session_id=session,
        tenant_id=tenant,
        priority=priority,
        deadline=None if deadline_s is None else START + timedelta(seconds=deadline_s),
    )


KINDS: Mapping[str, tuple[UnitKind, int, bool]] = {
    # Node to unit kind, most units a batch, on the compute slot.
    "encode": (UnitKind.ENCODER_CHUNK, 4, True),
    "denoise": (UnitKind.DIFFUSION_STEP, 8, True),
    "decode": (UnitKind.VAE_TILE, 1, True),
    "write": (UnitKind.ARTIFACT_WRITE, 1, False),
}


def unit(
    loop: LoopRef,
    step: int = 0,
    steps: int = 1,
    *,
    kind: UnitKind = UnitKind.DIFFUSION_STEP,
    max_batch: int = 8,
    batch_key: str = "",
    resources: ResourceRequest | None = None,
    instance: str = "w1/tiny",
    boundary: bool = True,
) -> WorkUnit:
    return WorkUnit(
        unit_id=f"{loop.request_id}/{loop.node_id}/{loop.attempt}/{step}",
        loop=loop,
        model_instance_id=instance,
        kind=kind,
        step_range=StepRange(start=step, stop=step + 1, total=steps),
        batch_key=batch_key,
        max_batch=max_batch,
        cost_phase=loop.node_id,
        cost_shape="16x3x6x6",
        resources=resources or ResourceRequest(compute=True),
        cache_plan=CachePlan(),
        placement_hint=PlacementHint(sticky=True),
        cancel_boundary=boundary,
    )


def units_of(spec: RequestSpec, loop: LoopRef, instance: str) -> list[WorkUnit]:
    """The units that the scripted worker runs one after another."""
    kind, max_batch, compute = KINDS.get(loop.node_id, (UnitKind.DIFFUSION_STEP, 8, True))
    steps = {"denoise": spec.sampling.steps, "decode": 3}.get(loop.node_id, 1)
    return [
        unit(
            loop,
            step,
            steps,
            kind=kind,
            max_batch=max_batch,
            resources=ResourceRequest(compute=compute, memory_bytes={"activations": 10}),
            instance=instance,
        )
        for step in range(steps)
    ]


@dataclass
class FakeWorker:
    """Prepares and runs what it is told; remembers what it holds."""

    worker_id: str
    incarnation: str
    # (request id, attempt) to its loops; a loop is its units and the position.
    held: dict[tuple[str, int], dict[str, tuple[list[WorkUnit], int]]] = field(default_factory=dict)
    # Batches told to run, in order.
    batches: dict[str, DispatchBatch] = field(default_factory=dict)
    preparing: list[AssignLoop] = field(default_factory=list)
    ran: list[DispatchBatch] = field(default_factory=list)


PlanMaker = Callable[[RequestSpec, LoopRef, str], list[WorkUnit]]


class World:
    """Drives a core: every decision is handed to the worker that it names."""

    def __init__(
        self,
        *,
        policy: SchedulingPolicy | None = None,
        catalog: Catalog | None = None,
        plan: PlanMaker = units_of,
        epoch: int = 1,
    ) -> None:
        self.core = SchedulerCore(catalog or Catalog(), policy=policy, epoch=epoch)
        self.now = START
        self.plan = plan
        self.workers: dict[str, FakeWorker] = {}
        self.specs: dict[str, RequestSpec] = {}
        self.history: list[tuple[SchedulerInput, datetime, tuple[Decision, ...]]] = []
        self.batch_seconds = 0.01

    # -- inputs --------------------------------------------------------------------------

    def tell(self, event: SchedulerInput, *, after_s: float = 0.0) -> tuple[Decision, ...]:
        self.now += timedelta(seconds=after_s)
        decisions = self.core.decide(event, self.now)
        self.history.append((event, self.now, decisions))
        for decision in decisions:
            self._carry_out(decision)
        return decisions

    def submit(self, request_id: str = "r1", **options: object) -> tuple[Decision, ...]:
        spec = request(request_id, **options)  # type: ignore[arg-type]
        self.specs[request_id] = spec
        return self.tell(RequestSubmitted(spec=spec))

    def cancel(self, target: str, kind: CancelScopeKind = CancelScopeKind.REQUEST) -> object:
        scope = CancelScope(kind=kind, target_id=target)
        return self.tell(CancelRequested(scope=scope, reason="user"))

    def attach(
        self,
        worker_id: str = "w1",
        *,
        models: tuple[str, ...] = (MODEL,),
        card: str = "",
        memory: int = 1_000,
        compute_slots: int = 1,
        io_slots: int = 2,
        role: str = "",
        mesh: str = "",
    ) -> tuple[Decision, ...]:
        incarnation = f"{worker_id}#{len(self.history)}"
        self.workers[worker_id] = FakeWorker(worker_id, incarnation)
        return self.tell(
            WorkerAttached(
                worker_id=worker_id,
                address=f"{worker_id}:1",
                incarnation=incarnation,
                instances=tuple(
                    ModelState(
                        model_instance_id=f"{worker_id}/{model}",
                        model_id=model,
                        card_digest=card,
                        parallel_plan_hash=mesh,
                    )
                    for model in models
                ),
                memory_bytes={"activations": memory},
                compute_slots=compute_slots,
                io_slots=io_slots,
                role=role,
            )
        )

    def lose(self, worker_id: str = "w1") -> tuple[Decision, ...]:
        worker = self.workers.pop(worker_id)
        return self.tell(
            WorkerLost(worker_id=worker_id, incarnation=worker.incarnation, reason="silent")
        )

    # -- the workers' side ---------------------------------------------------------------

    def _carry_out(self, decision: Decision) -> None:
        match decision:
            case AssignLoop():
                self.workers[decision.worker_id].preparing.append(decision)
            case DispatchBatch():
                worker = self.workers[decision.worker_id]
                worker.batches[decision.batch_id] = decision
                worker.ran.append(decision)
            case ReleaseRequest():
                worker = self.workers[decision.worker_id]
                worker.held.pop((decision.request_id, decision.attempt), None)
                worker.preparing = [
                    loop for loop in worker.preparing if loop.loop.request_id != decision.request_id
                ]

    def prepare(self, worker_id: str = "w1") -> tuple[Decision, ...]:
        """The worker prepares the loop that it was told of first."""
        worker = self.workers[worker_id]
        told = worker.preparing.pop(0)
        spec = self.specs[told.loop.request_id]
        units = self.plan(spec, told.loop, told.model_instance_id)
        key = (told.loop.request_id, told.loop.attempt)
        worker.held.setdefault(key, {})[told.loop.node_id] = (units, 0)
        plan = WorkPlan(loop=told.loop, state_version=0, units=tuple(units[:1]))
        return self.tell(LoopPrepared(worker_id=worker_id, plan=plan, seconds=0.001))

    def result(self, worker: FakeWorker, ref: LoopRef, unit_id: str) -> StepResult:
        units, position = worker.held[(ref.request_id, ref.attempt)][ref.node_id]
        assert units[position].unit_id == unit_id, "a unit ran out of order"
        covered = units[position].step_range
        position += 1
        worker.held[(ref.request_id, ref.attempt)][ref.node_id] = (units, position)
        done = StepResult(unit_id=unit_id, loop=ref, state_version=position, step_range=covered)
        if position < len(units):
            plan = WorkPlan(loop=ref, state_version=position, units=(units[position],))
            return replace(done, next_plan=plan)
        artifacts = (f"art_{ref.request_id}",) if ref.node_id == "write" else ()
        digests = {"latents": f"digest-{ref.request_id}"} if ref.node_id == "denoise" else {}
        return replace(
            done, loop_result=LoopResult(loop=ref, artifact_ids=artifacts, digests=digests)
        )

    def execution(self, worker_id: str = "w1", batch_id: str | None = None) -> BatchExecuted:
        """The worker runs a batch, the oldest by default; its report is not told yet."""
        worker = self.workers[worker_id]
        batch = worker.batches.pop(batch_id or next(iter(worker.batches)))
        results = tuple(
            self.result(worker, ref, unit_id)
            for ref, unit_id in zip(batch.loops, batch.unit_ids, strict=True)
        )
        return BatchExecuted(
            worker_id=worker_id,
            batch_id=batch.batch_id,
            kind=batch.kind,
            results=results,
            predicted_seconds=batch.predicted_seconds,
            measured_seconds=self.batch_seconds,
            forwards=1,
        )

    def execute(self, worker_id: str = "w1", batch_id: str | None = None) -> tuple[Decision, ...]:
        """The worker runs a batch and reports it."""
        return self.tell(self.execution(worker_id, batch_id), after_s=self.batch_seconds)

    def step(self) -> bool:
        """One thing that some worker has to do; False when none has."""
        for worker in list(self.workers.values()):
            if worker.preparing:
                self.prepare(worker.worker_id)
                return True
        for worker in list(self.workers.values()):
            if worker.batches:
                self.execute(worker.worker_id)
                return True
        return False

    def run(self, steps_max: int = 100_000) -> None:
        """Let the workers work until nothing is left to do."""
        for _ in range(steps_max):
            if not self.step():
                return
        raise AssertionError("the world does not come to rest")

    def tick(self, after_s: float) -> tuple[Decision, ...]:
        return self.tell(Tick(), after_s=after_s)

    # -- what was decided ----------------------------------------------------------------

    @property
    def decisions(self) -> list[Decision]:
        return [decision for _, _, decisions in self.history for decision in decisions]

    def made(self, kind: type[D]) -> list[D]:
        return [decision for decision in self.decisions if isinstance(decision, kind)]

    def terminal(self, request_id: str) -> Decision:
        """The request's one terminal decision."""
        found = [
            d for d in self.decisions if isinstance(d, TERMINAL) and d.request_id == request_id
        ]
        assert len(found) == 1, found
        return found[0]

    def reserved(self) -> dict[str, float]:
        return {name: amount for name, amount in self.core.reserved.items() if amount}


def denoising(world: World, step: int) -> bool:
    """Whether denoise step `step` (from 1) is in flight."""
    batches = [b for w in world.workers.values() for b in w.batches.values()]
    return any(f"/{step - 1}" in u and "denoise" in u for b in batches for u in b.unit_ids)
