"""The factory of the Wan family: components, kernels, and what is measured of the machine.

The programs themselves are data, in programs.yaml.
"""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from fastvideo.loops.contract import LoopKernel
from fastvideo.model.specs import ModelSpec
from fastvideo.models.wan import components as wan_components
from fastvideo.models.wan.geometry import latent_shape, shape_label
from fastvideo.models.wan.loops.decode import DecodeKernel
from fastvideo.models.wan.loops.denoise import DenoiseKernel
from fastvideo.models.wan.loops.encode import EncodeKernel
from fastvideo.models.wan.loops.latent_score import LatentScoreKernel
from fastvideo.requests.types import SamplingParams


def load_components(card: ModelSpec, folder: Path) -> dict[str, Any]:
    """The card's components from a verified checkpoint folder.

    Raises CheckpointError naming the component and the keys that do not fit.
    """
    return wan_components.load_components(card, folder)


def make_kernels(card: ModelSpec) -> dict[str, LoopKernel[Any, Any]]:
    """The kernels of the card's loops by loop id; "write" is no model's and not among them."""
    return {
        "encode": EncodeKernel(card.loops["encode"]),
        "denoise": DenoiseKernel(card.loops["denoise"]),
        "decode": DecodeKernel(card.loops["decode"]),
        "latent_score": LatentScoreKernel(card.loops["latent_score"]),
    }


def fingerprint(card: ModelSpec, components: Mapping[str, Any]) -> dict[str, str]:
    """Versions, processor, and how many rows may share a forward at the card's default size."""
    transformer: wan_components.Transformer = components["transformer"]
    defaults = SamplingParams(
        width=int(card.sampling["width"].default_value),
        height=int(card.sampling["height"].default_value),
        num_frames=int(card.sampling["num_frames"].default_value),
    )
    shape = latent_shape(card, defaults)
    text_length = card.processors["text"].max_tokens
    rows = transformer.measured_rows_max(shape, text_length)
    return {
        "torch": torch.__version__,
        "diffusers": version("diffusers"),
        "transformers": version("transformers"),
        "device": str(transformer.module.device),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        f"exact_rows/{shape_label(shape)}/{text_length}": str(rows),
    }
