"""Denoising by flow matching: one unit a step, rows of many requests in one forward."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import torch

from fastvideo.errors import ContractViolation, InvalidField
from fastvideo.loops.behavior import TRAJECTORY, Trajectory, captures, trajectory_of
from fastvideo.loops.contract import LoopOutput, PlanContext, StateBase, StepContext, Values
from fastvideo.loops.guidance import GuidancePolicy, Row, branch_rows, policy_for, predict
from fastvideo.loops.samplers import FlowSchedule, FlowSDEState, UniPC, UniPCState, walk
from fastvideo.loops.snapshot_format import SnapshotMismatch
from fastvideo.loops.snapshots import (
    fields_of,
    require_like,
    require_rank,
    resumed,
    typed_fields,
)
from fastvideo.loops.state_encoding import encode_state, tensor_digest
from fastvideo.loops.units import UnitShape, next_unit_plan
from fastvideo.model.specs import LoopSpec
from fastvideo.models.resident import ResidentModel
from fastvideo.models.wan.activations import first_step_rows, transformer_activation_bytes
from fastvideo.models.wan.components import Transformer
from fastvideo.models.wan.conditions import PreparedText
from fastvideo.models.wan.first_frame import (
    first_frame_of,
    hold_first_frame,
    token_timesteps,
)
from fastvideo.models.wan.geometry import latent_shape, shape_label
from fastvideo.models.wan.keys import batch_key
from fastvideo.models.wan.loops.denoise_capture import captured_of
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.traces import GraphUsed
from fastvideo.scheduling.work import LoopRef, WorkPlan, WorkUnit

_SAVED = ("latents", "features", "sampler", "first_frame")
# Saved beside it for requests that capture; the others' snapshots are as they always were.
_CAPTURED = "trajectory"


@dataclass(frozen=True, slots=True, kw_only=True)
class DenoiseState(StateBase):
    """Latents, what conditions them, and where the sampler stands."""

    # [1, C, T, H, W]
    latents: torch.Tensor
    # [branches, L, D]
    features: torch.Tensor
    features_digest: str
    policy: GuidancePolicy
    schedule: FlowSchedule
    sampler: UniPCState | FlowSDEState
    batch_key: str
    activation_bytes: int
    # How many rows may share a forward here; None until the shape was measured.
    rows_max: int | None
    # [1, C, 1, H, W], what the first latent frame is held at; None where nothing holds it.
    first_frame: torch.Tensor | None = None
    # Follows from the features; None before the first step.
    text: PreparedText | None = None
    # The steps so far; None for a request that captures nothing.
    trajectory: Trajectory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DenoiseOutput:
    """What one step computed."""

    # Guided velocity, [1, C, T, H, W].
    velocity: torch.Tensor
    latents: torch.Tensor
    sampler: UniPCState | FlowSDEState
    rows_max: int
    text: PreparedText
    # None where nothing was drawn, or nobody asked.
    log_prob: float | None = None


class DenoiseKernel:
    """The denoising loop of `diffusers.WanPipeline`, driven from outside, bit for bit.

    Where the card's loop takes `image_latents`, that of `WanImageToVideoPipeline` with a
    timestep a token: see `fastvideo.models.wan.first_frame`.
    """

    components_of: Final = MappingProxyType({"velocity": "transformer", "latents": "scheduler"})

    def __init__(self, spec: LoopSpec) -> None:
        self.spec = spec
        self._takes_image = any(schema.name == "image_latents" for schema in spec.input_schema)

    def init_state(
        self, loop: LoopRef, request: RequestSpec, inputs: Values, instance: ResidentModel
    ) -> DenoiseState:
        """Noise from the request's seed, and its schedule.

        Raises InvalidField when the size does not fit, the features lack a branch, or the
        image's latents are of another size.
        """
        sampling = request.sampling
        shape = latent_shape(instance.card, sampling)
        policy = policy_for(sampling.guidance_scale)
        features: torch.Tensor = inputs["text_features"]
        if len(features) < len(policy.branches):
            raise InvalidField(
                "text_features", tuple(features.shape), f"{len(policy.branches)} branches"
            )
        features = features[: len(policy.branches)]
        first_frame = first_frame_of(inputs["image_latents"], shape) if self._takes_image else None
        transformer: Transformer = instance.components["transformer"]
        sampler: UniPC = instance.components["scheduler"]
        text_length = features.shape[1]
        rows_max = transformer.known_rows_max(shape, text_length, token_times=self._takes_image)
        latents = initial_noise(shape, sampling.seed).to(features.device)
        return DenoiseState(
            loop=loop,
            request=request,
            latents=latents,
            features=features,
            features_digest=tensor_digest(features),
            policy=policy,
            schedule=sampler.schedule(sampling.steps, sampling.flow_shift),
            sampler=walk.start(sampler, sampling),
            batch_key=batch_key(
                instance,
                self.spec.loop_id,
                shape=shape_label(shape),
                text_length=text_length,
                branches=policy.branches,
                # Noise is a request's own and drawn after the forward: any levels may share it.
                sampler=walk.sampler_name(sampler, sampling),
            ),
            activation_bytes=transformer_activation_bytes(
                transformer,
                shape,
                text_length,
                first_step_rows(shape, len(policy.branches), rows_max),
                token_times=self._takes_image,
            ),
            rows_max=rows_max,
            first_frame=first_frame,
            trajectory=trajectory_of(request, latents),
        )

    def plan_step(self, state: DenoiseState, context: PlanContext) -> WorkPlan | None:
        """The next step. A shape that was not measured yet takes its first step alone."""
        branches = len(state.policy.branches)
        units = 1 if state.rows_max is None else state.rows_max // branches
        shape = UnitShape(
            batch_key=state.batch_key,
            cost_shape=f"{shape_label(tuple(state.latents.shape[1:]))}/{branches}",
            activation_bytes=state.activation_bytes,
            outputs=("latents",),
            max_batch=max(1, min(units, self.spec.step_policy.max_batch)),
        )
        return next_unit_plan(
            self.spec, state, context, state.sampler.step_index, state.schedule.steps, shape
        )

    def run_step(
        self,
        batch: Sequence[tuple[DenoiseState, WorkUnit]],
        instance: ResidentModel,
        context: StepContext,
    ) -> Sequence[DenoiseOutput]:
        """One step of each unit: all branches of all requests in as few forwards as are exact."""
        transformer: Transformer = instance.components["transformer"]
        sampler: UniPC = instance.components["scheduler"]
        first = batch[0][0]
        shape, text_length = tuple(first.latents.shape[1:]), first.features.shape[1]
        with context.untapped():
            rows_max = transformer.measured_rows_max(
                shape, text_length, token_times=self._takes_image
            )
        texts = [_text(transformer, state) for state, _ in batch]
        rows = [
            row for (state, _), text in zip(batch, texts, strict=True) for row in _rows(state, text)
        ]
        predictions, forwards = predict(
            lambda samples, times, text: transformer(samples, times, text=text), rows, rows_max
        )
        context.forwards += forwards
        context.notes += _graph_notes(transformer, batch[0][1])
        outputs = []
        for (state, _), text in zip(batch, texts, strict=True):
            own, predictions = _split(predictions, len(state.policy.branches))
            velocity = state.policy.combine(own, state.request.sampling.guidance_scale)
            context.tap("guidance", velocity)
            stepped, latents = walk.step(
                sampler, state.schedule, state.sampler, velocity, state.latents
            )
            context.tap("sampler", latents)
            outputs.append(
                DenoiseOutput(
                    velocity=velocity,
                    latents=latents,
                    sampler=stepped,
                    rows_max=rows_max,
                    text=text,
                    log_prob=None
                    if state.trajectory is None
                    else _log_prob(state, velocity, latents),
                )
            )
        return outputs

    def advance(self, state: DenoiseState, unit: WorkUnit, output: DenoiseOutput) -> DenoiseState:
        """The state one step on."""
        trajectory = state.trajectory
        if trajectory is not None:
            trajectory = trajectory.with_step(output.latents, output.log_prob)
        return replace(
            state,
            trajectory=trajectory,
            version=state.version + 1,
            latents=output.latents,
            sampler=output.sampler,
            rows_max=output.rows_max,
            text=output.text,
        )

    def finalize(self, state: DenoiseState, instance: ResidentModel) -> LoopOutput:
        """`latents` [1, C, T, H, W], as `WanPipeline(output_type="latent")` returns them.

        And `trajectory`, what `Captured.as_values` gives, for a request that captures.
        """
        latents = state.latents
        if state.first_frame is not None:
            latents = hold_first_frame(latents, state.first_frame)
        values: dict[str, object] = {"latents": latents}
        if state.trajectory is not None:
            captured = captured_of(self.spec, state, state.trajectory, latents, instance)
            values[TRAJECTORY] = captured.as_values()
        return LoopOutput(values=values, digests={"latents": tensor_digest(latents)})

    def retraced(self, state: DenoiseState, step: int, latents: torch.Tensor) -> DenoiseState:
        """See `fastvideo.loops.behavior.RetracingKernel`."""
        sampler = state.sampler
        if isinstance(sampler, FlowSDEState):
            sampler = replace(sampler, step_index=step)
        if sampler.step_index != step:
            raise ContractViolation(
                f"step {step} of a sampler with a history cannot come after {sampler.step_index}"
            )
        return replace(state, sampler=sampler, latents=latents.to(state.latents.device))

    def retraces_apart(self, state: DenoiseState) -> bool:
        """See `fastvideo.loops.behavior.RetracingKernel`."""
        return isinstance(state.sampler, FlowSDEState)

    def log_prob(
        self, state: DenoiseState, output: DenoiseOutput, stepped: torch.Tensor
    ) -> float | None:
        """See `fastvideo.loops.behavior.RetracingKernel`."""
        return _log_prob(state, output.velocity, stepped.to(state.latents.device))

    def state_bytes(self, state: DenoiseState) -> bytes:
        """Position, schedule, conditions, and every tensor that later steps read.

        What is captured is none of it: a request has the same digests with it and without.
        """
        sampler = state.sampler
        header = {
            "schema": self.spec.state_schema,
            "step_index": sampler.step_index,
            "steps": state.schedule.steps,
            "flow_shift": state.schedule.flow_shift,
            "guidance_scale": state.request.sampling.guidance_scale,
            "features": state.features_digest,
        }
        tensors: tuple[torch.Tensor | None, ...] = (state.latents,)
        if isinstance(sampler, FlowSDEState):
            header["noise"] = (sampler.noise_level, sampler.seed, sampler.sample_index)
        else:
            header["orders"] = (sampler.lower_order_nums, sampler.this_order)
            tensors = (*tensors, sampler.last_sample, *sampler.model_outputs)
        held = () if state.first_frame is None else (state.first_frame,)
        return encode_state(header, (*tensors, *held))

    def save_state(self, state: DenoiseState) -> Values:
        """Latents, conditions and the sampler; policy and schedule follow from the request."""
        captured = (_CAPTURED,) if state.trajectory is not None else ()
        return fields_of(state, (*_SAVED, *captured))

    def load_state(
        self, loop: LoopRef, request: RequestSpec, saved: Values, instance: ResidentModel
    ) -> DenoiseState:
        """The state at its step. Raises SnapshotMismatch for tensors of another size."""
        captured = (_CAPTURED,) if captures(request) else ()
        fields = typed_fields(DenoiseState, saved, (*_SAVED, *captured))
        if (fields["first_frame"] is not None) is not self._takes_image:
            raise SnapshotMismatch(
                "first_frame belongs to loops from an image", subject="first_frame"
            )
        require_rank("features", fields["features"], 3)
        inputs = {"text_features": fields["features"], "image_latents": fields["first_frame"]}
        fresh = self.init_state(loop, request, inputs, instance)
        _check_sampler(fields["sampler"], fresh)
        for latents in fields[_CAPTURED].latents if captured else ():
            require_like(_CAPTURED, latents, fresh.latents)
        return resumed(fresh, fields)


def initial_noise(shape: tuple[int, int, int, int], seed: int) -> torch.Tensor:
    """The noise [1, C, T, H, W] that `WanPipeline.prepare_latents` draws for a CPU generator."""
    generator = torch.Generator("cpu").manual_seed(seed)
    return torch.randn((1, *shape), generator=generator, dtype=torch.float32)


def _graph_notes(transformer: Transformer, unit: WorkUnit) -> list[GraphUsed]:
    return [
        GraphUsed(
            model_instance_id=unit.model_instance_id,
            component="transformer",
            change=found.change,
            capture_shape=found.shapes,
            reason=found.reason,
        )
        for found in transformer.graph_changes()
    ]


def _text(transformer: Transformer, state: DenoiseState) -> PreparedText:
    if state.text is not None and transformer.is_current(state.text):
        return state.text
    return transformer.prepare_text(state.features, tuple(state.latents.shape[1:]))


def _rows(state: DenoiseState, text: PreparedText) -> tuple[Row, ...]:
    device = state.latents.device
    timestep = state.schedule.timesteps[state.sampler.step_index].view(1).to(device)
    if state.first_frame is None:
        return branch_rows(state.latents, timestep, text.rows)
    held = hold_first_frame(state.latents, state.first_frame)
    return branch_rows(held, token_timesteps(timestep, held), text.rows)


def _split(
    predictions: list[torch.Tensor], count: int
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    return predictions[:count], predictions[count:]


def _log_prob(state: DenoiseState, velocity: torch.Tensor, stepped: torch.Tensor) -> float | None:
    """How likely a step was, of the frames that the sampler decides on."""
    free = slice(None) if state.first_frame is None else slice(1, None)
    found = walk.log_prob(state.schedule, state.sampler, velocity, state.latents, stepped, free)
    return None if found is None else float(found)


def _check_sampler(saved: UniPCState | FlowSDEState, fresh: DenoiseState) -> None:
    """Raise SnapshotMismatch unless a saved sampler is one of this request."""
    if type(saved) is not type(fresh.sampler):
        raise SnapshotMismatch("the sampler is another's than this request's", subject="sampler")
    if isinstance(saved, FlowSDEState):
        if replace(saved, step_index=0) != fresh.sampler:
            raise SnapshotMismatch(f"the noise is another's: {saved}", subject="sampler")
        return
    for tensor in (saved.last_sample, *saved.model_outputs):
        if tensor is not None:
            require_like("sampler", tensor, fresh.latents)
