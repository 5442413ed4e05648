"""VAE encoding of one image: a single unit, the latents of a first frame."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import numpy as np
import torch

from fastvideo.errors import InvalidField
from fastvideo.loops.contract import LoopOutput, PlanContext, StateBase, StepContext, Values
from fastvideo.loops.snapshots import fields_of, resumed, typed_fields
from fastvideo.loops.state_encoding import encode_state, tensor_digest
from fastvideo.loops.units import UnitShape, next_unit_plan
from fastvideo.media.images import Pixels, fit_image
from fastvideo.model.specs import LoopSpec
from fastvideo.models.resident import ResidentModel
from fastvideo.models.wan.components import Vae
from fastvideo.models.wan.geometry import latent_shape, shape_label
from fastvideo.models.wan.keys import batch_key
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.work import LoopRef, WorkPlan, WorkUnit

# float32 feature maps of a pixel that are alive at once, at the encoder's width, with the columns
# that a convolution unfolds on a CPU; 36 were measured.
_MAPS_A_PIXEL = 44
_SAVED = ("image", "latents")


@dataclass(frozen=True, slots=True, kw_only=True)
class VaeEncodeState(StateBase):
    """The image, and its latents once they are there."""

    # uint8 [Y, X, 3], of any size.
    image: torch.Tensor
    image_digest: str
    batch_key: str
    activation_bytes: int
    # [1, C, 1, H, W], normalised.
    latents: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class VaeEncodeOutput:
    """The image's latents, [1, C, 1, H, W], normalised."""

    latents: torch.Tensor


class VaeEncodeKernel:
    """An image as `diffusers.WanImageToVideoPipeline` encodes it, cut to the request's shape."""

    components_of: Final = MappingProxyType({"latents": "vae"})

    def __init__(self, spec: LoopSpec) -> None:
        self.spec = spec

    def init_state(
        self, loop: LoopRef, request: RequestSpec, inputs: Values, instance: ResidentModel
    ) -> VaeEncodeState:
        """The image as it was given.

        Raises InvalidField when the request's size does not fit or the image is no image.
        """
        image: torch.Tensor = inputs["image"]
        if image.ndim != 3 or image.shape[2] != 3 or image.dtype != torch.uint8:
            raise InvalidField("image", tuple(image.shape), "uint8 [height, width, 3]")
        vae: Vae = instance.components["vae"]
        latent_shape(instance.card, request.sampling)
        width, height = request.sampling.width, request.sampling.height
        return VaeEncodeState(
            loop=loop,
            request=request,
            image=image,
            image_digest=tensor_digest(image),
            batch_key=batch_key(instance, self.spec.loop_id, shape=shape_label((1, height, width))),
            activation_bytes=4 * _MAPS_A_PIXEL * int(vae.module.config.base_dim) * width * height,
        )

    def plan_step(self, state: VaeEncodeState, context: PlanContext) -> WorkPlan | None:
        """The one unit."""
        sampling = state.request.sampling
        shape = UnitShape(
            batch_key=state.batch_key,
            cost_shape=shape_label((1, sampling.height, sampling.width)),
            activation_bytes=state.activation_bytes,
            outputs=("image_latents",),
        )
        done = 0 if state.latents is None else 1
        return next_unit_plan(self.spec, state, context, done, 1, shape)

    def run_step(
        self,
        batch: Sequence[tuple[VaeEncodeState, WorkUnit]],
        instance: ResidentModel,
        context: StepContext,
    ) -> Sequence[VaeEncodeOutput]:
        """Each unit's latents, one image at a time: convolutions are not batch-invariant."""
        vae: Vae = instance.components["vae"]
        outputs = []
        for state, _ in batch:
            sampling = state.request.sampling
            fitted = fit_image(state.image.cpu().numpy(), sampling.width, sampling.height)
            latents = vae.encode_image(to_pixels(fitted).to(vae.module.device))
            context.forwards += 1
            outputs.append(VaeEncodeOutput(latents))
        return outputs

    def advance(
        self, state: VaeEncodeState, unit: WorkUnit, output: VaeEncodeOutput
    ) -> VaeEncodeState:
        """The state with the latents."""
        return replace(state, version=state.version + 1, latents=output.latents)

    def finalize(self, state: VaeEncodeState, instance: ResidentModel) -> LoopOutput:
        """`image_latents` [1, C, 1, H, W]."""
        assert state.latents is not None
        return LoopOutput(
            values={"image_latents": state.latents},
            digests={"image_latents": tensor_digest(state.latents)},
        )

    def state_bytes(self, state: VaeEncodeState) -> bytes:
        """The image's digest, and the latents."""
        header = {"schema": self.spec.state_schema, "image": state.image_digest}
        return encode_state(header, (state.latents,))

    def save_state(self, state: VaeEncodeState) -> Values:
        """The image and its latents."""
        return fields_of(state, _SAVED)

    def load_state(
        self, loop: LoopRef, request: RequestSpec, saved: Values, instance: ResidentModel
    ) -> VaeEncodeState:
        """The image, encoded or not."""
        fields = typed_fields(VaeEncodeState, saved, _SAVED)
        return resumed(self.init_state(loop, request, {"image": fields["image"]}, instance), fields)


def to_pixels(image: Pixels) -> torch.Tensor:
    """float32 [1, 3, height, width] in [-1, 1] of uint8 [height, width, 3].

    As `diffusers.VideoProcessor.preprocess` scales an image.
    """
    scaled = torch.from_numpy(image.astype(np.float32) / 255.0)
    return 2.0 * scaled.permute(2, 0, 1).unsqueeze(0) - 1.0
