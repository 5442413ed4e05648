"""The factory of the Wan family: components, kernels, and what is measured of the machine.

The programs themselves are data, in programs.yaml.
"""

from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any, Final

import torch

from fastvideo.loops.contract import LoopKernel
from fastvideo.model.specs import LoopSpec, ModelSpec
from fastvideo.models.wan import components as wan_components
from fastvideo.models.wan.geometry import default_sampling, latent_shape, shape_label
from fastvideo.models.wan.loops.decode import DecodeKernel
from fastvideo.models.wan.loops.denoise import DenoiseKernel
from fastvideo.models.wan.loops.encode import EncodeKernel
from fastvideo.models.wan.loops.latent_score import LatentScoreKernel
from fastvideo.models.wan.loops.vae_encode import VaeEncodeKernel

_KERNELS: Final[Mapping[str, Callable[[LoopSpec], LoopKernel[Any, Any]]]] = {
    "encode": EncodeKernel,
    "vae_encode": VaeEncodeKernel,
    "denoise": DenoiseKernel,
    "denoise_first_frame": DenoiseKernel,
    "decode": DecodeKernel,
    "latent_score": LatentScoreKernel,
}


def make_components(card: ModelSpec, loaded: Mapping[str, Any]) -> dict[str, Any]:
    """The card's components as its loops call them, of the upstream objects by id."""
    return wan_components.make_components(card, loaded)


def make_kernels(card: ModelSpec) -> dict[str, LoopKernel[Any, Any]]:
    """The kernels of the card's loops by loop id; "write" is no model's and not among them."""
    return {
        loop_id: make(card.loops[loop_id])
        for loop_id, make in _KERNELS.items()
        if loop_id in card.loops
    }


def fingerprint(card: ModelSpec, components: Mapping[str, Any]) -> dict[str, str]:
    """Versions, processor, and how many rows may share a forward at the card's default size."""
    transformer: wan_components.Transformer = components["transformer"]
    shape = latent_shape(card, default_sampling(card))
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
