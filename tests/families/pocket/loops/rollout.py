"""Causal rollout: each chunk is denoised after the one before it, which it sees as it is."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fastvideo.loops.contract import LoopOutput, PlanContext, StateBase, StepContext, Values
from fastvideo.loops.guidance import Row, predict
from fastvideo.loops.samplers import FlowSchedule, UniPC, UniPCState
from fastvideo.loops.state_encoding import encode_state, tensor_digest
from fastvideo.loops.units import UnitShape, next_unit_plan
from fastvideo.model.specs import LoopSpec
from fastvideo.models.resident import ResidentModel
from fastvideo.models.wan.activations import transformer_activation_bytes
from fastvideo.models.wan.components import Transformer
from fastvideo.models.wan.first_frame import hold_first_frame, token_timesteps
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.work import LoopRef, WorkPlan, WorkUnit
from tests.families.pocket.keys import batch_key
from tests.families.pocket.loops.denoise import CELL_PIXELS, CHANNELS


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutState(StateBase):
    """The finished chunks, and the one that is being denoised."""

    # Each [1, C, 1, H, W]; one latent frame a chunk.
    chunks: tuple[torch.Tensor, ...] = ()
    # [1, C, 2, H, W]: the frame before, and the chunk.
    latents: torch.Tensor
    # [1, L, D]
    features: torch.Tensor
    schedule: FlowSchedule
    sampler: UniPCState
    batch_key: str
    rows_max: int | None
    activation_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolled:
    """Latents and sampler after a step."""

    latents: torch.Tensor
    sampler: UniPCState
    rows_max: int


class RolloutKernel:
    """`sampling.num_frames` chunks of `sampling.steps` steps each, one step a unit.

    A chunk is denoised beside the frame before it, which is held at timestep 0, as in
    `fastvideo.models.wan.first_frame`; the first chunk follows an empty frame.
    """

    def __init__(self, spec: LoopSpec) -> None:
        self.spec = spec

    def init_state(
        self, loop: LoopRef, request: RequestSpec, inputs: Values, instance: ResidentModel
    ) -> RolloutState:
        """The first chunk's noise behind an empty frame."""
        sampling = request.sampling
        sampler: UniPC = instance.components["scheduler"]
        transformer: Transformer = instance.components["transformer"]
        features = inputs["text_features"][:1]
        shape = (CHANNELS, 2, sampling.height // CELL_PIXELS, sampling.width // CELL_PIXELS)
        length = features.shape[1]
        frame = torch.zeros((1, CHANNELS, 1, *shape[2:]))
        return RolloutState(
            loop=loop,
            request=request,
            latents=_begin(frame, sampling.seed, 0),
            features=features,
            schedule=sampler.schedule(sampling.steps, sampling.flow_shift),
            sampler=sampler.start(),
            batch_key=batch_key(instance, self.spec.loop_id, shape=shape, length=length),
            rows_max=transformer.known_rows_max(shape, length, token_times=True),
            activation_bytes=transformer_activation_bytes(
                transformer, shape, length, 1, token_times=True
            ),
        )

    def plan_step(self, state: RolloutState, context: PlanContext) -> WorkPlan | None:
        """The next step of the chunk that is being denoised."""
        steps = state.schedule.steps
        index = len(state.chunks) * steps + state.sampler.step_index
        shape = UnitShape(
            batch_key=state.batch_key,
            cost_shape="x".join(str(size) for size in state.latents.shape[1:]),
            activation_bytes=state.activation_bytes,
            outputs=("latents",),
            max_batch=max(1, min(state.rows_max or 1, self.spec.step_policy.max_batch)),
        )
        total = state.request.sampling.num_frames * steps
        return next_unit_plan(self.spec, state, context, index, total, shape)

    def run_step(
        self,
        batch: Sequence[tuple[RolloutState, WorkUnit]],
        instance: ResidentModel,
        context: StepContext,
    ) -> Sequence[Rolled]:
        """A step of each unit's chunk, requests at different chunks in one forward."""
        transformer: Transformer = instance.components["transformer"]
        sampler: UniPC = instance.components["scheduler"]
        first = batch[0][0]
        rows_max = transformer.measured_rows_max(
            tuple(first.latents.shape[1:]), first.features.shape[1], token_times=True
        )
        velocities, forwards = predict(transformer, [_row(state) for state, _ in batch], rows_max)
        context.forwards += forwards
        outputs = []
        for (state, _), velocity in zip(batch, velocities, strict=True):
            stepped, latents = sampler.step(state.schedule, state.sampler, velocity, state.latents)
            # What is held stays as it is.
            latents = hold_first_frame(latents, state.latents[:, :, :1])
            outputs.append(Rolled(latents=latents, sampler=stepped, rows_max=rows_max))
        return outputs

    def advance(self, state: RolloutState, unit: WorkUnit, output: Rolled) -> RolloutState:
        """One step on; after a chunk's last the next chunk begins behind it."""
        moved = replace(
            state,
            version=state.version + 1,
            latents=output.latents,
            sampler=output.sampler,
            rows_max=output.rows_max,
        )
        if output.sampler.step_index < state.schedule.steps:
            return moved
        chunk = output.latents[:, :, 1:].clone()
        chunks = (*state.chunks, chunk)
        latents = _begin(chunk, state.request.sampling.seed, len(chunks))
        return replace(moved, chunks=chunks, latents=latents, sampler=UniPCState())

    def finalize(self, state: RolloutState, instance: ResidentModel) -> LoopOutput:
        """`latents` [1, C, chunks, H, W]."""
        latents = torch.cat(state.chunks, dim=2)
        return LoopOutput(values={"latents": latents}, digests={"latents": tensor_digest(latents)})

    def state_bytes(self, state: RolloutState) -> bytes:
        """Chunks, latents and the sampler's history."""
        sampler = state.sampler
        header = {
            "schema": self.spec.state_schema,
            "step": sampler.step_index,
            "orders": (sampler.lower_order_nums, sampler.this_order),
        }
        tensors = (state.latents, sampler.last_sample, *sampler.model_outputs)
        return encode_state(header, (*state.chunks, *tensors))


def _begin(frame: torch.Tensor, seed: int, index: int) -> torch.Tensor:
    """[1, C, 2, H, W]: the frame before [1, C, 1, H, W], and the noise of a chunk."""
    generator = torch.Generator().manual_seed(seed * 4096 + index)
    return torch.cat([frame, torch.randn(frame.shape, generator=generator)], dim=2)


def _row(state: RolloutState) -> Row:
    timestep = state.schedule.timesteps[state.sampler.step_index].view(1)
    return Row(
        sample=state.latents,
        timestep=token_timesteps(timestep, state.latents),
        features=state.features,
    )
