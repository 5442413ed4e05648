from dataclasses import replace

import pytest
import torch

from fastvideo.engine.behavior import trajectory_file
from fastvideo.errors import ContractViolation
from fastvideo.loops.behavior import Captured, Trajectory, trajectory_of
from fastvideo.loops.snapshot_format import Saved, decode, encode
from fastvideo.loops.state_encoding import tensor_digest
from fastvideo.media.tensors import decode_tensors
from fastvideo.requests.types import (
    Capture,
    OutputSpec,
    RequestKind,
    RequestSpec,
    SamplingParams,
)


def latents(count: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(count)
    return tuple(torch.randn((1, 2, 1, 2, 2), generator=generator) for _ in range(count))


CAPTURED = Captured(
    node_id="denoise",
    loop_id="denoise",
    attempt=1,
    sample_index=0,
    seeds=(7,),
    sampler="flow_sde",
    noise_level=0.7,
    sigmas=(0.9, 0.5, 0.0),
    timesteps=(900.0, 500.0),
    latents=latents(3),
    log_probs=(-1.25,),
    final=latents(1)[0],
    guidance={"scale": "3.0"},
    model_id="m",
    weights_version="w1",
    adapter_versions={},
    precision="float32",
    parallel_plan_hash="",
    attention_backend="native",
    deterministic_flags={"tf32_matmul": False},
    fingerprint={"torch": "2"},
)


def request(capture: Capture | None) -> RequestSpec:
    return RequestSpec(
        kind=RequestKind.GENERATION,
        sampling=SamplingParams(),
        outputs=OutputSpec(capture=capture),
    )


def test_a_trajectory_begins_with_the_noise_of_requests_that_capture_alone() -> None:
    noise, first, second = latents(3)
    assert trajectory_of(request(None), noise) is None
    begun = trajectory_of(request(Capture.BEHAVIOR), noise)
    assert begun is not None
    whole = begun.with_step(first, -0.5).with_step(second, None)
    assert whole == Trajectory(latents=(noise, first, second), log_probs=(-0.5,))
    assert begun.latents == (noise,)


def test_what_is_captured_moves_with_a_snapshot() -> None:
    saved = Saved(
        kind="outputs",
        loop_id="denoise",
        schema="s",
        version=3,
        parts={"trajectory": CAPTURED.as_values()},
    )
    moved = Captured.of(decode(encode(saved)).parts["trajectory"])
    assert moved.digest == CAPTURED.digest
    plain = ("latents", "final")
    for name in Captured.__dataclass_fields__.keys() - set(plain):
        assert getattr(moved, name) == getattr(CAPTURED, name), name
    assert torch.equal(moved.final, CAPTURED.final)
    with pytest.raises(ContractViolation):
        Captured.of({"node_id": "denoise"})


def test_the_file_is_the_same_whichever_attempt_and_machine_made_it() -> None:
    data = trajectory_file(CAPTURED)
    elsewhere = replace(CAPTURED, attempt=2, fingerprint={"torch": "3"})
    assert trajectory_file(elsewhere) == data
    assert trajectory_file(replace(CAPTURED, log_probs=(-1.5,))) != data
    stored = decode_tensors(data)
    assert stored["latents"].shape == (3, 2, 1, 2, 2)
    assert tensor_digest(stored["latents"]) == CAPTURED.digest
    assert stored["log_probs"].tolist() == [-1.25]
