"""From a request's pixels and frames to the shape of its latents."""

from fastvideo.errors import InvalidField
from fastvideo.model.component_config import config_sizes
from fastvideo.model.specs import ModelSpec
from fastvideo.requests.types import SamplingParams


def latent_shape(card: ModelSpec, sampling: SamplingParams) -> tuple[int, int, int, int]:
    """Channels, latent frames, height and width of a request's latents.

    Raises InvalidField when the size or the number of frames does not fit the grid.
    """
    vae = config_sizes(card.components["vae"])
    space, time = vae["scale_factor_spatial"], vae["scale_factor_temporal"]
    # The transformer takes patches of 2 x 2 latents.
    multiple = 2 * space
    for name, pixels in (("height", sampling.height), ("width", sampling.width)):
        if pixels < multiple or pixels % multiple:
            raise InvalidField(name, pixels, f"a multiple of {multiple}")
    if sampling.num_frames < 1 or (sampling.num_frames - 1) % time:
        raise InvalidField("num_frames", sampling.num_frames, f"a multiple of {time} plus 1")
    return (
        vae["z_dim"],
        (sampling.num_frames - 1) // time + 1,
        sampling.height // space,
        sampling.width // space,
    )


def shape_label(shape: tuple[int, ...]) -> str:
    """Such as "8x3x6x6"."""
    return "x".join(str(size) for size in shape)


def default_sampling(card: ModelSpec, seed: int = 0) -> SamplingParams:
    """The card's defaults, with a seed."""
    value = {name: spec.default_value for name, spec in card.sampling.items()}
    return SamplingParams(
        width=int(value["width"]),
        height=int(value["height"]),
        num_frames=int(value["num_frames"]),
        fps=int(value["fps"]),
        steps=int(value["steps"]),
        guidance_scale=value["guidance_scale"],
        flow_shift=value["flow_shift"],
        seed=seed,
    )
