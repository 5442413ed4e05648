"""What a policy did, captured when it did it.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fastvideo.ids import derived_id
from fastvideo.model.caching import CacheLookup
from fastvideo.model.specs import ParallelPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class BehaviorRecord:
    """Enough to prove or debug what a policy did, captured when it did it."""

    request_id: str = ""
    session_id: str | None = None
    model_id: str = ""
    policy_version: str = ""
    weights_version: str = ""
    adapter_versions: Mapping[str, str] = field(default_factory=dict)
    program_id: str = ""
    loop_id: str = ""
    seeds: tuple[int, ...] = ()
    # Sigmas in step order.
    scheduler_trajectory: tuple[float, ...] = ()
    timesteps: tuple[float, ...] = ()
    # Artifact ids of stored latents: the trajectory, then the final ones where they are stored.
    latents: tuple[str, ...] = ()
    # One for each step that added noise, in step order; empty of a deterministic sampler.
    logprobs: tuple[float, ...] = ()
    action_tokens: tuple[int, ...] = ()
    sampled_tokens: tuple[int, ...] = ()
    guidance_settings: Mapping[str, str] = field(default_factory=dict)
    reward_inputs: Mapping[str, str] = field(default_factory=dict)
    reward_outputs: Mapping[str, float] = field(default_factory=dict)
    cache_assumptions: tuple[CacheLookup, ...] = ()
    precision: str = ""
    parallel_plan: ParallelPlan
    attention_backend: str = ""
    deterministic_flags: Mapping[str, bool] = field(default_factory=dict)
    artifact_references: tuple[str, ...] = ()
    # Of the sample within its request.
    sample_index: int = 0
    attempt: int = 0
    # Digest of the whole trajectory's latents, [steps + 1, ...] float32, hexadecimal.
    trajectory_digest: str = ""
    sampler: str = ""
    noise_level: float = 0.0
    # Of the machine that sampled.
    fingerprint: Mapping[str, str] = field(default_factory=dict)


BEHAVIOR_PREFIX: Final = "bhv_"
"""Begins the ids of records."""


def behavior_id_of(request_id: str, node_id: str, sample_index: int) -> str:
    """The id of a sample's record: the same in every attempt."""
    return derived_id("bhv", request_id, node_id, str(sample_index))


def policy_version_of(weights_version: str, adapter_versions: Mapping[str, str]) -> str:
    """What a policy's decisions follow from: weights, and the adapters that are on.

    The weights' version alone without adapters; else followed by "+name@version" of each.
    """
    adapters = sorted(adapter_versions.items())
    return weights_version + "".join(f"+{name}@{version}" for name, version in adapters)
