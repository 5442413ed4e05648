"""The pocket checkpoint: every part with seeded weights, written in diffusers format."""

from pathlib import Path
from typing import Any

import torch
from diffusers import UniPCMultistepScheduler, WanTransformer3DModel
from transformers import (
    CLIPConfig,
    CLIPModel,
    DacConfig,
    DacModel,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
)

from fastvideo.model.manifest import build_manifest, write_manifest

CONTEXT_TOKENS = 64
"""Tokens of the language model's context."""

FEATURE_SIZE = 32
"""Width of a token's text features."""


def write_checkpoint(folder: Path, seed: int = 0) -> Path:
    """Write the checkpoint and its manifest; another seed gives other weights."""
    torch.manual_seed(seed)
    for name, part in _parts().items():
        part.save_pretrained(folder / name)
    write_manifest(folder, build_manifest(folder, source="seeded", revision=str(seed)))
    return folder


def _parts() -> dict[str, Any]:
    return {
        "reasoner": LlamaForCausalLM(_llama(64, 2)),
        "text_encoder": LlamaModel(_llama(FEATURE_SIZE, 1)),
        "transformer": WanTransformer3DModel(
            patch_size=(1, 2, 2),
            num_attention_heads=2,
            attention_head_dim=16,
            in_channels=4,
            out_channels=4,
            text_dim=FEATURE_SIZE,
            freq_dim=32,
            ffn_dim=64,
            num_layers=2,
            rope_max_seq_len=64,
        ),
        "scheduler": UniPCMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
        ),
        "codec": DacModel(
            DacConfig(
                encoder_hidden_size=8,
                downsampling_ratios=[2, 2],
                decoder_hidden_size=32,
                hidden_size=32,
                n_codebooks=1,
                codebook_size=64,
                codebook_dim=4,
                quantizer_dropout=0.0,
                sampling_rate=8000,
            )
        ),
        "scorer": CLIPModel(_clip()),
    }


def _llama(width: int, layers: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=256,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 16,
        num_key_value_heads=width // 32,
        max_position_embeddings=CONTEXT_TOKENS,
        bos_token_id=1,
        eos_token_id=0,
    )


def _clip() -> CLIPConfig:
    tower = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "projection_dim": 16,
    }
    text = {"vocab_size": 256, "max_position_embeddings": 32, "eos_token_id": 0, "bos_token_id": 1}
    return CLIPConfig(
        text_config={**tower, **text, "pad_token_id": 0},
        vision_config={**tower, "image_size": 16, "patch_size": 8},
        projection_dim=16,
    )
