"""The noise levels that a request's steps go through, whatever the sampler."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSchedule:
    """The noise levels of one request; fixed by its steps and flow shift."""

    steps: int
    flow_shift: float
    # [steps + 1] float32, falling from just below 1 to 0.
    sigmas: torch.Tensor
    # [steps] int64, what the model is told.
    timesteps: torch.Tensor
