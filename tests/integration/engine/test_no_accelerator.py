"""A machine without an accelerator: nothing asks for one, and the engine runs on the CPU."""

import json
import os
import subprocess
import sys

import pytest

HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ZE_AFFINITY_MASK": ""}
PROGRAM = """
import json, sys
import fastvideo, fastvideo.cli.main
imported = sorted({"torch", "diffusers", "transformers", "av"} & set(sys.modules))
with fastvideo.Engine() as engine:
    video = engine.generate("a red three", steps=1, seed=1)
import torch
devices = 0 if not torch.cuda.is_available() else torch.cuda.device_count()
print(json.dumps([imported, devices, list(video.frames.shape), video.latents_digest]))
"""


@pytest.mark.row("MDL-10")
def test_importing_loads_no_torch_and_without_a_device_the_cpu_computes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, **HIDDEN, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    imported, devices, shape, digest = json.loads(done.stdout)
    assert imported == []
    assert devices == 0
    assert shape == [9, 48, 48, 3]
    assert len(digest) == 64
