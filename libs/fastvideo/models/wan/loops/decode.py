"""VAE decoding: one unit a latent frame, the causal feature cache as the loop's state."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import torch

from fastvideo.errors import InvalidField
from fastvideo.loops.contract import LoopOutput, PlanContext, StateBase, StepContext, Values
from fastvideo.loops.snapshot_format import SnapshotMismatch
from fastvideo.loops.snapshots import fields_of, resumed, typed_fields
from fastvideo.loops.state_encoding import encode_state, tensor_digest
from fastvideo.loops.units import UnitShape, next_unit_plan
from fastvideo.model.specs import LoopSpec
from fastvideo.models.resident import ResidentModel
from fastvideo.models.wan.components import Vae
from fastvideo.models.wan.geometry import latent_shape, shape_label
from fastvideo.models.wan.keys import batch_key
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.work import LoopRef, WorkPlan, WorkUnit

_FRAMES_A_TILE = 4
# float32 feature maps of a pixel of the output that are alive at once, at the decoder's width,
# with the columns that a convolution unfolds on a CPU; 37 were measured.
_MAPS_A_PIXEL = 44
_SAVED = ("latents", "prepared", "cache", "frames")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeState(StateBase):
    """Latents, what the convolutions remember of earlier frames, and the frames so far."""

    # [1, C, T, H, W], normalised.
    latents: torch.Tensor
    batch_key: str
    activation_bytes: int
    # [1, C, T, H, W] as the decoder reads them; None before the first unit.
    prepared: torch.Tensor | None = None
    # One entry a causal convolution: frames, a mark, or None before its first call.
    cache: tuple[Any, ...] = ()
    # Each uint8 [F, height, width, 3]; one a unit.
    frames: tuple[torch.Tensor, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeOutput:
    """What one latent frame became."""

    # [1, 3, F, height, width] in [-1, 1].
    pixels: torch.Tensor
    # uint8 [F, height, width, 3].
    frames: torch.Tensor
    prepared: torch.Tensor
    cache: tuple[Any, ...]


class DecodeKernel:
    """`AutoencoderKLWan.decode`, one latent frame a unit, with the bits of the whole call."""

    components_of: Final = MappingProxyType({"pixels": "vae"})

    def __init__(self, spec: LoopSpec) -> None:
        self.spec = spec

    def init_state(
        self, loop: LoopRef, request: RequestSpec, inputs: Values, instance: ResidentModel
    ) -> DecodeState:
        """The latents and an empty feature cache.

        Raises InvalidField when latents that a request brought are of another form.
        """
        vae: Vae = instance.components["vae"]
        latents: torch.Tensor = inputs["latents"]
        channels = int(vae.module.config.z_dim)
        if latents.ndim != 5 or latents.shape[:2] != (1, channels):
            raise InvalidField("latents", tuple(latents.shape), f"[1, {channels}, T, H, W]")
        if latents.dtype != torch.float32:
            raise InvalidField("latents", str(latents.dtype), "float32")
        expected = latent_shape(instance.card, request.sampling)
        if tuple(latents.shape[1:]) != expected:
            raise InvalidField(
                "latents", tuple(latents.shape), f"{[1, *expected]} for the request's size"
            )
        return DecodeState(
            loop=loop,
            request=request,
            latents=latents,
            batch_key=batch_key(
                instance, self.spec.loop_id, shape=shape_label(tuple(latents.shape[1:]))
            ),
            activation_bytes=_activation_bytes(vae, latents),
            cache=(None,) * vae.cached_convolutions,
        )

    def plan_step(self, state: DecodeState, context: PlanContext) -> WorkPlan | None:
        """The next latent frame. The first gives one frame of pixels and costs less."""
        index, total = len(state.frames), state.latents.shape[2]
        _, channels, _, height, width = state.latents.shape
        given = 1 if index == 0 else _FRAMES_A_TILE
        shape = UnitShape(
            batch_key=state.batch_key,
            cost_shape=f"{shape_label((channels, 1, height, width))}/{given}",
            activation_bytes=state.activation_bytes,
            outputs=("frames",),
        )
        return next_unit_plan(self.spec, state, context, index, total, shape)

    def run_step(
        self,
        batch: Sequence[tuple[DecodeState, WorkUnit]],
        instance: ResidentModel,
        context: StepContext,
    ) -> Sequence[DecodeOutput]:
        """Each unit's frames, one video at a time: convolutions are not batch-invariant."""
        vae: Vae = instance.components["vae"]
        outputs = []
        for state, unit in batch:
            index = unit.step_range.start
            prepared = vae.prepare(state.latents) if state.prepared is None else state.prepared
            pixels, cache = vae.decode_frame(
                prepared[:, :, index : index + 1], state.cache, first=index == 0
            )
            context.forwards += 1
            outputs.append(
                DecodeOutput(
                    pixels=pixels, frames=to_frames(pixels), prepared=prepared, cache=cache
                )
            )
        return outputs

    def advance(self, state: DecodeState, unit: WorkUnit, output: DecodeOutput) -> DecodeState:
        """The state one latent frame on."""
        return replace(
            state,
            version=state.version + 1,
            prepared=output.prepared,
            cache=output.cache,
            frames=(*state.frames, output.frames),
        )

    def finalize(self, state: DecodeState, instance: ResidentModel) -> LoopOutput:
        """`frames` uint8 [F, height, width, 3], as `WanPipeline(output_type="pil")` gives them."""
        frames = torch.cat(state.frames)
        return LoopOutput(values={"frames": frames}, digests={"frames": tensor_digest(frames)})

    def state_bytes(self, state: DecodeState) -> bytes:
        """Position, latents, the feature cache and the frames so far."""
        header = {"schema": self.spec.state_schema, "position": len(state.frames)}
        return encode_state(header, (state.latents, state.prepared, *state.cache, *state.frames))

    def save_state(self, state: DecodeState) -> Values:
        """Latents, what the convolutions remember, and the frames so far."""
        return fields_of(state, _SAVED)

    def load_state(
        self, loop: LoopRef, request: RequestSpec, saved: Values, instance: ResidentModel
    ) -> DecodeState:
        """The state at its latent frame."""
        fields = typed_fields(DecodeState, saved, _SAVED)
        fresh = self.init_state(loop, request, {"latents": fields["latents"]}, instance)
        if len(fields["cache"]) != len(fresh.cache):
            raise SnapshotMismatch(
                f"cache has {len(fields['cache'])} entries; the decoder remembers "
                f"{len(fresh.cache)}",
                subject="cache",
            )
        return resumed(fresh, fields)


def to_frames(pixels: torch.Tensor) -> torch.Tensor:
    """uint8 [F, height, width, 3] of pixels [1, 3, F, height, width] in [-1, 1]."""
    shown = (pixels[0].permute(1, 2, 3, 0) * 0.5 + 0.5).clamp(0, 1)
    return (shown * 255).round().to(torch.uint8)


def _activation_bytes(vae: Vae, latents: torch.Tensor) -> int:
    _, _, _, height, width = latents.shape
    scale = int(vae.module.config.scale_factor_spatial)
    pixels = _FRAMES_A_TILE * height * scale * width * scale
    return 4 * _MAPS_A_PIXEL * int(vae.module.config.base_dim) * pixels
