"""What the denoising loop says of a trajectory that it captured."""

from typing import TYPE_CHECKING

import torch

from fastvideo.loops.behavior import Captured, Trajectory, deterministic_flags
from fastvideo.loops.samplers import walk
from fastvideo.model.specs import LoopSpec
from fastvideo.models.resident import ResidentModel
from fastvideo.models.wan.components import Transformer

if TYPE_CHECKING:
    from fastvideo.models.wan.loops.denoise import DenoiseState


def captured_of(
    spec: LoopSpec,
    state: "DenoiseState",
    trajectory: Trajectory,
    final: torch.Tensor,
    instance: ResidentModel,
) -> Captured:
    """All that a whole trajectory depended on; `final` [1, C, T, H, W] is what is handed on."""
    sampling = state.request.sampling
    transformer: Transformer = instance.components["transformer"]
    return Captured(
        node_id=state.loop.node_id,
        loop_id=spec.loop_id,
        attempt=state.loop.attempt,
        sample_index=0,
        seeds=(sampling.seed,),
        sampler=walk.sampler_name(instance.components["scheduler"], sampling),
        noise_level=sampling.noise_level,
        sigmas=tuple(state.schedule.sigmas.tolist()),
        timesteps=tuple(float(timestep) for timestep in state.schedule.timesteps.tolist()),
        latents=trajectory.latents,
        log_probs=trajectory.log_probs,
        final=final,
        guidance={
            "policy": state.policy.name,
            "space": state.policy.space,
            "branches": ",".join(state.policy.branches),
            "scale": repr(sampling.guidance_scale),
            "flow_shift": repr(sampling.flow_shift),
        },
        model_id=instance.card.model_id,
        weights_version=instance.weights_version,
        adapter_versions=dict(instance.adapter_versions),
        precision=instance.precision,
        parallel_plan_hash=instance.parallel_plan_hash,
        attention_backend=transformer.attention_backend,
        deterministic_flags=deterministic_flags(),
        fingerprint=dict(instance.fingerprint),
    )
