"""What conditions Wan's transformer, computed before its forward, a row by itself.

The embeddings of a time and of a text do not depend on the latents: a time's are the same for
every request, a text's for every step. They are computed one row a call, so that a row's bits
are those of a forward of its own, and handed to the blocks through the arguments of upstream's
own forward.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

import torch
from diffusers.models.attention_dispatch import dispatch_attention_fn
from torch import nn

from fastvideo.errors import ContractViolation

# The embedding, and the six modulations of a block.
_TIME_PARTS: Final = 7
_TIMES_MAX: Final = 256


class PackedConditions(nn.Module):
    """In the place of `WanTimeTextImageEmbedding`: unpacks what that would compute.

    It has upstream's parts under upstream's names.
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        for name, part in inner.named_children():
            self.add_module(name, part)
        self.width = int(self._part("time_embedder").linear_2.out_features)

    def forward(
        self,
        packed: torch.Tensor,
        text: torch.Tensor,
        encoder_hidden_states_image: torch.Tensor | None = None,
        timestep_seq_len: int | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None]:
        """Embedding and modulations of each row's time, and the text as it is.

        `packed` is flat, of what `time_row` gave for each row; with a time a token,
        `timestep_seq_len` is set. Text is of what `text_row` gave, [B, ...].
        """
        if encoder_hidden_states_image is not None:
            raise ContractViolation("this transformer reads no features of images")
        tokens = () if timestep_seq_len is None else (-1,)
        times = packed.view(text.shape[0], *tokens, _TIME_PARTS * self.width)
        return times[..., : self.width], times[..., self.width :], text, None

    def time_row(self, time: torch.Tensor) -> torch.Tensor:
        """The conditions of one row's time, [1, 7 d]; of [S] times, one a token, [1, S x 7 d]."""
        frequencies = self._part("timesteps_proj")(time)
        if len(time) > 1:
            frequencies = frequencies.unflatten(0, (1, len(time)))
        embedder = self._part("time_embedder")
        embedding = embedder(frequencies.to(embedder.linear_1.weight.dtype))
        modulations = self._part("time_proj")(self._part("act_fn")(embedding))
        return torch.cat([embedding, modulations], dim=-1).flatten(1)

    def text_row(self, features: torch.Tensor) -> torch.Tensor:
        """The embedded text [1, L, d] of one row's features [1, L, D]."""
        embedded: torch.Tensor = self._part("text_embedder")(features)
        return embedded

    def _part(self, name: str) -> Any:
        return self._modules[name]


class TimeRows:
    """The conditions of times, each computed once while the weights stay the same."""

    def __init__(self, conditions: PackedConditions) -> None:
        self._conditions = conditions
        self._hooks = [part._forward_hooks for part in conditions.modules()]
        self._known: OrderedDict[float, torch.Tensor] = OrderedDict()
        self._stamp: object = None

    def packed(self, timesteps: torch.Tensor, stamp: object) -> torch.Tensor:
        """For `PackedConditions`: flat of times [B]; [B, S x 7 d] of times [B, S], one a token.

        `stamp` is another object when the weights have changed.
        """
        if stamp is not self._stamp:
            self._known.clear()
            self._stamp = stamp
        if timesteps.ndim == 1:
            rows = [
                self._row(value, timesteps[index : index + 1])
                for index, value in enumerate(timesteps.tolist())
            ]
            return torch.cat(rows).flatten()
        # Rows with the same times, such as the branches of a step, share theirs.
        known: dict[tuple[float, ...], torch.Tensor] = {}
        for times in timesteps:
            key = tuple(times.tolist())
            if key not in known:
                known[key] = self._conditions.time_row(times)
        return torch.cat([known[tuple(times)] for times in timesteps.tolist()])

    def _row(self, value: float, time: torch.Tensor) -> torch.Tensor:
        if any(self._hooks):
            # Somebody watches the parts: what they give must not depend on what ran before.
            return self._conditions.time_row(time)
        row = self._known.get(value)
        if row is None:
            row = self._known[value] = self._conditions.time_row(time)
            while len(self._known) > _TIMES_MAX:
                self._known.popitem(last=False)
        return row


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedText:
    """What a text's steps share; see `Transformer.prepare_text`."""

    # [B, L, d], or keys and values [B, 2 N, L, H, d/H].
    rows: torch.Tensor
    # Another object once the weights have changed.
    stamp: object


class GivenKeys:
    """Cross-attention to keys and values that were computed before, or upstream's own.

    They are given in place of the embedded text, as `keys_and_values` makes them.
    """

    def __init__(self, block: int, upstream: Any) -> None:
        self._block = block
        self._upstream = upstream

    def __call__(
        self,
        attn: Any,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        rotary_emb: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """As `WanAttnProcessor`: hidden states [B, S, d], text [B, L, d] or [B, 2 N, L, H, d/H]."""
        if encoder_hidden_states.ndim == 3:
            attended: torch.Tensor = self._upstream(
                attn, hidden_states, encoder_hidden_states, attention_mask, rotary_emb
            )
            return attended
        query = attn.norm_q(attn.to_q(hidden_states)).unflatten(2, (attn.heads, -1))
        attended = dispatch_attention_fn(
            query,
            encoder_hidden_states[:, 2 * self._block],
            encoder_hidden_states[:, 2 * self._block + 1],
            attn_mask=attention_mask,
            dropout_p=0.0,
            is_causal=False,
            backend=self._upstream._attention_backend,
            parallel_config=None,
        )
        output: torch.Tensor = attn.to_out[0](attended.flatten(2, 3).type_as(query))
        dropped: torch.Tensor = attn.to_out[1](output)
        return dropped


def prepare_blocks(blocks: nn.ModuleList) -> None:
    """Let every block's cross-attention take keys and values that were computed before."""
    for index, block in enumerate(blocks):
        attention: Any = block.attn2
        attention.processor = GivenKeys(index, attention.processor)


def keys_and_values(blocks: nn.ModuleList, text: torch.Tensor) -> torch.Tensor:
    """[1, 2 N, L, H, d/H]: keys and values of each of N blocks, for an embedded text [1, L, d]."""
    parts = []
    for block in blocks:
        attention: Any = block.attn2
        for made in (attention.norm_k(attention.to_k(text)), attention.to_v(text)):
            parts.append(made.unflatten(2, (attention.heads, -1)))
    return torch.stack(parts, dim=1)
