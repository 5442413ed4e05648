"""What a policy did, captured when it did it.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

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
    # Artifact ids of stored latents.
    latents: tuple[str, ...] = ()
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
