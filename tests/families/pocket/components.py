"""The upstream modules as the pocket loops call them."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import LlamaForCausalLM

from fastvideo.loops.batch_invariance import ROWS_MAX, Rows, exact_rows_max
from fastvideo.loops.samplers import UniPC
from fastvideo.model.specs import ModelSpec
from fastvideo.models.wan.components import Transformer

_TOKENS_MULTIPLE = 4
"""Linear layers take one kernel for every count of tokens that is a multiple of this."""

_ROW_TOKENS_MIN = 4
"""Attention takes one kernel for every row of this many tokens or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysValues:
    """Keys and values of one request, [layers, heads, slots, D]."""

    keys: torch.Tensor
    values: torch.Tensor


class Reasoner(nn.Module):
    """A causal language model over padded caches: rows of many requests a forward.

    Every forward has at least four tokens a row and a multiple of four in all, so a token's
    bits do not depend on how many others it is read with.
    """

    def __init__(self, module: LlamaForCausalLM) -> None:
        super().__init__()
        self.module = module
        config = module.config
        self.context: int = config.max_position_embeddings
        # With room for what fills a row up.
        self._slots = self.context + _ROW_TOKENS_MIN
        self._layers: int = config.num_hidden_layers
        self._heads: int = config.num_key_value_heads
        self._head_size: int = config.hidden_size // config.num_attention_heads
        # Requests whose tokens may be read together on this machine.
        self.exact_batch_max = self._measured_batch_max()

    def _measured_batch_max(self) -> int:
        """How many rows, each one token behind a text of its own, have the bits of one alone."""

        def make_rows(count: int, generator: torch.Generator) -> Rows:
            shape = (count, self._layers, self._heads, self._slots, self._head_size)
            keys, values = (torch.randn(shape, generator=generator) for _ in range(2))
            tokens = torch.randint(0, 256, (count,), generator=generator)
            starts = torch.randint(1, self.context - 1, (count,), generator=generator)
            return tokens, starts, keys, values

        def forward(rows: Rows) -> torch.Tensor:
            tokens, starts, keys, values = rows
            caches = [KeysValues(keys=k, values=v) for k, v in zip(keys, values, strict=True)]
            texts = [(token,) for token in tokens.tolist()]
            return torch.stack(self.read(texts, starts.tolist(), caches)[0])

        with torch.no_grad():
            return exact_rows_max(forward, make_rows, ROWS_MAX)

    def empty_cache(self) -> KeysValues:
        """A cache that nothing was read into."""
        shape = (self._layers, self._heads, self._slots, self._head_size)
        return KeysValues(keys=torch.zeros(shape), values=torch.zeros(shape))

    def read(
        self,
        rows: Sequence[tuple[int, ...]],
        starts: Sequence[int],
        caches: Sequence[KeysValues],
    ) -> tuple[list[torch.Tensor], list[KeysValues]]:
        """Logits [tokens, V] of each row and its cache with the row read at its start.

        All rows have the same number of tokens. What fills the forward up, behind the rows and
        below them, is forgotten.
        """
        count, tokens = len(rows), len(rows[0])
        wide = max(tokens, _ROW_TOKENS_MIN)
        extra = next(n for n in range(4) if (count + n) * wide % _TOKENS_MULTIPLE == 0)
        ids = torch.zeros((count + extra, wide), dtype=torch.int64)
        ids[:count, :tokens] = torch.tensor(rows)
        first = torch.tensor([*starts, *[0] * extra])
        positions = first[:, None] + torch.arange(wide)
        filler = [self.empty_cache()] * extra
        store = _PaddedCache(
            torch.stack([cache.keys for cache in (*caches, *filler)]),
            torch.stack([cache.values for cache in (*caches, *filler)]),
            positions,
        )
        visible = torch.arange(self._slots) <= positions[:, None, :, None]
        mask = torch.where(visible, 0.0, torch.finfo(torch.float32).min)
        hidden = self.module.model(
            input_ids=ids, position_ids=positions, attention_mask=mask, cache=store, use_cache=True
        ).last_hidden_state
        logits = self.module.lm_head(hidden)
        after = [store.row(index, starts[index] + tokens) for index in range(count)]
        return list(logits[:count, :tokens]), after


class _PaddedCache:
    """What a forward of `LlamaModel` needs of a cache: the whole context, padded."""

    is_compileable = False

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, positions: torch.Tensor) -> None:
        # [rows, layers, heads, slots, D]
        self._keys = keys
        self._values = values
        self._positions = positions
        self.is_sliding = [False] * keys.shape[1]

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keep a layer's new keys and values; all of it."""
        for row, positions in enumerate(self._positions.tolist()):
            self._keys[row, layer][:, positions] = keys[row]
            self._values[row, layer][:, positions] = values[row]
        return self._keys[:, layer], self._values[:, layer]

    def get_seq_length(self, layer: int = 0) -> int:
        """Positions are given with every call."""
        return 0

    def row(self, index: int, read: int) -> KeysValues:
        """One request's part, with zeros behind what was read."""
        keys, values = self._keys[index].clone(), self._values[index].clone()
        keys[:, :, read:] = 0
        values[:, :, read:] = 0
        return KeysValues(keys=keys, values=values)


class TextEncoder(nn.Module):
    """Features [L, D] of token ids [1, L]."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.module(input_ids=ids, use_cache=False).last_hidden_state[0]
        return features


class Codec(nn.Module):
    """Codes to samples: the decoder of DAC, https://arxiv.org/abs/2306.06546."""

    # Frames on both sides that a frame's samples depend on.
    context = 20

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module
        self.hop: int = module.config.hop_length
        self.codes: int = module.config.codebook_size

    def decode(self, codes: torch.Tensor, start: int, stop: int) -> torch.Tensor:
        """Samples [(stop - start) * hop] of codes [N] int64, with their context."""
        low, high = max(0, start - self.context), min(len(codes), stop + self.context)
        embedded = self.module.quantizer.from_codes(codes[low:high][None, None])[0]
        samples: torch.Tensor = self.module.decoder(embedded).reshape(-1)
        return samples[(start - low) * self.hop : (stop - low) * self.hop].clone()


class Scorer(nn.Module):
    """How well images fit a text, https://arxiv.org/abs/2103.00020."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module
        self.image_size: int = module.config.vision_config.image_size
        self.text_tokens: int = module.config.text_config.max_position_embeddings

    def forward(self, ids: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        """[K] of token ids [1, L] and images [K, 3, Y, X]."""
        scores: torch.Tensor = self.module(input_ids=ids, pixel_values=images).logits_per_image
        return scores[:, 0]


class Graphs:
    """Captured graphs of one instance, by the digest of their keys."""

    def __init__(self) -> None:
        self._graphs: dict[str, Callable[..., Any]] = {}

    def find(self, digest: str) -> Callable[..., Any] | None:
        """The graph of a key, if it was captured."""
        return self._graphs.get(digest)

    def capture(self, digest: str, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        """Export a module at the shapes of its arguments."""
        exported = torch.export.export(module, arguments, {"return_dict": False})
        self._graphs[digest] = exported.module()


def make_components(card: ModelSpec, loaded: Mapping[str, Any]) -> dict[str, Any]:
    """The card's components as its loops call them."""
    return {
        "reasoner": Reasoner(loaded["reasoner"]),
        "text_encoder": TextEncoder(loaded["text_encoder"]),
        # What rows share a forward through cannot be exported; a graph is of the module itself.
        "plain_transformer": copy.deepcopy(loaded["transformer"]),
        "transformer": Transformer(card.components["transformer"], loaded["transformer"]),
        "scheduler": UniPC(loaded["scheduler"]),
        "codec": Codec(loaded["codec"]),
        "scorer": Scorer(loaded["scorer"]),
        "graphs": Graphs(),
    }
