"""The components of Wan: upstream classes, run in float32, with checked inputs.

Wan2.1: https://arxiv.org/abs/2503.20314. The classes are those of `diffusers` and
`transformers`; what is added here keeps a row's bits from depending on its neighbours.
"""

import copy
import logging
from collections.abc import Mapping
from typing import Any, Final

import torch
from diffusers import AutoencoderKLWan, WanTransformer3DModel
from diffusers.models.attention_dispatch import _AttentionBackendRegistry
from torch import nn
from torch.nn import functional
from transformers import UMT5EncoderModel

from fastvideo.errors import ContractViolation
from fastvideo.loops.batch_invariance import Rows, exact_rows_max, rows_limit
from fastvideo.loops.samplers import UniPC
from fastvideo.model.component_config import config_sizes
from fastvideo.model.specs import ComponentSpec, ModelSpec
from fastvideo.model.tensors import check_tensors
from fastvideo.models.recording import Recorded, RecordingChange
from fastvideo.models.wan.autoencoder_parts import quicken
from fastvideo.models.wan.conditions import (
    PackedConditions,
    PreparedText,
    TimeRows,
    keys_and_values,
    prepare_blocks,
)
from fastvideo.models.wan.text import OneTextAtATime

_LOG: Final = logging.getLogger(__name__)
_PATCH_LAYOUT: Final = (1, 2, 2)
# Text tokens to latent tokens: from there on a step is quicker when it is given the keys.
_KEYS_SHARE_MIN: Final = 8


class PatchEmbedding(nn.Module):
    """The convolution that makes tokens of patches, with a row's bits whatever the batch.

    A convolution's own bits depend on the batch, so it runs one sample a call; where a matrix
    product over the patches was measured to give the same bits, that runs for all at once.
    """

    def __init__(self, inner: nn.Conv3d) -> None:
        super().__init__()
        self.weight, self.bias = inner.weight, inner.bias
        self._exact: dict[tuple[int, ...], bool] = {}

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """[B, C, T, H, W] -> [B, D, T', H', W']."""
        if self._exact.get(tuple(int(size) for size in samples.shape[1:])):
            return self._product(samples)
        return torch.cat([self._convolution(sample) for sample in torch.split(samples, 1)])

    def measure(self, sample: torch.Tensor) -> None:
        """Find out whether the product is exact for samples like this one, [1, C, T, H, W]."""
        shape = tuple(sample.shape[1:])
        with torch.no_grad():
            exact = torch.equal(self._convolution(sample), self._product(sample))
        self._exact[shape] = exact

    def _convolution(self, sample: torch.Tensor) -> torch.Tensor:
        return functional.conv3d(sample, self.weight, self.bias, stride=_PATCH_LAYOUT)

    def _product(self, samples: torch.Tensor) -> torch.Tensor:
        rows, channels, frames, height, width = samples.shape
        of_t, of_h, of_w = _PATCH_LAYOUT
        counts = (frames // of_t, height // of_h, width // of_w)
        split = samples.view(
            rows, channels, counts[0], of_t, counts[1], of_h, counts[2], of_w
        ).permute(0, 2, 4, 6, 1, 3, 5, 7)
        patches = split.reshape(rows, counts[0] * counts[1] * counts[2], -1)
        tokens = functional.linear(patches, self.weight.flatten(1), self.bias)
        return tokens.transpose(1, 2).view(rows, -1, *counts)


class Transformer(nn.Module):
    """The denoising transformer, rows of many requests a forward."""

    def __init__(self, spec: ComponentSpec, module: WanTransformer3DModel) -> None:
        super().__init__()
        module.patch_embedding = PatchEmbedding(module.patch_embedding)
        module.condition_embedder = PackedConditions(module.condition_embedder)
        prepare_blocks(module.blocks)
        self.module = module
        self._spec = spec
        self._sizes = config_sizes(spec)
        self._rows_max: dict[tuple[int, ...], int] = {}
        self._velocities = Recorded(_Velocities(module))
        self._times = TimeRows(module.condition_embedder)

    def forward(
        self,
        samples: torch.Tensor,
        timesteps: torch.Tensor,
        features: torch.Tensor | None = None,
        *,
        text: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Velocities [B, C, T, H, W] of samples [B, C, T, H, W], text [B, L, D].

        Timesteps are [B] int64, or [B, S] float32 with one a token where the card takes that.
        In place of the features, `text` is what `prepare_text` made of them.
        Raises ContractViolation naming the component when a shape or dtype is wrong.
        """
        time = "timestep" if timesteps.ndim == 1 else "token_timestep"
        given = {"hidden_states": samples, time: timesteps}
        if features is not None:
            given["encoder_hidden_states"] = features
        _check_call(self._spec, given, self._sizes)
        with torch.no_grad():
            if text is None:
                assert features is not None
                text = self._prepared(features, tuple(samples.shape[1:]))
            packed = self._times.packed(timesteps, self._velocities.stamp)
            velocities: torch.Tensor = self._velocities(samples, packed, text)
        return velocities

    @property
    def attention_backend(self) -> str:
        """The name of what computes its attention, such as "native"."""
        chosen = self.module.blocks[0].attn1.processor._attention_backend
        active = chosen or _AttentionBackendRegistry.get_active_backend()[0]
        return str(active.value)

    def graph_changes(self) -> tuple[RecordingChange, ...]:
        """What became of its recorded forwards since this was asked last."""
        return self._velocities.take_changes()

    def prepare_text(self, features: torch.Tensor, latent_shape: tuple[int, ...]) -> PreparedText:
        """What all steps at a shape [C, T, H, W] read of a text's features [B, L, D].

        Raises ContractViolation naming the component when a shape or dtype is wrong.
        """
        _check_call(self._spec, {"encoder_hidden_states": features}, self._sizes)
        with torch.no_grad():
            stamp = self._velocities.stamp
            return PreparedText(rows=self._prepared(features, latent_shape), stamp=stamp)

    def is_current(self, text: PreparedText) -> bool:
        """Whether the weights are those that a text was prepared with."""
        return text.stamp is self._velocities.stamp

    def known_rows_max(
        self, latent_shape: tuple[int, ...], text_length: int, *, token_times: bool = False
    ) -> int | None:
        """How many rows of a shape may share a forward here; None until it was measured."""
        return self._rows_max.get((*latent_shape, text_length, token_times))

    def measured_rows_max(
        self, latent_shape: tuple[int, ...], text_length: int, *, token_times: bool = False
    ) -> int:
        """How many rows [C, T, H, W] may share a forward on this machine.

        `token_times` is for rows with a timestep a token. Measured once a shape, on the first
        block alone: all blocks have the same shapes and so take the same kernels.
        """
        key = (*latent_shape, text_length, token_times)
        known = self._rows_max.get(key)
        if known is not None:
            return known
        tokens = latent_tokens(latent_shape)
        limit = rows_limit(tokens)
        probe = _Velocities(_first_block_only(self.module))
        text_dim = self._sizes["text_dim"]

        def make_rows(count: int, generator: torch.Generator) -> Rows:
            device = self.module.device
            samples = torch.randn((count, *latent_shape), generator=generator).to(device)
            timesteps = torch.randint(1, 1000, (count,), generator=generator)
            if token_times:
                timesteps = timesteps[:, None] * torch.ones(tokens)
            features = torch.randn((count, text_length, text_dim), generator=generator)
            self.module.patch_embedding.measure(samples[:1])
            text = self._prepared(features.to(device), latent_shape)
            packed = self._times.packed(timesteps.to(device), self._velocities.stamp)
            return samples, packed.view(count, -1), text

        def forward(rows: Rows) -> torch.Tensor:
            samples, packed, text = rows
            velocities: torch.Tensor = probe(
                samples, packed if token_times else packed.flatten(), text
            )
            return velocities

        with torch.no_grad():
            found = exact_rows_max(forward, make_rows, limit)
        self._rows_max[key] = found
        _LOG.info("batch invariance: shape %s, %d of %d rows", key, found, limit)
        return found

    def _prepared(self, features: torch.Tensor, latent_shape: tuple[int, ...]) -> torch.Tensor:
        """Each text by itself, so that its bits are those of a forward of its own."""
        rows = []
        for row in torch.split(features, 1):
            text = self.module.condition_embedder.text_row(row)
            # Keys and values of all blocks are large; beside a large video they save nothing.
            if _KEYS_SHARE_MIN * features.shape[1] >= latent_tokens(latent_shape):
                text = keys_and_values(self.module.blocks, text)
            rows.append(text)
        return torch.cat(rows)


class _Velocities(nn.Module):
    """The module as a function of tensors alone: samples, packed times, prepared text."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(
        self, samples: torch.Tensor, packed: torch.Tensor, text: torch.Tensor
    ) -> torch.Tensor:
        """[B, C, T, H, W] -> [B, C, T, H, W]."""
        velocities: torch.Tensor = self.module(samples, packed, text, return_dict=False)[0]
        return velocities


class TextEncoder(nn.Module):
    """The text encoder: token ids to features, one text a call."""

    def __init__(self, spec: ComponentSpec, module: UMT5EncoderModel) -> None:
        super().__init__()
        self.module = module
        self._spec = spec
        self._sizes = config_sizes(spec)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Features [B, L, D] of ids and mask, both [B, L] int64.

        Raises ContractViolation naming the component when a shape or dtype is wrong.
        """
        given = {"input_ids": input_ids, "attention_mask": attention_mask}
        check_tensors(self._spec.component_id, self._spec.input_schema, given, self._sizes)
        with torch.no_grad():
            features: torch.Tensor = self.module(input_ids, attention_mask).last_hidden_state
        return features


class Vae(nn.Module):
    """The causal video autoencoder, one latent frame at a time."""

    def __init__(self, spec: ComponentSpec, module: AutoencoderKLWan) -> None:
        super().__init__()
        quicken(module)
        self.module = module
        self._spec = spec
        self._sizes = config_sizes(spec)
        shape = (1, module.config.z_dim, 1, 1, 1)
        self._mean = torch.tensor(module.config.latents_mean).view(shape)
        self._inverse_std = 1.0 / torch.tensor(module.config.latents_std).view(shape)

    @property
    def cached_convolutions(self) -> int:
        """How many causal convolutions of the decoder keep frames from call to call."""
        return int(self.module._cached_conv_counts["decoder"])

    def prepare(self, latents: torch.Tensor) -> torch.Tensor:
        """What the decoder reads, [1, C, T, H, W], of normalised latents [1, C, T, H, W].

        Raises ContractViolation naming the component when a shape or dtype is wrong.
        """
        _check_call(self._spec, {"latents": latents}, self._sizes)
        device = latents.device
        scaled = latents / self._inverse_std.to(device) + self._mean.to(device)
        with torch.no_grad():
            prepared: torch.Tensor = self.module.post_quant_conv(scaled)
        return prepared

    def encode_image(self, image: torch.Tensor) -> torch.Tensor:
        """Normalised latents [1, C, 1, H, W] of an image [1, 3, Y, X] in [-1, 1].

        The mode of the posterior, as `WanImageToVideoPipeline` takes it.
        Raises ContractViolation naming the component when a shape or dtype is wrong.
        """
        _check_call(self._spec, {"image": image}, self._sizes)
        cache = [None] * int(self.module._cached_conv_counts["encoder"])
        with torch.no_grad():
            encoded = self.module.encoder(image.unsqueeze(2), feat_cache=cache, feat_idx=[0])
            mode, _ = torch.chunk(self.module.quant_conv(encoded), 2, dim=1)
            device = mode.device
            latents: torch.Tensor = (mode - self._mean.to(device)) * self._inverse_std.to(device)
        return latents

    def decode_frame(
        self, frame: torch.Tensor, cache: tuple[Any, ...], *, first: bool
    ) -> tuple[torch.Tensor, tuple[Any, ...]]:
        """Pixels [1, 3, F, Y, X] in [-1, 1] of one prepared frame [1, C, 1, H, W], and the cache.

        The first frame gives one frame of pixels, each later one four.
        """
        entries = list(cache)
        with torch.no_grad():
            pixels = self.module.decoder(frame, feat_cache=entries, feat_idx=[0], first_chunk=first)
        return torch.clamp(pixels, min=-1.0, max=1.0), tuple(entries)


def _check_call(
    spec: ComponentSpec, given: Mapping[str, torch.Tensor], sizes: Mapping[str, int]
) -> None:
    """Check the tensors of a call that gives some of what the card's component takes."""
    schemas = {schema.name: schema for schema in spec.input_schema}
    for name in given:
        if name not in schemas:
            raise ContractViolation(
                f"{spec.component_id}: takes no {name}; allowed: {', '.join(schemas)}",
                reason="TENSOR_MISMATCH",
                subject=spec.component_id,
            )
    check_tensors(spec.component_id, [schemas[name] for name in given], given, sizes)


def latent_tokens(latent_shape: tuple[int, ...]) -> int:
    """Tokens of one row [C, T, H, W]."""
    _, frames, height, width = latent_shape
    across_t, across_h, across_w = _PATCH_LAYOUT
    return (frames // across_t) * (height // across_h) * (width // across_w)


def make_components(card: ModelSpec, loaded: Mapping[str, Any]) -> dict[str, Any]:
    """The card's components as its loops call them, of the upstream objects by id."""
    specs = card.components
    return {
        "tokenizer": OneTextAtATime(loaded["tokenizer"]),
        "text_encoder": TextEncoder(specs["text_encoder"], loaded["text_encoder"]),
        "transformer": Transformer(specs["transformer"], loaded["transformer"]),
        "vae": Vae(specs["vae"], loaded["vae"]),
        "scheduler": UniPC(loaded["scheduler"]),
    }


def _first_block_only(module: WanTransformer3DModel) -> nn.Module:
    shallow: Any = copy.copy(module)
    shallow._modules = dict(module._modules)
    shallow._modules["blocks"] = nn.ModuleList([module.blocks[0]])
    return shallow  # type: ignore[no-any-return]
