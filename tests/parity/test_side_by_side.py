"""Batches that compute on several threads at once give the bits that they give alone."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import torch

from fastvideo.loops.runner import run_loop
from fastvideo.requests.types import RequestSpec
from tests.parity.wan import embedded_model, generation

REQUESTS = tuple(
    generation(f"r{seed}", prompt=prompt, steps=steps, seed=seed, guidance_scale=guidance)
    for seed, (prompt, steps, guidance) in enumerate(
        [
            ("a red three moving left", 4, 3.0),
            ("a blue nine moving up", 3, 1.0),
            ("a green one moving right", 4, 5.0),
            ("a yellow seven moving down", 2, 3.0),
        ]
    )
)


def digests(request: RequestSpec) -> Mapping[str, str]:
    """Of the latents and the frames."""
    torch.set_num_threads(1)
    model = embedded_model()
    encoded = run_loop(model.kernels["encode"], request, {}, model)
    denoised = run_loop(model.kernels["denoise"], request, encoded.values, model)
    decoded = run_loop(model.kernels["decode"], request, denoised.values, model)
    return {**denoised.digests, **decoded.digests}


def test_requests_on_threads_beside_each_other_have_the_digests_of_requests_alone() -> None:
    embedded_model()
    with ThreadPoolExecutor(2) as threads:
        together = list(threads.map(digests, REQUESTS * 2))
    assert together == [digests(request) for request in REQUESTS] * 2
