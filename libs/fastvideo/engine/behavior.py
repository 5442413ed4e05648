"""Records of behaviour, made where a captured trajectory is stored."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from fastvideo.loops.behavior import CACHE_LOOKUPS, TRAJECTORY, Captured
from fastvideo.loops.contract import Values
from fastvideo.media.tensors import encode_tensors
from fastvideo.model.caching import CacheClass, CacheLookup, CacheOutcome
from fastvideo.model.specs import ParallelPlan
from fastvideo.requests.behavior import BehaviorRecord, behavior_id_of, policy_version_of
from fastvideo.requests.types import RequestSpec, TextPart
from fastvideo.scheduling.traces import BehaviorRecorded

VALUES: Final = (TRAJECTORY, CACHE_LOOKUPS)
"""The values that a program hands to what records."""


TEXT_DIGEST: Final = "_sha256"
"""Ends the names of digests that stand for texts."""


def trajectory_file(captured: Captured) -> bytes:
    """A trajectory as safetensors; equal samples have equal bytes, whoever made them.

    `latents` [steps + 1, C, T, H, W] float32, the noise first; `final` [1, C, T, H, W], as the
    loop handed it on; `sigmas` [steps + 1], `timesteps` [steps] and `log_probs` float64.
    """
    tensors = {
        "latents": torch.cat([latents.to(torch.float32) for latents in captured.latents]),
        "final": captured.final.to(torch.float32),
        "sigmas": torch.tensor(captured.sigmas, dtype=torch.float64),
        "timesteps": torch.tensor(captured.timesteps, dtype=torch.float64),
        "log_probs": torch.tensor(captured.log_probs, dtype=torch.float64),
    }
    about = {
        "model_id": captured.model_id,
        "weights_version": captured.weights_version,
        "node_id": captured.node_id,
        "loop_id": captured.loop_id,
        "seeds": ",".join(str(seed) for seed in captured.seeds),
        "sampler": captured.sampler,
        "noise_level": repr(captured.noise_level),
    }
    return encode_tensors(tensors, about)


def recorded(
    request: RequestSpec, values: Values, trajectory_id: str, stored: Mapping[str, str]
) -> BehaviorRecorded:
    """The record of a stored trajectory; `stored` are the request's other artifacts by output.

    No text of the request is in it: digests of texts stand for them.
    """
    captured = Captured.of(values[TRAJECTORY])
    scores: Mapping[str, float] = values.get("scores", {})
    record = BehaviorRecord(
        request_id=request.request_id,
        session_id=request.session_id or None,
        model_id=captured.model_id,
        policy_version=policy_version_of(captured.weights_version, captured.adapter_versions),
        weights_version=captured.weights_version,
        adapter_versions=captured.adapter_versions,
        program_id=request.program_id,
        loop_id=captured.loop_id,
        seeds=captured.seeds,
        scheduler_trajectory=captured.sigmas,
        timesteps=captured.timesteps,
        latents=(trajectory_id, *(stored[name] for name in ("latents",) if name in stored)),
        logprobs=captured.log_probs,
        guidance_settings=captured.guidance,
        reward_inputs={**input_digests(request), **stored},
        reward_outputs={name: float(score) for name, score in scores.items()},
        cache_assumptions=_lookups(values.get(CACHE_LOOKUPS, ())),
        precision=captured.precision,
        # One device: a plan of several has a digest, and no axes are known here yet.
        parallel_plan=ParallelPlan(),
        attention_backend=captured.attention_backend,
        deterministic_flags=captured.deterministic_flags,
        artifact_references=(trajectory_id, *stored.values()),
        sample_index=captured.sample_index,
        attempt=captured.attempt,
        trajectory_digest=captured.digest,
        sampler=captured.sampler,
        noise_level=captured.noise_level,
        fingerprint=captured.fingerprint,
    )
    behavior_id = behavior_id_of(request.request_id, captured.node_id, captured.sample_index)
    return BehaviorRecorded(behavior_id=behavior_id, record=record)


def input_digests(request: RequestSpec) -> dict[str, str]:
    """What a reward may be computed of: the digest of each text, the id of each stored part."""
    inputs = {}
    for part in request.inputs:
        if isinstance(part, TextPart):
            if part.text:
                digest = hashlib.sha256(part.text.encode("utf-8")).hexdigest()
                inputs[f"{part.role}{TEXT_DIGEST}"] = digest
        elif artifact_id := getattr(part, "artifact_id", ""):
            inputs[part.role] = artifact_id
    return inputs


def _lookups(saved: Sequence[Any]) -> tuple[CacheLookup, ...]:
    """Look-ups as a loop handed them on, or as a snapshot of that gives them back."""
    return tuple(
        lookup
        if isinstance(lookup, CacheLookup)
        else CacheLookup(
            cache_class=CacheClass(lookup["cache_class"]),
            key_digest=lookup["key_digest"],
            outcome=CacheOutcome(lookup["outcome"]),
            size_bytes=lookup["size_bytes"],
            value_digest=lookup["value_digest"],
        )
        for lookup in saved
    )
