"""Flow-SDE: sampling of a flow-matching model with noise, and how likely each step was.

The stochastic differential equation of Flow-GRPO (Liu et al. 2025, https://arxiv.org/abs/2505.05470,
equations 7 to 9; public implementation: github.com/yifan123/flow_grpo,
`sd3_sde_with_logprob.py`). It has at every time the marginals of the ordinary one, with the
velocity v(x, t) and x_t = (1 - t) x_0 + t x_1:

    dx = [v + s^2 / (2 t) (x + (1 - t) v)] dt + s dw,    s = a sqrt(t / (1 - t))

One step of Euler-Maruyama from t to t' < t, with dt = t' - t, takes a sample of a normal
distribution, element by element:

    mean = x (1 + s^2 / (2 t) dt) + v (1 + s^2 (1 - t) / (2 t)) dt
    std  = s sqrt(-dt)

`a` is the noise level; at 0 the step is Euler's, bit for bit. What is chosen at the ends:

- Near t = 1, s grows beyond bounds. As in the public implementation, which puts the schedule's
  second time in the place of t = 1, 1 - t in s is taken to be no less than at the second time.
- The last step, to t = 0, adds no noise: what it added would be left in the result. So it has no
  log-probability; the public implementation leaves it out of its training.

A log-probability is the mean over the elements, as there, not the sum: figures of different
sizes compare, and `exp(new - old)` is the ratio that Flow-GRPO clips.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch

from fastvideo.loops.samplers.schedule import FlowSchedule

FLOW_SDE: Final = "flow_sde"
"""The sampler's name, as cards and requests use it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSDEState:
    """What a step hands to the next: its position; and what the noise is drawn of."""

    step_index: int
    noise_level: float
    seed: int
    # Of the sample within its request.
    sample_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """The distribution of a step's result: normal, with one deviation for all elements."""

    mean: torch.Tensor
    # 0 when the step adds no noise.
    std: float


class FlowSDE:
    """Euler-Maruyama over flow matching's velocity. It keeps nothing."""

    name = FLOW_SDE

    def start(self, noise_level: float, seed: int, sample_index: int = 0) -> FlowSDEState:
        """The state before the first step."""
        return FlowSDEState(
            step_index=0, noise_level=noise_level, seed=seed, sample_index=sample_index
        )

    def step(
        self,
        schedule: FlowSchedule,
        state: FlowSDEState,
        velocity: torch.Tensor,
        sample: torch.Tensor,
        noise: torch.Tensor | None,
    ) -> tuple[FlowSDEState, torch.Tensor]:
        """The state and the sample after one step; nothing that is passed in changes.

        `velocity`, `sample` and `noise` are [B, C, T, H, W] float32; `noise` is what `noise_of`
        drew, None for a step without.
        """
        transition = self.transition(schedule, state, velocity, sample)
        after = replace(state, step_index=state.step_index + 1)
        if noise is None or transition.std == 0.0:
            return after, transition.mean
        return after, transition.mean + transition.std * noise

    def transition(
        self,
        schedule: FlowSchedule,
        state: FlowSDEState,
        velocity: torch.Tensor,
        sample: torch.Tensor,
    ) -> Transition:
        """Where a step may lead: the formula at the head of this module."""
        time, time_next, deviation = _times(schedule, state)
        dt = time_next - time
        # Computed in double precision once a step, so that the tensors are walked through once.
        pull = deviation * deviation / (2.0 * time)
        mean = sample * (1.0 + pull * dt) + velocity * ((1.0 + pull * (1.0 - time)) * dt)
        return Transition(mean=mean, std=deviation * math.sqrt(-dt))

    def log_prob(
        self,
        schedule: FlowSchedule,
        state: FlowSDEState,
        velocity: torch.Tensor,
        sample: torch.Tensor,
        stepped: torch.Tensor,
        free: slice = slice(None),
    ) -> torch.Tensor | None:
        """The log-density of going from `sample` to `stepped`, the mean over the elements.

        One number, float64, that gradients flow through to the velocity. Of the frames `free`
        alone, where something else decides on the others; 0 where none is free. None for a step
        that adds no noise. Both sampling and recomputation call this.
        """
        transition = self.transition(schedule, state, velocity, sample)
        if transition.std == 0.0:
            return None
        off = (stepped - transition.mean)[:, :, free].to(torch.float64)
        if not off.numel():
            return torch.zeros((), dtype=torch.float64)
        squares = torch.mean(off * off)
        variance = transition.std * transition.std
        return -squares / (2.0 * variance) - math.log(transition.std) - 0.5 * math.log(2 * math.pi)


def noise_of(
    schedule: FlowSchedule, state: FlowSDEState, like: torch.Tensor
) -> torch.Tensor | None:
    """A step's noise, of the form of `like`; None for a step that adds none.

    Drawn of (seed, sample, step) alone by a counter-based generator (Philox), so that neither
    what ran beside it, nor where, nor a restart changes a bit.
    """
    if _times(schedule, state)[2] == 0.0:
        return None
    bits = np.random.Philox(
        key=[state.seed, state.sample_index], counter=[0, 0, 0, state.step_index]
    )
    drawn = np.random.Generator(bits).standard_normal(tuple(like.shape), dtype=np.float32)
    return torch.from_numpy(drawn).to(like.device)


def _times(schedule: FlowSchedule, state: FlowSDEState) -> tuple[float, float, float]:
    """This time, the next one, and s at this one: 0 where the step adds no noise."""
    index = state.step_index
    time, time_next = (float(sigma) for sigma in schedule.sigmas[index : index + 2])
    if index == schedule.steps - 1:
        return time, time_next, 0.0
    second = float(schedule.sigmas[1])
    return time, time_next, state.noise_level * math.sqrt(time / (1.0 - min(time, second)))
