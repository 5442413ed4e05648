"""Denoising with a guidance that has state, a step or a window of steps a unit."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fastvideo.loops.contract import LoopOutput, PlanContext, StateBase, StepContext, Values
from fastvideo.loops.gating import AdaptiveGate, GateState
from fastvideo.loops.guidance import Row, predict
from fastvideo.loops.samplers import FlowSchedule, UniPC, UniPCState
from fastvideo.loops.state_encoding import encode_state, tensor_digest
from fastvideo.loops.units import UnitShape, next_unit_plan
from fastvideo.model.specs import LoopSpec
from fastvideo.models.resident import ResidentModel
from fastvideo.models.wan.activations import transformer_activation_bytes
from fastvideo.models.wan.components import Transformer
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.work import LoopRef, WorkPlan, WorkUnit
from tests.families.pocket.keys import batch_key

CHANNELS = 4
CELL_PIXELS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class DenoiseState(StateBase):
    """Latents, sampler and gate of one request."""

    # [1, C, 1, H, W]
    latents: torch.Tensor
    # [2, L, D]
    features: torch.Tensor
    schedule: FlowSchedule
    sampler: UniPCState
    gate: GateState
    # Names the weights: a delta of others is not reused.
    weights: str
    # Batch key by number of branches.
    batch_keys: tuple[str, str]
    rows_max: int | None
    activation_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Denoised:
    """Where a unit left latents, sampler and gate."""

    latents: torch.Tensor
    sampler: UniPCState
    gate: GateState
    rows_max: int


class DenoiseKernel:
    """Units of `window` steps; a batch computes each step in as few forwards as are exact."""

    def __init__(self, spec: LoopSpec, gate: AdaptiveGate | None = None, window: int = 1) -> None:
        self.spec = spec
        self._gate = gate or AdaptiveGate()
        self._window = window

    def init_state(
        self, loop: LoopRef, request: RequestSpec, inputs: Values, instance: ResidentModel
    ) -> DenoiseState:
        """Noise of the request's seed, and a gate that has seen nothing."""
        sampling = request.sampling
        sampler: UniPC = instance.components["scheduler"]
        transformer: Transformer = instance.components["transformer"]
        features: torch.Tensor = inputs["text_features"]
        shape = (CHANNELS, 1, sampling.height // CELL_PIXELS, sampling.width // CELL_PIXELS)
        generator = torch.Generator().manual_seed(sampling.seed)
        text_length = features.shape[1]
        one, two = (
            batch_key(
                instance, self.spec.loop_id, shape=shape, branches=branches, length=text_length
            )
            for branches in (1, 2)
        )
        return DenoiseState(
            loop=loop,
            request=request,
            latents=torch.randn((1, *shape), generator=generator),
            features=features,
            schedule=sampler.schedule(sampling.steps, sampling.flow_shift),
            sampler=sampler.start(),
            gate=self._gate.start(),
            weights=f"{instance.card.model_id}/{instance.weights_version}",
            batch_keys=(one, two),
            rows_max=transformer.known_rows_max(shape, text_length),
            activation_bytes=transformer_activation_bytes(transformer, shape, text_length, 2),
        )

    def plan_step(self, state: DenoiseState, context: PlanContext) -> WorkPlan | None:
        """The next step, or the next window; units batch by how many branches they run."""
        branches = self._branches(state)
        rows = 1 if state.rows_max is None else state.rows_max // branches
        shape = UnitShape(
            batch_key=state.batch_keys[branches - 1],
            cost_shape="x".join(str(size) for size in state.latents.shape[1:]) + f"/{branches}",
            activation_bytes=state.activation_bytes,
            outputs=("latents",),
            max_batch=max(1, min(rows, self.spec.step_policy.max_batch)),
            steps=self._window,
            # Whether the next unit runs the same branches depends on what this one computes.
            unconditional_next=0,
        )
        return next_unit_plan(
            self.spec, state, context, state.sampler.step_index, state.schedule.steps, shape
        )

    def run_step(
        self,
        batch: Sequence[tuple[DenoiseState, WorkUnit]],
        instance: ResidentModel,
        context: StepContext,
    ) -> Sequence[Denoised]:
        """The steps of each unit, one after another."""
        steps = max(unit.step_range.stop - unit.step_range.start for _, unit in batch)
        states = [state for state, _ in batch]
        for _ in range(steps):
            going = [i for i, s in enumerate(states) if s.sampler.step_index < s.schedule.steps]
            moved = self._step([states[i] for i in going], instance, context)
            for i, state in zip(going, moved, strict=True):
                states[i] = state
        return [
            Denoised(
                latents=state.latents,
                sampler=state.sampler,
                gate=state.gate,
                rows_max=state.rows_max or 1,
            )
            for state in states
        ]

    def advance(self, state: DenoiseState, unit: WorkUnit, output: Denoised) -> DenoiseState:
        """The state where the unit left it."""
        return replace(
            state,
            version=state.version + 1,
            latents=output.latents,
            sampler=output.sampler,
            gate=output.gate,
            rows_max=output.rows_max,
        )

    def finalize(self, state: DenoiseState, instance: ResidentModel) -> LoopOutput:
        """`latents` [1, C, 1, H, W]; how many steps ran the second branch."""
        return LoopOutput(
            values={"latents": state.latents},
            digests={"latents": tensor_digest(state.latents)},
            scores={"guided_steps": float(state.gate.refreshes)},
        )

    def state_bytes(self, state: DenoiseState) -> bytes:
        """Position, gate, and every tensor that later steps read."""
        header = {
            "schema": self.spec.state_schema,
            "step": state.sampler.step_index,
            "orders": (state.sampler.lower_order_nums, state.sampler.this_order),
            "gate": (state.gate.age, state.gate.refreshes, state.gate.steady),
        }
        sampler = state.sampler
        tensors = (state.latents, state.gate.delta, sampler.last_sample, *sampler.model_outputs)
        return encode_state(header, (state.features, *tensors))

    def _branches(self, state: DenoiseState) -> int:
        return len(self._gate.branches_at(state.gate, state.weights))

    def _step(
        self, states: Sequence[DenoiseState], instance: ResidentModel, context: StepContext
    ) -> list[DenoiseState]:
        transformer: Transformer = instance.components["transformer"]
        sampler: UniPC = instance.components["scheduler"]
        shape = tuple(states[0].latents.shape[1:])
        rows_max = transformer.measured_rows_max(shape, states[0].features.shape[1])
        rows = [row for state in states for row in self._rows(state)]
        predictions, forwards = predict(transformer, rows, rows_max)
        context.forwards += forwards
        moved = []
        for state in states:
            count = self._branches(state)
            own, predictions = predictions[:count], predictions[count:]
            velocity, gate = self._gate.combine(
                own, state.request.sampling.guidance_scale, state.gate, state.weights
            )
            stepped, latents = sampler.step(state.schedule, state.sampler, velocity, state.latents)
            moved.append(
                replace(state, latents=latents, sampler=stepped, gate=gate, rows_max=rows_max)
            )
        return moved

    def _rows(self, state: DenoiseState) -> list[Row]:
        timestep = state.schedule.timesteps[state.sampler.step_index].view(1)
        return [
            Row(sample=state.latents, timestep=timestep, features=branch)
            for branch in torch.split(state.features, 1)[: self._branches(state)]
        ]
