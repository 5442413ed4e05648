"""Bounds on the memory that a forward takes while it runs."""

from fastvideo.loops.batch_invariance import rows_limit
from fastvideo.models.wan.components import Transformer, latent_tokens

# float32 tensors of a token's width that are alive at once in a block, with the feed-forward.
_TENSORS_A_TOKEN = 24
# And with a timestep a token: its embedding, six modulations, and their sums with the tables.
_TENSORS_A_TOKEN_TIME = 16


def transformer_activation_bytes(
    transformer: Transformer,
    latent_shape: tuple[int, ...],
    text_length: int,
    rows: int,
    *,
    token_times: bool = False,
) -> int:
    """Bytes for a forward of so many rows [C, T, H, W], a generous bound.

    `token_times` is for rows with a timestep a token.
    """
    config = transformer.module.config
    width = int(config.num_attention_heads * config.attention_head_dim)
    tokens = latent_tokens(latent_shape) + text_length
    tensors = _TENSORS_A_TOKEN + (_TENSORS_A_TOKEN_TIME if token_times else 0)
    return 4 * rows * tokens * (tensors * width + 2 * int(config.ffn_dim))


def first_step_rows(latent_shape: tuple[int, ...], branches: int, rows_max: int | None) -> int:
    """Rows that a step holds at once: more where it measures its shape [C, T, H, W] first."""
    if rows_max is not None:
        return branches
    return max(branches, rows_limit(latent_tokens(latent_shape)))
