"""Where two trajectories part."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """How far two sequences of tensors are apart."""

    # Largest absolute difference by step.
    differences: tuple[float, ...]
    # The first step whose difference is above the tolerance; None when there is none.
    first_step: int | None

    @property
    def max_abs_difference(self) -> float:
        """The largest difference of all steps."""
        return max(self.differences, default=0.0)


def compare_trajectories(
    ours: Sequence[torch.Tensor], reference: Sequence[torch.Tensor], tolerance: float = 0.0
) -> Divergence:
    """Compare step by step. NaN, another shape or a missing step is infinitely far."""
    steps = max(len(ours), len(reference))
    differences = tuple(_difference(ours, reference, step) for step in range(steps))
    beyond = (step for step, difference in enumerate(differences) if not difference <= tolerance)
    return Divergence(differences=differences, first_step=next(beyond, None))


def max_abs_difference(ours: torch.Tensor, reference: torch.Tensor) -> float:
    """The largest absolute difference; infinite for NaN or another shape."""
    if ours.shape != reference.shape:
        return float("inf")
    apart = (ours.double() - reference.double()).abs().max().item() if ours.numel() else 0.0
    return float("inf") if apart != apart else float(apart)


def _difference(
    ours: Sequence[torch.Tensor], reference: Sequence[torch.Tensor], step: int
) -> float:
    if step >= len(ours) or step >= len(reference):
        return float("inf")
    return max_abs_difference(ours[step], reference[step])
