"""Image to video against `diffusers.WanImageToVideoPipeline(expand_timesteps=True)`."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fastvideo.errors import ContractViolation, InvalidField
from fastvideo.loops.runner import run_loop
from fastvideo.media.images import Pixels, fit_image
from fastvideo.models.wan.components import Transformer
from fastvideo.models.wan.parity import image_reference, trajectory_parity
from tests.parity.wan import (
    PROMPT,
    embedded_model,
    generation,
    sampling,
    upstream_pipeline,
)


def picture(width: int, height: int, seed: int = 0) -> Pixels:
    """A smooth random image, whose middle is not like its edges."""
    coarse = np.random.default_rng(seed).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    return fit_image(coarse, width, height)


def check_case(params: Any, image: Pixels) -> None:
    found = trajectory_parity(embedded_model(), upstream_pipeline(), PROMPT, params, image)
    assert found.latents.differences == (0.0,) * params.steps
    assert found.latents.first_step is None
    assert found.frames_max_difference == 0


@pytest.mark.parametrize("guidance", [1.0, 3.0])
@pytest.mark.parametrize("size", [(48, 48), (32, 48)])
def test_latents_and_frames_equal_the_pipeline(guidance: float, size: tuple[int, int]) -> None:
    params = sampling(width=size[0], height=size[1], steps=4, guidance_scale=guidance, seed=3)
    check_case(params, picture(*size))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "steps", "guidance", "size"),
    list(product([0, 1], [4, 10], [1.0, 3.0], [(48, 48), (32, 48)])),
)
def test_latents_and_frames_equal_the_pipeline_throughout(
    seed: int, steps: int, guidance: float, size: tuple[int, int]
) -> None:
    params = sampling(
        width=size[0], height=size[1], steps=steps, guidance_scale=guidance, seed=seed
    )
    check_case(params, picture(100, 70, seed))


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{"num_frames": 1}, {"num_frames": 17}, {"width": 96, "height": 64}], ids=str
)
def test_unusual_sizes_equal_the_pipeline_too(changes: dict[str, Any]) -> None:
    check_case(
        sampling(**{"steps": 3, "guidance_scale": 3.0, "seed": 11} | changes), picture(64, 64)
    )


def test_the_final_latents_are_those_of_the_pipeline_with_the_first_frame_held() -> None:
    model = embedded_model()
    image = picture(48, 48)
    request = generation(steps=2, guidance_scale=3.0, seed=5)
    given = {"image": torch.from_numpy(image)}
    values = {
        **run_loop(model.kernels["encode"], request, {}, model).values,
        **run_loop(model.kernels["vae_encode"], request, given, model).values,
    }
    ours = run_loop(model.kernels["denoise_first_frame"], request, values, model)
    theirs = image_reference(upstream_pipeline())(
        image=Image.fromarray(image),
        prompt=PROMPT,
        width=48,
        height=48,
        num_frames=9,
        num_inference_steps=2,
        guidance_scale=3.0,
        generator=torch.Generator("cpu").manual_seed(5),
        max_sequence_length=32,
        output_type="latent",
    ).frames
    assert torch.equal(ours.values["latents"], theirs)
    assert torch.equal(ours.values["latents"][:, :, :1], values["image_latents"])


def test_the_first_frame_of_the_video_is_the_image_as_the_autoencoder_sees_it() -> None:
    model = embedded_model()
    # Something that the weights know: a frame of a video of theirs.
    text = generation(steps=10, guidance_scale=3.0, seed=2)
    features = run_loop(model.kernels["encode"], text, {}, model).values
    made = run_loop(model.kernels["denoise"], text, features, model).values
    image = run_loop(model.kernels["decode"], text, made, model).values["frames"][0]

    request = generation(steps=4, guidance_scale=3.0, seed=8)
    start = run_loop(model.kernels["vae_encode"], request, {"image": image}, model).values
    values = {**features, **start}
    latents = run_loop(model.kernels["denoise_first_frame"], request, values, model).values
    frames = run_loop(model.kernels["decode"], request, latents, model).values["frames"]

    differences = (frames.float() - image.float()).abs().mean(dim=(1, 2, 3))
    assert differences[0] < 6
    assert differences[-1] > differences[0]


def test_latents_of_another_size_than_the_request_are_refused() -> None:
    model = embedded_model()
    request = generation(steps=1)
    features = run_loop(model.kernels["encode"], request, {}, model).values
    for wrong in (torch.zeros(1, 8, 1, 6, 4), torch.zeros(1, 8, 1, 6, 6).double()):
        values = {**features, "image_latents": wrong}
        with pytest.raises(InvalidField) as caught:
            run_loop(model.kernels["denoise_first_frame"], request, values, model)
        assert caught.value.field == "image_latents"
    for image in (torch.zeros(4, 4, 4).byte(), torch.zeros(4, 4, 3), torch.zeros(4, 4).byte()):
        with pytest.raises(InvalidField) as caught:
            run_loop(model.kernels["vae_encode"], request, {"image": image}, model)
        assert caught.value.field == "image"


def test_a_transformer_whose_card_takes_no_timestep_a_token_says_so() -> None:
    original = embedded_model().components["transformer"]
    spec = embedded_model().card.components["transformer"]
    schemas = tuple(s for s in spec.input_schema if s.name != "token_timestep")
    plain = Transformer.__new__(Transformer)
    torch.nn.Module.__init__(plain)
    plain.__dict__.update(original.__dict__, _spec=replace(spec, input_schema=schemas))
    with pytest.raises(ContractViolation, match="transformer: takes no token_timestep"):
        plain(torch.zeros(1, 8, 3, 6, 6), torch.zeros(1, 27), torch.zeros(1, 32, 64))
