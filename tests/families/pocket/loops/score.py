"""How well pictures fit their text: all of a request's pictures in one unit."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch.nn.functional import interpolate

from fastvideo.loops.contract import LoopOutput, PlanContext, StateBase, StepContext, Values
from fastvideo.loops.state_encoding import encode_state, tensor_digest
from fastvideo.loops.units import UnitShape, next_unit_plan
from fastvideo.model.specs import LoopSpec
from fastvideo.models.resident import ResidentModel
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.work import LoopRef, WorkPlan, WorkUnit
from tests.families.pocket.components import Scorer
from tests.families.pocket.keys import batch_key
from tests.families.pocket.text import padded, part_text, tokens_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreState(StateBase):
    """The text, the pictures, and their rewards once they are there."""

    tokens: tuple[int, ...]
    # [1, C, K, H, W]
    latents: torch.Tensor
    # [K]
    rewards: torch.Tensor | None = None
    batch_key: str


class ScoreKernel:
    """One unit: the reward of every picture."""

    def __init__(self, spec: LoopSpec) -> None:
        self.spec = spec

    def init_state(
        self, loop: LoopRef, request: RequestSpec, inputs: Values, instance: ResidentModel
    ) -> ScoreState:
        """Text and pictures."""
        scorer: Scorer = instance.components["scorer"]
        return ScoreState(
            loop=loop,
            request=request,
            tokens=tokens_of(part_text(request), scorer.text_tokens - 1),
            latents=inputs["latents"],
            batch_key=batch_key(instance, self.spec.loop_id),
        )

    def plan_step(self, state: ScoreState, context: PlanContext) -> WorkPlan | None:
        """The unit, until it has run."""
        shape = UnitShape(
            batch_key=state.batch_key,
            cost_shape=f"{state.latents.shape[2]}",
            activation_bytes=1 << 18,
            outputs=("rewards",),
        )
        return next_unit_plan(self.spec, state, context, state.version, 1, shape)

    def run_step(
        self,
        batch: Sequence[tuple[ScoreState, WorkUnit]],
        instance: ResidentModel,
        context: StepContext,
    ) -> Sequence[torch.Tensor]:
        """[K] rewards of each unit; a convolution's bits depend on the batch."""
        scorer: Scorer = instance.components["scorer"]
        context.forwards += len(batch)
        return [_rewards(scorer, state) for state, _ in batch]

    def advance(self, state: ScoreState, unit: WorkUnit, output: torch.Tensor) -> ScoreState:
        """The state with the rewards."""
        return replace(state, version=state.version + 1, rewards=output)

    def finalize(self, state: ScoreState, instance: ResidentModel) -> LoopOutput:
        """`rewards` [K], and their mean as the score `reward`."""
        assert state.rewards is not None
        return LoopOutput(
            values={"rewards": state.rewards},
            digests={"rewards": tensor_digest(state.rewards)},
            scores={"reward": float(state.rewards.mean())},
        )

    def state_bytes(self, state: ScoreState) -> bytes:
        """Text, pictures, rewards."""
        header = {"schema": self.spec.state_schema, "tokens": state.tokens}
        return encode_state(header, (state.latents, state.rewards))


def _rewards(scorer: Scorer, state: ScoreState) -> torch.Tensor:
    pictures = state.latents[0, :3].transpose(0, 1)
    images = interpolate(pictures, size=(scorer.image_size,) * 2, mode="nearest")
    rewards: torch.Tensor = scorer(padded(state.tokens, scorer.text_tokens), images)
    return rewards
