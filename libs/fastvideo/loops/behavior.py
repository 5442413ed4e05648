"""What a loop keeps of its steps when a request captures behaviour, and what it hands on.

A loop that captures keeps the latents of every step and how likely each was; at its end it hands
on a `Captured` as the value `trajectory`, which the node that writes stores and records. Nothing
of it is kept for a request that does not ask, and no bit of the result depends on it.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Protocol, Self, runtime_checkable

import torch

from fastvideo.errors import ContractViolation
from fastvideo.loops.contract import LoopKernel, Values
from fastvideo.loops.state_encoding import tensor_bytes
from fastvideo.requests.types import Capture, RequestSpec

TRAJECTORY: Final = "trajectory"
"""The value that a capturing loop hands on, and the output that it becomes."""

CACHE_LOOKUPS: Final = "cache_lookups"
"""The value with the look-ups that a capturing loop's results rest on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """The steps so far."""

    # Each [1, C, T, H, W] float32: the noise, then the latents after each step.
    latents: tuple[torch.Tensor, ...]
    # One for each step that added noise.
    log_probs: tuple[float, ...] = ()

    def with_step(self, latents: torch.Tensor, log_prob: float | None) -> "Trajectory":
        """One step more."""
        added = () if log_prob is None else (log_prob,)
        return replace(self, latents=(*self.latents, latents), log_probs=(*self.log_probs, *added))


def captures(request: RequestSpec) -> bool:
    """Whether a request captures behaviour."""
    return request.outputs.capture is Capture.BEHAVIOR


def trajectory_of(request: RequestSpec, latents: torch.Tensor) -> Trajectory | None:
    """The beginning of a trajectory; None for a request that captures nothing."""
    return Trajectory(latents=(latents,)) if captures(request) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """A whole trajectory and all that it depended on, as it was when it was sampled."""

    node_id: str
    loop_id: str
    attempt: int
    sample_index: int
    seeds: tuple[int, ...]
    sampler: str
    noise_level: float
    # [steps + 1] and [steps], in step order.
    sigmas: tuple[float, ...]
    timesteps: tuple[float, ...]
    # steps + 1, each [1, C, T, H, W] float32.
    latents: tuple[torch.Tensor, ...]
    log_probs: tuple[float, ...]
    # What the loop handed on, [1, C, T, H, W].
    final: torch.Tensor
    guidance: Mapping[str, str]
    model_id: str
    weights_version: str
    adapter_versions: Mapping[str, str]
    precision: str
    parallel_plan_hash: str
    attention_backend: str
    deterministic_flags: Mapping[str, bool]
    fingerprint: Mapping[str, str]

    def as_values(self) -> Values:
        """Tensors and plain data, as they can be saved and moved."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """What `as_values` gave. Raises ContractViolation for anything else."""
        try:
            return cls(**values)
        except TypeError as error:
            raise ContractViolation(f"no captured trajectory: {error}") from error

    @property
    def digest(self) -> str:
        """SHA-256 of the latents' float32 bytes in step order, hexadecimal."""
        digest = hashlib.sha256()
        for latents in self.latents:
            digest.update(tensor_bytes(latents))
        return digest.hexdigest()


@runtime_checkable
class RetracingKernel(LoopKernel[Any, Any], Protocol):
    """A loop kernel that can say again how likely the steps of a recorded trajectory were.

    It computes them by `run_step`, as it did when it sampled. Its states have `latents`, and so
    have the outputs of its steps.
    """

    def retraced(self, state: Any, step: int, latents: torch.Tensor) -> Any:
        """The state before a step of a recorded trajectory, its latents [1, C, T, H, W] given.

        `state` is the one after the step before, or, where `retraces_apart`, after any. Raises
        ContractViolation for a step that cannot follow.
        """
        ...

    def retraces_apart(self, state: Any) -> bool:
        """Whether a step needs nothing of those before it but the recorded latents."""
        ...

    def log_prob(self, state: Any, output: Any, stepped: torch.Tensor) -> float | None:
        """The log-density of going from a state to recorded latents; None where none was drawn."""
        ...


def deterministic_flags() -> dict[str, bool]:
    """The switches of torch that decide whether equal work gives equal bits."""
    return {
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn_deterministic": bool(torch.backends.cudnn.deterministic),
        "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
        "tf32_matmul": bool(torch.backends.cuda.matmul.allow_tf32),
    }
