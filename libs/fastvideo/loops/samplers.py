"""Samplers: one definition each, as pure steps over explicit state.

UniPC is the predictor-corrector of https://arxiv.org/abs/2302.04867 with the arithmetic of
`diffusers.UniPCMultistepScheduler`, which serves, rollouts and replays share: a step sets the
state on a scratch copy of the scheduler, steps it and takes the state back.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from diffusers import UniPCMultistepScheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class UniPCSchedule:
    """The noise levels of one request; fixed by its steps and flow shift."""

    steps: int
    flow_shift: float
    # [steps + 1] float32, falling from just below 1 to 0.
    sigmas: torch.Tensor
    # [steps] int64, what the model is told.
    timesteps: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class UniPCState:
    """What a step hands to the next: position, orders, and the history of predictions."""

    step_index: int = 0
    lower_order_nums: int = 0
    # Order of the last step; 0 before the first.
    this_order: int = 0
    # Denoised predictions, oldest first; None where the history is not yet filled.
    model_outputs: tuple[torch.Tensor | None, ...] = ()
    # The corrected sample before the last predictor; None before the first step.
    last_sample: torch.Tensor | None = None


class UniPC:
    """UniPC multistep over flow matching's velocity."""

    name = "unipc_multistep"

    def __init__(self, scheduler: UniPCMultistepScheduler) -> None:
        self._scheduler = scheduler
        self._order: int = scheduler.config.solver_order

    def schedule(self, steps: int, flow_shift: float) -> UniPCSchedule:
        """The noise levels of a request."""
        scheduler = UniPCMultistepScheduler.from_config(
            self._scheduler.config, flow_shift=flow_shift
        )
        scheduler.set_timesteps(steps)
        return UniPCSchedule(
            steps=steps,
            flow_shift=flow_shift,
            sigmas=scheduler.sigmas,
            timesteps=scheduler.timesteps,
        )

    def start(self) -> UniPCState:
        """The state before the first step."""
        return UniPCState(model_outputs=(None,) * self._order)

    def step(
        self,
        schedule: UniPCSchedule,
        state: UniPCState,
        velocity: torch.Tensor,
        sample: torch.Tensor,
    ) -> tuple[UniPCState, torch.Tensor]:
        """The state and the sample after one step; nothing that is passed in changes.

        `velocity` and `sample` are [B, C, T, H, W] float32.
        """
        scratch = self._scratch(schedule, state)
        timestep = schedule.timesteps[state.step_index]
        stepped: torch.Tensor = scratch.step(velocity, timestep, sample, return_dict=False)[0]
        after = UniPCState(
            step_index=state.step_index + 1,
            lower_order_nums=scratch.lower_order_nums,
            this_order=scratch.this_order,
            model_outputs=tuple(scratch.model_outputs),
            last_sample=scratch.last_sample,
        )
        return after, stepped

    def _scratch(self, schedule: UniPCSchedule, state: UniPCState) -> Any:
        scratch: Any = copy.copy(self._scheduler)
        scratch.sigmas = schedule.sigmas
        scratch.timesteps = schedule.timesteps
        scratch.num_inference_steps = schedule.steps
        scratch.model_outputs = list(state.model_outputs)
        scratch.timestep_list = [None] * self._order
        scratch.lower_order_nums = state.lower_order_nums
        scratch.this_order = state.this_order
        scratch.last_sample = state.last_sample
        scratch._begin_index = 0
        scratch._step_index = state.step_index
        return scratch
