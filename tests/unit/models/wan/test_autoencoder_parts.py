from typing import Any

import diffusers
import pytest
import torch
from diffusers.models.autoencoders.autoencoder_kl_wan import WanCausalConv3d, WanRMS_norm

from fastvideo.models.wan import autoencoder_parts
from fastvideo.models.wan.autoencoder_parts import ChannelNorm, ProductConv, Quicker, quicken


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def autoencoder() -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        made = diffusers.AutoencoderKLWan(
            base_dim=8, z_dim=4, dim_mult=[1, 2], num_res_blocks=1, temperal_downsample=[True]
        )
    return made.eval()


@torch.no_grad()
def test_an_autoencoder_of_quicker_parts_has_the_bits_of_upstreams() -> None:
    upstream, ours = autoencoder(), autoencoder()
    quicken(ours)
    parts = list(ours.modules())
    assert any(isinstance(part, ProductConv) for part in parts)
    assert any(isinstance(part, ChannelNorm) for part in parts)
    assert dict(ours.named_parameters()).keys() == dict(upstream.named_parameters()).keys()
    # The first time each form is compared, the second time the quicker way is taken.
    for seed in range(3):
        video = noise(1, 3, 5, 16, 16, seed=seed)
        latents = upstream.encode(video).latent_dist.mode()
        assert torch.equal(ours.encode(video).latent_dist.mode(), latents)
        assert torch.equal(ours.decode(latents).sample, upstream.decode(latents).sample)


@torch.no_grad()
def test_a_way_that_gives_other_bits_is_not_taken() -> None:
    quicker, sample = Quicker(), noise(4)
    taken: list[int] = []

    def close(x: torch.Tensor) -> torch.Tensor:
        taken.append(1)
        return x * 2 + 1e-6

    for _ in range(3):
        assert torch.equal(quicker.compute(sample, lambda x: x * 2, close), sample * 2)
    assert len(taken) == 1


@torch.no_grad()
def test_each_form_is_measured_by_itself() -> None:
    quicker = Quicker()

    def for_four(x: torch.Tensor) -> torch.Tensor:
        return x if len(x) == 4 else x + 1

    for _ in range(2):
        for size in (4, 5):
            sample = noise(size)
            assert torch.equal(quicker.compute(sample, lambda x: x + 0.0, for_four), sample)


def test_gradients_flow_through_the_usual_way() -> None:
    conv = WanCausalConv3d(2, 3, 3, padding=1)
    part = ProductConv(conv)
    part(noise(1, 2, 2, 4, 4)).sum().backward()
    assert part.weight.grad is not None


@torch.no_grad()
def test_many_videos_and_large_ones_take_the_usual_way(monkeypatch: pytest.MonkeyPatch) -> None:
    conv = WanCausalConv3d(2, 3, 3, padding=1)
    part = ProductConv(conv)

    def never(padded: torch.Tensor) -> torch.Tensor:
        raise AssertionError

    monkeypatch.setattr(part, "_product", never)
    videos = noise(2, 2, 2, 4, 4)
    assert torch.equal(part(videos), conv(videos))
    monkeypatch.setattr(autoencoder_parts, "_COLUMNS_BYTES_MAX", 1000)
    assert torch.equal(part(videos[:1]), conv(videos[:1]))


def test_strides_and_norms_over_the_last_dimension_are_left_alone() -> None:
    assert not ProductConv.fits(WanCausalConv3d(2, 2, (3, 1, 1), stride=(2, 1, 1)))
    assert not ChannelNorm.fits(WanRMS_norm(4, channel_first=False))
    assert not ProductConv.fits(torch.nn.Conv3d(2, 2, 3))
