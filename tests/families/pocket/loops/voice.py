"""Speech from tokens: one chunk of frames a unit."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch

from fastvideo.loops.contract import LoopOutput, PlanContext, StateBase, StepContext, Values
from fastvideo.loops.state_encoding import encode_state, tensor_digest
from fastvideo.loops.units import UnitShape, next_unit_plan
from fastvideo.model.specs import LoopSpec
from fastvideo.models.resident import ResidentModel
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.work import LoopRef, WorkPlan, WorkUnit
from tests.families.pocket.components import Codec
from tests.families.pocket.keys import batch_key

FRAMES_A_TOKEN: Final = 4
CHUNK_FRAMES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class VoiceState(StateBase):
    """The codes, and the samples so far, one tensor a chunk."""

    # [N] int64
    codes: torch.Tensor
    chunks: tuple[torch.Tensor, ...] = ()
    batch_key: str


class VoiceKernel:
    """The codec's decoder over a stretch of frames with its context on both sides."""

    def __init__(self, spec: LoopSpec) -> None:
        self.spec = spec

    def init_state(
        self, loop: LoopRef, request: RequestSpec, inputs: Values, instance: ResidentModel
    ) -> VoiceState:
        """Four frames a token."""
        codec: Codec = instance.components["codec"]
        spread = inputs["tokens"].repeat_interleave(FRAMES_A_TOKEN)
        codes = (spread + torch.arange(len(spread))) % codec.codes
        return VoiceState(
            loop=loop,
            request=request,
            codes=codes,
            batch_key=batch_key(instance, self.spec.loop_id, frames=CHUNK_FRAMES),
        )

    def plan_step(self, state: VoiceState, context: PlanContext) -> WorkPlan | None:
        """The next chunk."""
        total = -(-len(state.codes) // CHUNK_FRAMES)
        shape = UnitShape(
            batch_key=state.batch_key,
            cost_shape=str(CHUNK_FRAMES),
            activation_bytes=1 << 18,
            outputs=("waveform",),
        )
        return next_unit_plan(self.spec, state, context, len(state.chunks), total, shape)

    def run_step(
        self,
        batch: Sequence[tuple[VoiceState, WorkUnit]],
        instance: ResidentModel,
        context: StepContext,
    ) -> Sequence[torch.Tensor]:
        """[samples] of each unit's chunk; a convolution's bits depend on the batch."""
        codec: Codec = instance.components["codec"]
        context.forwards += len(batch)
        return [_decode(codec, state, unit.step_range.start) for state, unit in batch]

    def advance(self, state: VoiceState, unit: WorkUnit, output: torch.Tensor) -> VoiceState:
        """The state with one more chunk."""
        return replace(state, version=state.version + 1, chunks=(*state.chunks, output))

    def finalize(self, state: VoiceState, instance: ResidentModel) -> LoopOutput:
        """`waveform` [samples] float32."""
        waveform = torch.cat(state.chunks)
        return LoopOutput(
            values={"waveform": waveform}, digests={"waveform": tensor_digest(waveform)}
        )

    def state_bytes(self, state: VoiceState) -> bytes:
        """Codes and samples."""
        return encode_state({"schema": self.spec.state_schema}, (state.codes, *state.chunks))


def _decode(codec: Codec, state: VoiceState, index: int) -> torch.Tensor:
    start = index * CHUNK_FRAMES
    return codec.decode(state.codes, start, min(len(state.codes), start + CHUNK_FRAMES))
