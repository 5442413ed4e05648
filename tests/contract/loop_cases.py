"""One small case of every kernel that ships, each made of the one before."""

from dataclasses import replace
from functools import cache
from typing import Any

import torch

from fastvideo.clock import SystemClock
from fastvideo.engine.artifact_writer import ArtifactWriter
from fastvideo.engine.sink import LocalArtifacts
from fastvideo.loops.contract import LoopKernel
from fastvideo.loops.runner import run_loop
from fastvideo.loops.suite import LoopCase
from fastvideo.requests.types import OutputSpec
from tests.parity.wan import embedded_model, generation

LOOP_IDS = (
    "encode",
    "vae_encode",
    "denoise",
    "denoise_first_frame",
    "decode",
    "latent_score",
    "write",
)


def kernel_of(loop_id: str) -> LoopKernel[Any, Any]:
    """A kernel of the embedded model, or the writer of files into this process's memory."""
    if loop_id == "write":
        return ArtifactWriter(LocalArtifacts(SystemClock()), "worker-1", {"torch": "1"})
    return embedded_model().kernels[loop_id]


@cache
def case_of(loop_id: str) -> LoopCase:
    """A request, and the values that its loop starts from; the same in every process."""
    request = generation("r", prompt="the four is green", seed=11, steps=4)
    request = replace(request, outputs=OutputSpec(video=True, preview=True, sheet=True))
    pixels = torch.randint(
        0, 256, (40, 60, 3), generator=torch.Generator().manual_seed(5), dtype=torch.int64
    ).to(torch.uint8)
    before = {
        "encode": (),
        "vae_encode": (),
        "denoise": ("encode",),
        "denoise_first_frame": ("encode", "vae_encode"),
        "decode": ("denoise",),
        "latent_score": ("encode", "denoise"),
        "write": ("decode",),
    }[loop_id]
    inputs = {"image": pixels} if loop_id == "vae_encode" else {}
    for earlier in before:
        case = case_of(earlier)
        made = run_loop(kernel_of(earlier), case.request, case.inputs, embedded_model())
        inputs |= made.values
    return LoopCase(request=request, inputs=inputs)
