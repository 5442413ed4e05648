"""Parts of the autoencoder, computed in a quicker way where that gives the same bits.

For small videos on a CPU, upstream's convolution spends more time on gathering its columns than
on the product, and its norm over channels reads memory across its grain. Both are rewritten as
the same sums in the same order. Whether they are is measured for every form of input, when it is
first met, against what upstream computes.
"""

from collections.abc import Callable
from typing import Any, Final

import torch
from diffusers.models.autoencoders.autoencoder_kl_wan import WanCausalConv3d, WanRMS_norm
from torch import nn
from torch.nn import functional

_FORMS_MAX: Final = 1024
# Columns of a convolution: what one gathers of a large video has no place in memory.
_COLUMNS_BYTES_MAX: Final = 64 * 2**20
# `torch.nn.functional.normalize`'s.
_EPSILON: Final = 1e-12

Compute = Callable[[torch.Tensor], torch.Tensor]


class Quicker:
    """Which forms of input a quicker way gives the bits of the usual one for."""

    def __init__(self) -> None:
        self._exact: dict[object, bool] = {}

    def compute(self, sample: torch.Tensor, usual: Compute, quick: Compute) -> torch.Tensor:
        """What `usual` gives, by whichever way."""
        if torch.is_grad_enabled():
            return usual(sample)
        # The number of threads is among what libraries choose their kernels by.
        form = (
            sample.shape,
            sample.stride(),
            sample.dtype,
            sample.device,
            torch.get_num_threads(),
        )
        exact = self._exact.get(form)
        if exact is not None:
            return quick(sample) if exact else usual(sample)
        wanted = usual(sample)
        if len(self._exact) < _FORMS_MAX:
            self._exact[form] = torch.equal(quick(sample), wanted)
        return wanted


class ProductConv(nn.Module):
    """A causal convolution as one product of its weights with the columns of its input."""

    def __init__(self, inner: WanCausalConv3d) -> None:
        super().__init__()
        self.weight, self.bias = inner.weight, inner.bias
        self._padding = inner._padding
        self._quicker = Quicker()

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Whether a module is a convolution of this kind."""
        return (
            isinstance(module, WanCausalConv3d)
            and module.bias is not None
            and module.groups == 1
            and {*module.stride, *module.dilation} == {1}
        )

    def forward(self, x: torch.Tensor, cache_x: torch.Tensor | None = None) -> torch.Tensor:
        """As `WanCausalConv3d`: [B, C, T, H, W], and the frames before it, -> [B, D, T, H, W]."""
        padding = list(self._padding)
        if cache_x is not None and padding[4] > 0:
            x = torch.cat([cache_x.to(x.device), x], dim=2)
            padding[4] -= cache_x.shape[2]
        padded = functional.pad(x, padding)
        if len(padded) > 1 or self._columns_bytes(padded) > _COLUMNS_BYTES_MAX:
            return self._convolution(padded)
        return self._quicker.compute(padded, self._convolution, self._product)

    def _convolution(self, padded: torch.Tensor) -> torch.Tensor:
        return functional.conv3d(padded, self.weight, self.bias)

    def _product(self, padded: torch.Tensor) -> torch.Tensor:
        sizes, strides = self._window(padded), padded[0].stride()
        windows = padded[0].as_strided(
            (padded.shape[1], *self.weight.shape[2:], *sizes),
            (strides[0], *strides[1:], *strides[1:]),
            padded.storage_offset(),
        )
        columns = windows.reshape(self.weight[0].numel(), -1)
        product = torch.addmm(self.bias[:, None], self.weight.flatten(1), columns)
        return product.view(1, -1, *sizes)

    def _columns_bytes(self, padded: torch.Tensor) -> int:
        frames, height, width = self._window(padded)
        size: int = self.weight[0].numel() * frames * height * width * padded.element_size()
        return size

    def _window(self, padded: torch.Tensor) -> tuple[int, int, int]:
        """Frames, height and width of the output."""
        frames, height, width = (
            size - kernel + 1
            for size, kernel in zip(padded.shape[2:], self.weight.shape[2:], strict=True)
        )
        return frames, height, width


class ChannelNorm(nn.Module):
    """A root mean square norm over channels, each pixel's channels side by side in memory."""

    def __init__(self, inner: WanRMS_norm) -> None:
        super().__init__()
        self.gamma = inner.gamma
        self._scale, self._bias = inner.scale, inner.bias
        self._quicker = Quicker()

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Whether a module is a norm of this kind."""
        return (
            isinstance(module, WanRMS_norm)
            and module.channel_first
            and not isinstance(module.bias, nn.Parameter)
            and module.gamma.dtype is torch.float32
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As `WanRMS_norm`, for float32: [B, C, ...] -> [B, C, ...]."""
        normalized = self._quicker.compute(x, _normalized, _normalized_by_pixel)
        scaled: torch.Tensor = normalized * self._scale * self.gamma + self._bias
        return scaled


def quicken(module: nn.Module) -> None:
    """Put such parts in the place of upstream's, with the same parameters and names."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            made: Any = None
            if ProductConv.fits(child):
                made = ProductConv(child)
            elif ChannelNorm.fits(child):
                made = ChannelNorm(child)
            if made is not None:
                setattr(parent, name, made)


def _normalized(x: torch.Tensor) -> torch.Tensor:
    return functional.normalize(x, dim=1)


def _normalized_by_pixel(x: torch.Tensor) -> torch.Tensor:
    pixels = x.movedim(1, -1).contiguous()
    norm: torch.Tensor = torch.linalg.vector_norm(pixels, 2, -1).unsqueeze(1)
    return x / norm.clamp_min(_EPSILON).expand_as(x)
