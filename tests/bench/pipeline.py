"""The peer: the bare upstream pipeline on the same checkpoint, in this process."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import WanPipeline

from fastvideo.deployment.catalog import Catalog
from fastvideo.media.video import encode_mp4

MODEL = "moving-digits"
TEXT_LENGTH = 32
FPS = 8


@dataclass(frozen=True)
class Job:
    """One generation, by its sampling values."""

    prompt: str = "a red three moving left"
    steps: int = 20
    guidance_scale: float = 3.0
    seed: int = 1


class BarePipeline:
    """`diffusers.WanPipeline`, one thread, as a careful user would call it."""

    def __init__(self) -> None:
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        folder = Catalog.load([MODEL], None).get(MODEL).checkpoint_path
        self._pipeline: Any = WanPipeline.from_pretrained(str(folder), dtype=torch.float32)
        self._pipeline.set_progress_bar_config(disable=True)

    def frames(self, job: Job) -> np.ndarray:
        """Frames `[T, H, W, 3]` in 0..1."""
        frames: np.ndarray = self._run(job, "np")[0]
        return frames

    def video(self, job: Job) -> bytes:
        """An mp4, encoded as the worker does."""
        return encode_mp4((self.frames(job) * 255).round().astype(np.uint8), FPS)

    def _run(self, job: Job, output_type: str) -> Any:
        return self._pipeline(
            prompt=job.prompt,
            num_inference_steps=job.steps,
            guidance_scale=job.guidance_scale,
            height=48,
            width=48,
            num_frames=9,
            max_sequence_length=TEXT_LENGTH,
            generator=torch.Generator().manual_seed(job.seed),
            output_type=output_type,
        ).frames


def write_video(folder: Path, data: bytes) -> None:
    """The last step of both sides: the file is there."""
    (folder / "video.mp4").write_bytes(data)
