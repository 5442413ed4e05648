"""A small real loop on a small real module, and an executor that holds it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest
import torch

from fastvideo.cache.features import TextFeatureCache
from fastvideo.clock import ManualClock
from fastvideo.engine.artifact_writer import ArtifactWriter
from fastvideo.engine.executor import Executor, ExecutorLimits
from fastvideo.engine.instance import ModelInstance
from fastvideo.engine.residents import Residents
from fastvideo.engine.sink import BlobShelf, LocalArtifacts, LocalBlobs
from fastvideo.loops.contract import (
    LoopOutput,
    PlanContext,
    StateBase,
    StepContext,
    Values,
)
from fastvideo.memory.pools import MemoryPools, MemoryTag, RoleBudgets
from fastvideo.model.specs import (
    CapabilityMatrix,
    CostPrior,
    LoopSpec,
    ModelSpec,
    ParallelismContract,
    ParityContract,
    StepPolicy,
)
from fastvideo.requests.types import (
    OutputSpec,
    RequestKind,
    RequestSpec,
    SamplingParams,
    TextPart,
)
from fastvideo.scheduling.commands import PrepareLoop
from fastvideo.scheduling.events import LoopPrepared
from fastvideo.scheduling.work import (
    CachePlan,
    LoopRef,
    OutputSink,
    PlacementHint,
    ResourceRequest,
    StepRange,
    UnitKind,
    WorkPlan,
    WorkUnit,
)

INSTANCE_ID = "mi_toy"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpinState(StateBase):
    """A row that a matrix turns at each step."""

    row: torch.Tensor
    steps: int


class SpinKernel:
    """Turns each request's row by the instance's matrix, all rows of a batch in one product.

    A request whose prompt is "fail at N" raises in its step N; "slow" waits for `gate`.
    """

    spec = LoopSpec(
        loop_id="spin",
        kind="spin",
        unit_kind=UnitKind.DIFFUSION_STEP,
        step_policy=StepPolicy(count_from="steps", batchable=True, max_batch=4),
        graph_capture_policy="none",
        cost=CostPrior(),
    )

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.memory_bytes: Mapping[str, int] = {"activations": 256}
        self.during_step: Callable[[], None] = lambda: None

    def init_state(
        self, loop: LoopRef, request: RequestSpec, inputs: Values, instance: Any
    ) -> SpinState:
        generator = torch.Generator().manual_seed(request.sampling.seed)
        start = inputs.get("start")
        row = torch.randn(4, generator=generator) if start is None else start
        return SpinState(loop=loop, request=request, row=row, steps=request.sampling.steps)

    def plan_step(self, state: SpinState, context: PlanContext) -> WorkPlan | None:
        if state.version == state.steps:
            return None
        loop = state.loop
        unit = WorkUnit(
            unit_id=f"{loop.request_id}/{loop.node_id}/{loop.attempt}/{state.version}",
            loop=loop,
            loop_id="spin",
            model_instance_id=context.model_instance_id,
            kind=UnitKind.DIFFUSION_STEP,
            step_range=StepRange(start=state.version, stop=state.version + 1, total=state.steps),
            batch_key=f"spin/{state.request.sampling.width}",
            max_batch=4,
            cost_phase="spin",
            cost_shape="4",
            resources=ResourceRequest(compute=True, memory_bytes=self.memory_bytes),
            cache_plan=CachePlan(),
            placement_hint=PlacementHint(sticky=True),
            output_sinks=(OutputSink(kind="value", name="row"),),
            cancel_boundary=True,
        )
        return WorkPlan(loop=loop, state_version=state.version, units=(unit,))

    def run_step(
        self, batch: Sequence[tuple[SpinState, WorkUnit]], instance: Any, context: StepContext
    ) -> Sequence[torch.Tensor]:
        self.batches.append(len(batch))
        self.during_step()
        for state, _ in batch:
            prompt = next(part.text for part in state.request.inputs if isinstance(part, TextPart))
            if prompt == f"fail at {state.version}":
                raise RuntimeError("this row cannot be turned")
        context.forwards += 1
        rows = torch.stack([state.row for state, _ in batch])
        # Row by row, so that a batch gives the bits that each row gives alone.
        turn: torch.nn.Linear = instance.components["turn"]
        return [turn(row[None])[0] for row in rows]

    def advance(self, state: SpinState, unit: WorkUnit, output: torch.Tensor) -> SpinState:
        return replace(state, version=state.version + 1, row=output.clone())

    def finalize(self, state: SpinState, instance: Any) -> LoopOutput:
        frames = (state.row.abs() * 40).clamp(0, 255).to(torch.uint8)
        video = frames.reshape(1, 2, 2, 1).expand(5, 2, 2, 3).contiguous()
        latents = state.row.reshape(1, 4, 1, 1, 1)
        return LoopOutput(
            values={"row": state.row, "frames": video, "latents": latents},
            digests={"row": state.row.numpy().tobytes().hex()},
        )

    def state_bytes(self, state: SpinState) -> bytes:
        return state.version.to_bytes(4) + state.row.numpy().tobytes()


def toy_instance(kernel: SpinKernel) -> ModelInstance:
    """A model of one 4 by 4 matrix with seeded weights."""
    torch.manual_seed(0)
    card = ModelSpec(
        model_id="toy",
        capabilities=CapabilityMatrix(),
        parallelism=ParallelismContract(),
        parity=ParityContract(),
    )
    return ModelInstance(
        model_instance_id=INSTANCE_ID,
        card=card,
        card_digest="0" * 64,
        components={"turn": torch.nn.Linear(4, 4, bias=False)},
        kernels={"spin": kernel},
        weights_version="w1",
    )


@dataclass
class ToyLoader:
    """Loads the toy model; `weights_version` may be changed to act as a changed checkpoint."""

    kernel: SpinKernel
    weights_version: str = "w1"

    def expected_bytes(self, model_id: str, checkpoint: str) -> int:
        return 0

    def load(self, model_id: str, checkpoint: str) -> ModelInstance:
        instance = toy_instance(self.kernel)
        instance.weights_version = self.weights_version
        return instance


@dataclass
class World:
    """An executor with the toy model loaded, and everything around it."""

    kernel: SpinKernel = field(default_factory=SpinKernel)
    limits: ExecutorLimits = field(default_factory=ExecutorLimits)
    budget_bytes: int = 1_000_000
    role_budgets: RoleBudgets = field(default_factory=dict)
    # Two worlds with one shelf are two workers that can reach one store.
    shelf: BlobShelf = field(default_factory=lambda: LocalBlobs(1_000_000))

    def __post_init__(self) -> None:
        self.clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.pools = MemoryPools(dict.fromkeys(MemoryTag, self.budget_bytes), self.role_budgets)
        self.artifacts = LocalArtifacts(self.clock)
        self.loader = ToyLoader(self.kernel)
        writer = ArtifactWriter(self.artifacts, "worker-0", {"torch": torch.__version__})
        self.residents = Residents(self.pools, self.loader, {"write": writer})
        self.executor = Executor(
            worker_id="worker-0",
            pools=self.pools,
            residents=self.residents,
            features=TextFeatureCache(1_000),
            clock=self.clock,
            limits=self.limits,
            shelf=self.shelf,
        )
        self.residents.load("toy")
        self.start_bytes = self.pools.in_use_bytes()

    def prepare(
        self,
        request: RequestSpec,
        *,
        node_id: str = "spin",
        loop_id: str = "spin",
        inputs: Mapping[str, str] | None = None,
        attempt: int = 1,
    ) -> WorkPlan:
        """Prepare a loop that must succeed; returns its plan."""
        event = self.executor.prepare(command_of(request, node_id, loop_id, inputs or {}, attempt))
        assert isinstance(event, LoopPrepared), event
        return event.plan


def command_of(
    request: RequestSpec,
    node_id: str = "spin",
    loop_id: str = "spin",
    inputs: Mapping[str, str] | None = None,
    attempt: int = 1,
) -> PrepareLoop:
    """A command to prepare one loop of a request."""
    return PrepareLoop(
        loop=LoopRef(request_id=request.request_id, node_id=node_id, attempt=attempt),
        loop_id=loop_id,
        model_instance_id=INSTANCE_ID,
        request=request,
        inputs=inputs or {},
    )


def request_of(
    request_id: str,
    *,
    steps: int = 3,
    seed: int = 0,
    prompt: str = "turn",
    width: int = 48,
    session_id: str = "",
    outputs: OutputSpec | None = None,
) -> RequestSpec:
    """A resolved request for the toy model."""
    return RequestSpec(
        request_id=request_id,
        kind=RequestKind.GENERATION,
        model_id="toy",
        inputs=(TextPart(role="prompt", text=prompt),),
        sampling=SamplingParams(width=width, height=48, steps=steps, seed=seed, fps=8),
        outputs=outputs or OutputSpec(video=True),
        session_id=session_id,
    )


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def make_world() -> type[World]:
    return World


@pytest.fixture
def make_request() -> Callable[..., RequestSpec]:
    return request_of


@pytest.fixture
def make_command() -> Callable[..., PrepareLoop]:
    return command_of
