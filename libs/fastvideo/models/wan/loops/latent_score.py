"""Scores of given latents under a prompt: how well the model predicts the way to them.

At each of a few fixed noise levels sigma, with noise from the request's seed, the score is the
mean squared error of the velocity: x = (1 - sigma) latents + sigma noise, and the model should
say noise - latents. It is the flow-matching loss (https://arxiv.org/abs/2210.02747), so lower is
likelier.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import torch

from fastvideo.errors import InvalidField
from fastvideo.loops.contract import LoopOutput, PlanContext, StateBase, StepContext, Values
from fastvideo.loops.guidance import Row, predict
from fastvideo.loops.snapshots import fields_of, require_rank, resumed, typed_fields
from fastvideo.loops.state_encoding import encode_state, tensor_digest
from fastvideo.loops.units import UnitShape, next_unit_plan
from fastvideo.model.specs import LoopSpec
from fastvideo.models.resident import ResidentModel
from fastvideo.models.wan.activations import first_step_rows, transformer_activation_bytes
from fastvideo.models.wan.components import Transformer
from fastvideo.models.wan.geometry import latent_shape, shape_label
from fastvideo.models.wan.keys import batch_key
from fastvideo.models.wan.loops.denoise import initial_noise
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.work import LoopRef, WorkPlan, WorkUnit

SIGMAS: Final = (0.1, 0.3, 0.5, 0.7, 0.9)
"""The noise levels, one unit each."""

_TRAIN_TIMESTEPS: Final = 1000
_SAVED: Final = ("latents", "features", "errors")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentScoreState(StateBase):
    """What is scored, against which noise, and the errors so far."""

    # [1, C, T, H, W]
    latents: torch.Tensor
    # [1, C, T, H, W]
    noise: torch.Tensor
    # [1, L, D]
    features: torch.Tensor
    features_digest: str
    batch_key: str
    activation_bytes: int
    rows_max: int | None
    # Mean squared error by noise level, in their order.
    errors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentScoreOutput:
    """The error at one noise level."""

    error: float
    rows_max: int


class LatentScoreKernel:
    """The flow-matching error of latents at fixed noise levels."""

    components_of: Final = MappingProxyType({"error": "transformer"})

    def __init__(self, spec: LoopSpec) -> None:
        self.spec = spec

    def init_state(
        self, loop: LoopRef, request: RequestSpec, inputs: Values, instance: ResidentModel
    ) -> LatentScoreState:
        """Latents, noise and features.

        Raises InvalidField when the latents are of another form than the request's size.
        """
        shape = latent_shape(instance.card, request.sampling)
        latents: torch.Tensor = inputs["latents"]
        if tuple(latents.shape) != (1, *shape) or latents.dtype != torch.float32:
            raise InvalidField("latents", tuple(latents.shape), f"float32 {[1, *shape]}")
        features: torch.Tensor = inputs["text_features"][:1]
        transformer: Transformer = instance.components["transformer"]
        text_length = features.shape[1]
        rows_max = transformer.known_rows_max(shape, text_length)
        return LatentScoreState(
            loop=loop,
            request=request,
            latents=latents,
            noise=initial_noise(shape, request.sampling.seed).to(latents.device),
            features=features,
            features_digest=tensor_digest(features),
            batch_key=batch_key(
                instance, self.spec.loop_id, shape=shape_label(shape), text_length=text_length
            ),
            activation_bytes=transformer_activation_bytes(
                transformer, shape, text_length, first_step_rows(shape, 1, rows_max)
            ),
            rows_max=rows_max,
        )

    def plan_step(self, state: LatentScoreState, context: PlanContext) -> WorkPlan | None:
        """The next noise level."""
        shape = UnitShape(
            batch_key=state.batch_key,
            cost_shape=f"{shape_label(tuple(state.latents.shape[1:]))}/1",
            activation_bytes=state.activation_bytes,
            outputs=("scores",),
            max_batch=max(1, min(state.rows_max or 1, self.spec.step_policy.max_batch)),
        )
        return next_unit_plan(self.spec, state, context, len(state.errors), len(SIGMAS), shape)

    def run_step(
        self,
        batch: Sequence[tuple[LatentScoreState, WorkUnit]],
        instance: ResidentModel,
        context: StepContext,
    ) -> Sequence[LatentScoreOutput]:
        """Each unit's error at its noise level."""
        transformer: Transformer = instance.components["transformer"]
        first = batch[0][0]
        with context.untapped():
            rows_max = transformer.measured_rows_max(
                tuple(first.latents.shape[1:]), first.features.shape[1]
            )
        rows = [_row(state, SIGMAS[unit.step_range.start]) for state, unit in batch]
        predictions, forwards = predict(transformer, rows, rows_max)
        context.forwards += forwards
        return [
            LatentScoreOutput(
                error=float((velocity - (state.noise - state.latents)).square().mean()),
                rows_max=rows_max,
            )
            for (state, _), velocity in zip(batch, predictions, strict=True)
        ]

    def advance(
        self, state: LatentScoreState, unit: WorkUnit, output: LatentScoreOutput
    ) -> LatentScoreState:
        """The state one noise level on."""
        return replace(
            state,
            version=state.version + 1,
            errors=(*state.errors, output.error),
            rows_max=output.rows_max,
        )

    def finalize(self, state: LatentScoreState, instance: ResidentModel) -> LoopOutput:
        """`scores`: the error at each noise level, and their mean as velocity_mse."""
        scores = {
            f"velocity_mse_sigma_{sigma:.2f}": error
            for sigma, error in zip(SIGMAS, state.errors, strict=True)
        }
        scores["velocity_mse"] = sum(state.errors) / len(state.errors)
        return LoopOutput(values={"scores": scores}, scores=scores)

    def state_bytes(self, state: LatentScoreState) -> bytes:
        """Latents, noise, conditions and the errors so far."""
        header = {
            "schema": self.spec.state_schema,
            "features": state.features_digest,
            "errors": state.errors,
        }
        return encode_state(header, (state.latents, state.noise))

    def save_state(self, state: LatentScoreState) -> Values:
        """Latents, features and errors; the noise follows from the seed."""
        return fields_of(state, _SAVED)

    def load_state(
        self, loop: LoopRef, request: RequestSpec, saved: Values, instance: ResidentModel
    ) -> LatentScoreState:
        """The state at its noise level."""
        fields = typed_fields(LatentScoreState, saved, _SAVED)
        require_rank("features", fields["features"], 3)
        inputs = {"latents": fields["latents"], "text_features": fields["features"]}
        return resumed(self.init_state(loop, request, inputs, instance), fields)


def _row(state: LatentScoreState, sigma: float) -> Row:
    return Row(
        sample=(1 - sigma) * state.latents + sigma * state.noise,
        timestep=torch.tensor([round(sigma * _TRAIN_TIMESTEPS)], device=state.latents.device),
        features=state.features,
    )
