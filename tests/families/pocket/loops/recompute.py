"""Log-probabilities of a recorded answer, recomputed; one unit an answer, answers together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fastvideo.loops.contract import LoopOutput, PlanContext, StateBase, StepContext, Values
from fastvideo.loops.state_encoding import encode_state, tensor_digest
from fastvideo.loops.units import UnitShape, next_unit_plan
from fastvideo.model.specs import LoopSpec
from fastvideo.models.resident import ResidentModel
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.work import LoopRef, WorkPlan, WorkUnit
from tests.families.pocket.components import Reasoner
from tests.families.pocket.keys import batch_key
from tests.families.pocket.text import part_text, tokens_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeState(StateBase):
    """The prompt, the recorded answer, and its log-probabilities."""

    prompt: tuple[int, ...]
    # [N] int64 and float32, as they were recorded.
    tokens: torch.Tensor
    recorded: torch.Tensor
    # [N] float32, once they are there.
    logprobs: torch.Tensor | None = None
    context: int
    batch_key: str


class RecomputeKernel:
    """Reads prompt and answer in one forward, as training does, on the kernels of decoding."""

    def __init__(self, spec: LoopSpec) -> None:
        self.spec = spec

    def init_state(
        self, loop: LoopRef, request: RequestSpec, inputs: Values, instance: ResidentModel
    ) -> RecomputeState:
        """The recorded trajectory."""
        context = instance.components["reasoner"].context
        return RecomputeState(
            loop=loop,
            request=request,
            prompt=tokens_of(part_text(request), context),
            tokens=inputs["tokens"],
            recorded=inputs["logprobs"],
            context=context,
            batch_key=batch_key(instance, self.spec.loop_id),
        )

    def plan_step(self, state: RecomputeState, context: PlanContext) -> WorkPlan | None:
        """One unit."""
        shape = UnitShape(
            batch_key=state.batch_key,
            cost_shape=str(state.context),
            activation_bytes=4 * 24 * 64 * state.context,
            outputs=("recomputed",),
            max_batch=self.spec.step_policy.max_batch,
        )
        return next_unit_plan(self.spec, state, context, state.version, 1, shape)

    def run_step(
        self,
        batch: Sequence[tuple[RecomputeState, WorkUnit]],
        instance: ResidentModel,
        context: StepContext,
    ) -> Sequence[torch.Tensor]:
        """[N] float32 of each unit's answer."""
        reasoner: Reasoner = instance.components["reasoner"]
        context.forwards += 1
        # Padded to the context: every row has the same number of tokens.
        texts = [(*state.prompt, *state.tokens.tolist()) for state, _ in batch]
        rows = [text + (0,) * (reasoner.context - len(text)) for text in texts]
        caches = [reasoner.empty_cache() for _ in rows]
        logits, _ = reasoner.read(rows, [0] * len(rows), caches)
        return [_of_answer(state, row) for (state, _), row in zip(batch, logits, strict=True)]

    def advance(
        self, state: RecomputeState, unit: WorkUnit, output: torch.Tensor
    ) -> RecomputeState:
        """The state with the log-probabilities."""
        return replace(state, version=state.version + 1, logprobs=output)

    def finalize(self, state: RecomputeState, instance: ResidentModel) -> LoopOutput:
        """`recomputed` [N], and how far the largest is from the record."""
        assert state.logprobs is not None
        apart = float((state.logprobs - state.recorded).abs().max())
        return LoopOutput(
            values={"recomputed": state.logprobs},
            digests={"recomputed": tensor_digest(state.logprobs)},
            scores={"max_abs_difference": apart},
        )

    def state_bytes(self, state: RecomputeState) -> bytes:
        """The trajectory and its log-probabilities."""
        header = {"schema": self.spec.state_schema, "prompt": state.prompt}
        return encode_state(header, (state.tokens, state.recorded, state.logprobs))


def _of_answer(state: RecomputeState, logits: torch.Tensor) -> torch.Tensor:
    """[N] of logits [context, V]: the token at i is told by the logits before it."""
    first = len(state.prompt) - 1
    told = torch.log_softmax(logits[first : first + len(state.tokens)], dim=-1)
    picked: torch.Tensor = told.gather(1, state.tokens[:, None])[:, 0]
    return picked
