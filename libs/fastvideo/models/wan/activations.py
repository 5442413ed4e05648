"""Bounds on the memory that a forward takes while it runs."""

from fastvideo.models.wan.components import Transformer, latent_tokens

# float32 tensors of a token's width that are alive at once in a block, with the feed-forward.
_TENSORS_A_TOKEN = 24


def transformer_activation_bytes(
    transformer: Transformer, latent_shape: tuple[int, ...], text_length: int, rows: int
) -> int:
    """Bytes for a forward of so many rows [C, T, H, W], a generous bound."""
    config = transformer.module.config
    width = int(config.num_attention_heads * config.attention_head_dim)
    tokens = latent_tokens(latent_shape) + text_length
    return 4 * rows * tokens * (_TENSORS_A_TOKEN * width + 2 * int(config.ffn_dim))
