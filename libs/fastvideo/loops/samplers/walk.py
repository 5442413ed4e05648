"""The sampler that a request asks for, over the same schedule: where it starts, how it steps.

Generation and recomputation both come through here, so what is recomputed is what was done.
"""

import torch

from fastvideo.loops.samplers.flow_sde import FLOW_SDE, FlowSDE, FlowSDEState, noise_of
from fastvideo.loops.samplers.schedule import FlowSchedule
from fastvideo.loops.samplers.unipc import UniPC, UniPCState
from fastvideo.requests.types import SamplingParams

SamplerState = UniPCState | FlowSDEState
"""What a step hands to the next."""

_FLOW_SDE = FlowSDE()


def start(own: UniPC, sampling: SamplingParams) -> SamplerState:
    """The state before the first step; `own` is the card's sampler."""
    if sampling.sampler == FLOW_SDE:
        return _FLOW_SDE.start(sampling.noise_level, sampling.seed)
    return own.start()


def sampler_name(own: UniPC, sampling: SamplingParams) -> str:
    """The name of the sampler that a request runs with."""
    return sampling.sampler or own.name


def step(
    own: UniPC,
    schedule: FlowSchedule,
    state: SamplerState,
    velocity: torch.Tensor,
    sample: torch.Tensor,
) -> tuple[SamplerState, torch.Tensor]:
    """The state and the sample after one step, its noise drawn of the state."""
    if isinstance(state, FlowSDEState):
        noise = noise_of(schedule, state, sample)
        return _FLOW_SDE.step(schedule, state, velocity, sample, noise)
    return own.step(schedule, state, velocity, sample)


def log_prob(
    schedule: FlowSchedule,
    state: SamplerState,
    velocity: torch.Tensor,
    sample: torch.Tensor,
    stepped: torch.Tensor,
    free: slice = slice(None),
) -> torch.Tensor | None:
    """The log-density of a step, the mean over elements, float64; None where nothing was drawn.

    `state` is the one before the step. A deterministic sampler draws nothing.
    """
    if isinstance(state, FlowSDEState):
        return _FLOW_SDE.log_prob(schedule, state, velocity, sample, stepped, free)
    return None
