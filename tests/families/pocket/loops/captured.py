"""Denoising by a captured graph: the shape is captured in a unit of its own before the first step.

The capture is `torch.export` of the transformer at the request's shape; a step replays it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fastvideo.cache.keys import key_digest
from fastvideo.cache.recorded import record_look
from fastvideo.errors import FailedPrecondition
from fastvideo.loops.contract import LoopOutput, PlanContext, StateBase, StepContext, Values
from fastvideo.loops.samplers import FlowSchedule, UniPC, UniPCState
from fastvideo.loops.state_encoding import encode_state, tensor_digest
from fastvideo.loops.units import UnitShape, next_unit_plan
from fastvideo.model.caching import CacheClass, CacheKey, CacheLookup, CacheOutcome
from fastvideo.model.specs import LoopSpec
from fastvideo.models.resident import ResidentModel
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.traces import GraphUsed
from fastvideo.scheduling.work import CachePlan, LoopRef, UnitKind, WorkPlan, WorkUnit
from tests.families.pocket.components import Graphs
from tests.families.pocket.keys import batch_key, graph_key
from tests.families.pocket.loops.denoise import CELL_PIXELS, CHANNELS


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedState(StateBase):
    """Latents, the graph's key, and whether it was there before the first unit."""

    # [1, C, 1, H, W]
    latents: torch.Tensor
    # [1, L, D]
    features: torch.Tensor
    schedule: FlowSchedule
    sampler: UniPCState
    shape: str
    graph: str
    captured: bool
    batch_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Latents and sampler after a step; unchanged by a capture."""

    latents: torch.Tensor
    sampler: UniPCState


class CapturedKernel:
    """Units: graph_capture where the shape is new, then diffusion_step by the graph."""

    def __init__(self, spec: LoopSpec) -> None:
        self.spec = spec

    def init_state(
        self, loop: LoopRef, request: RequestSpec, inputs: Values, instance: ResidentModel
    ) -> CapturedState:
        """Noise, and the key of the graph that its shape needs."""
        sampling = request.sampling
        sampler: UniPC = instance.components["scheduler"]
        graphs: Graphs = instance.components["graphs"]
        size = (CHANNELS, 1, sampling.height // CELL_PIXELS, sampling.width // CELL_PIXELS)
        shape = "x".join(str(part) for part in size)
        graph = key_digest(graph_key(instance, self.spec.loop_id, shape))
        generator = torch.Generator().manual_seed(sampling.seed)
        return CapturedState(
            loop=loop,
            request=request,
            latents=torch.randn((1, *size), generator=generator),
            features=inputs["text_features"][:1],
            schedule=sampler.schedule(sampling.steps, sampling.flow_shift),
            sampler=sampler.start(),
            shape=shape,
            graph=graph,
            captured=graphs.find(graph) is not None,
            batch_key=batch_key(instance, self.spec.loop_id, graph=graph),
        )

    def plan_step(self, state: CapturedState, context: PlanContext) -> WorkPlan | None:
        """The capture, budgeted by its shape, or the next step."""
        captures = 0 if state.captured else 1
        capture = state.version < captures
        shape = UnitShape(
            kind=UnitKind.GRAPH_CAPTURE if capture else UnitKind.DIFFUSION_STEP,
            batch_key=f"{state.batch_key}/{'capture' if capture else 'step'}",
            cost_shape=state.shape,
            activation_bytes=1 << 18,
            outputs=("latents",),
            cache_plan=CachePlan(reads=(state.graph,), writes=(state.graph,) if capture else ()),
            capture_shape=state.shape if capture else "",
            unconditional_next=0 if capture else None,
        )
        total = captures + state.schedule.steps
        return next_unit_plan(self.spec, state, context, state.version, total, shape)

    def run_step(
        self,
        batch: Sequence[tuple[CapturedState, WorkUnit]],
        instance: ResidentModel,
        context: StepContext,
    ) -> Sequence[Replayed]:
        """A capture, or a step by the graph."""
        return [self._run(state, unit, instance, context) for state, unit in batch]

    def advance(self, state: CapturedState, unit: WorkUnit, output: Replayed) -> CapturedState:
        """The state after the unit."""
        return replace(
            state, version=state.version + 1, latents=output.latents, sampler=output.sampler
        )

    def finalize(self, state: CapturedState, instance: ResidentModel) -> LoopOutput:
        """`latents` [1, C, 1, H, W]."""
        return LoopOutput(
            values={"latents": state.latents}, digests={"latents": tensor_digest(state.latents)}
        )

    def state_bytes(self, state: CapturedState) -> bytes:
        """Latents and the sampler's history."""
        sampler = state.sampler
        header = {"schema": self.spec.state_schema, "step": sampler.step_index}
        tensors = (state.latents, sampler.last_sample, *sampler.model_outputs)
        return encode_state(header, tensors)

    def _run(
        self, state: CapturedState, unit: WorkUnit, instance: ResidentModel, context: StepContext
    ) -> Replayed:
        graphs: Graphs = instance.components["graphs"]
        sampler: UniPC = instance.components["scheduler"]
        found = graphs.find(state.graph)
        key = graph_key(instance, self.spec.loop_id, state.shape)
        _note(context, unit, key, hit=found is not None)
        timestep = state.schedule.timesteps[state.sampler.step_index].view(1)
        if unit.kind is UnitKind.GRAPH_CAPTURE:
            if found is None:
                module = instance.components["plain_transformer"]
                graphs.capture(state.graph, module, (state.latents, timestep, state.features))
                context.notes.append(
                    GraphUsed(
                        model_instance_id=unit.model_instance_id,
                        component="transformer",
                        change="captured",
                        capture_shape=state.shape,
                    )
                )
            return Replayed(latents=state.latents, sampler=state.sampler)
        if found is None:
            raise FailedPrecondition(
                f"shape {state.shape} was not captured", reason="NOT_CAPTURED", subject=state.shape
            )
        context.forwards += 1
        [velocity] = found(state.latents, timestep, state.features, return_dict=False)
        stepped, latents = sampler.step(state.schedule, state.sampler, velocity, state.latents)
        return Replayed(latents=latents, sampler=stepped)


def _note(context: StepContext, unit: WorkUnit, key: CacheKey, *, hit: bool) -> None:
    lookup = CacheLookup(
        cache_class=CacheClass.COMPILED_GRAPH,
        key_digest=key_digest(key),
        outcome=CacheOutcome.HIT if hit else CacheOutcome.MISS,
    )
    record_look(context, unit, key, lookup)
