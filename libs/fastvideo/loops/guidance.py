"""Guidance policies: which branches a prediction has and how they are combined.

A policy gives the rows of one request; `predict` runs the rows of any requests, several a
forward where the machine computes them alike, one a forward elsewhere. So two forwards or one
is a matter of dispatch, and the formula is written once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

Forward = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(samples [B, C, T, H, W], timesteps [B], features [B, L, D]) -> velocities like samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a forward."""

    # [1, C, T, H, W]
    sample: torch.Tensor
    # [1] int64
    timestep: torch.Tensor
    # [1, L, D]
    features: torch.Tensor


class GuidancePolicy(Protocol):
    """Branches, and the formula that combines their predictions."""

    @property
    def name(self) -> str:
        """The policy's name, as cards and keys use it."""
        ...

    @property
    def space(self) -> str:
        """The space that predictions are combined in: "velocity", "noise" or "x0"."""
        ...

    @property
    def branches(self) -> tuple[str, ...]:
        """Branch names, in the order of the features' rows."""
        ...

    def combine(self, predictions: Sequence[torch.Tensor], scale: float) -> torch.Tensor:
        """One prediction of those of the branches, in their order."""
        ...


@dataclass(frozen=True, slots=True)
class NoGuidance:
    """One branch, taken as it is."""

    name: str = "none"
    space: str = "velocity"
    branches: tuple[str, ...] = ("conditional",)

    def combine(self, predictions: Sequence[torch.Tensor], scale: float) -> torch.Tensor:
        """The single prediction."""
        return predictions[0]


@dataclass(frozen=True, slots=True)
class ClassifierFree:
    """Classifier-free guidance, https://arxiv.org/abs/2207.12598.

    combined = unconditional + scale * (conditional - unconditional)
    """

    name: str = "classifier_free"
    space: str = "velocity"
    branches: tuple[str, ...] = ("conditional", "unconditional")

    def combine(self, predictions: Sequence[torch.Tensor], scale: float) -> torch.Tensor:
        """The formula, in the order of operations of `diffusers.WanPipeline`."""
        conditional, unconditional = predictions
        return unconditional + scale * (conditional - unconditional)


def policy_for(scale: float) -> GuidancePolicy:
    """The policy of a guidance scale: none up to 1, as in `diffusers.WanPipeline`."""
    return ClassifierFree() if scale > 1.0 else NoGuidance()


def branch_rows(
    sample: torch.Tensor, timestep: torch.Tensor, features: torch.Tensor
) -> tuple[Row, ...]:
    """One row a branch: sample [1, C, T, H, W], timestep [1], features [branches, L, D]."""
    return tuple(
        Row(sample=sample, timestep=timestep, features=branch)
        for branch in torch.split(features, 1)
    )


def predict(forward: Forward, rows: Sequence[Row], rows_max: int) -> tuple[list[torch.Tensor], int]:
    """Each row's prediction [1, C, T, H, W], and how many forwards they took.

    No forward has more than `rows_max` rows.
    """
    predictions: list[torch.Tensor] = []
    forwards = 0
    for start in range(0, len(rows), rows_max):
        part = rows[start : start + rows_max]
        velocities = forward(
            torch.cat([row.sample for row in part]),
            torch.cat([row.timestep for row in part]),
            torch.cat([row.features for row in part]),
        )
        predictions.extend(torch.split(velocities, 1))
        forwards += 1
    return predictions, forwards
