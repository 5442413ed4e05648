"""Image to video in Wan2.2's way: the first latent frame is the image's, and is at time 0.

At every step the transformer sees the image's latents in place of the first frame and, token by
token, the timestep 0 there and the step's elsewhere. The arithmetic is that of
`diffusers.WanImageToVideoPipeline(expand_timesteps=True)`, operation by operation.
"""

import torch

from fastvideo.errors import InvalidField


def first_frame_of(image_latents: torch.Tensor, latent_shape: tuple[int, ...]) -> torch.Tensor:
    """The latents [1, C, 1, H, W] that hold the first frame of [C, T, H, W].

    Raises InvalidField when they are of another form.
    """
    channels, _, height, width = latent_shape
    expected = (1, channels, 1, height, width)
    if tuple(image_latents.shape) != expected or image_latents.dtype != torch.float32:
        raise InvalidField(
            "image_latents",
            f"{image_latents.dtype} {list(image_latents.shape)}",
            f"float32 {list(expected)}",
        )
    return image_latents


def hold_first_frame(latents: torch.Tensor, first_frame: torch.Tensor) -> torch.Tensor:
    """Latents [1, C, T, H, W] with the first frame replaced by [1, C, 1, H, W]."""
    mask = _free(latents)
    return (1 - mask) * first_frame + mask * latents


def token_timesteps(timestep: torch.Tensor, latents: torch.Tensor) -> torch.Tensor:
    """The timestep of each token, [1, S] float32, of latents [1, C, T, H, W] at a timestep [1].

    A token is a patch of 2 x 2 latents of one frame.
    """
    return (_free(latents)[0][0][:, ::2, ::2] * timestep).flatten().unsqueeze(0)


def _free(latents: torch.Tensor) -> torch.Tensor:
    """1 where the sampler is free, 0 in the first frame: [1, 1, T, H, W]."""
    mask = torch.ones_like(latents[:, :1])
    mask[:, :, 0] = 0
    return mask
