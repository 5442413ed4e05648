"""Guidance with a gate: the second branch is left out while its part stands still.

Classifier-free guidance runs two branches a step; the difference of their predictions changes
slowly (Adaptive Guidance, https://arxiv.org/abs/2312.12487; FasterCache,
https://arxiv.org/abs/2410.19355). The gate keeps the last difference, the delta, and reuses it
while it is steady:

    combined = conditional + (scale - 1) * delta        delta = conditional - unconditional

What the gate knows belongs to one request and is named by the weights that it was computed with:
a delta of other weights is never used.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import cosine_similarity

from fastvideo.errors import ContractViolation


@dataclass(frozen=True, slots=True, kw_only=True)
class GateState:
    """One request's gate; each step gives a new one."""

    # Like a prediction, [1, C, T, H, W]; None before the first step.
    delta: torch.Tensor | None = None
    # Names the model and the weights that the delta is of.
    weights: str = ""
    # Steps that reused the delta since it was computed.
    age: int = 0
    # Steps that computed it.
    refreshes: int = 0
    # The last refresh found the delta as it was.
    steady: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveGate:
    """Which branches a step runs, and how they are combined, by the request's gate."""

    name: str = "adaptive_gate"
    space: str = "velocity"
    # Cosine of two deltas one after the other from which on the delta is steady.
    threshold: float = 0.9
    # The most steps that one delta serves after the step that computed it.
    reuses_max: int = 2

    def start(self) -> GateState:
        """A gate that has seen nothing."""
        return GateState()

    def branches_at(self, state: GateState, weights: str) -> tuple[str, ...]:
        """The branches of the next step, in the order of the features' rows."""
        if self._reuses(state, weights):
            return ("conditional",)
        return ("conditional", "unconditional")

    def combine(
        self, predictions: Sequence[torch.Tensor], scale: float, state: GateState, weights: str
    ) -> tuple[torch.Tensor, GateState]:
        """One prediction of those of the branches, and the request's gate after it.

        Raises ContractViolation when the predictions are not those of `branches_at`.
        """
        if len(predictions) != len(self.branches_at(state, weights)):
            raise ContractViolation(f"{len(predictions)} predictions", subject=self.name)
        conditional = predictions[0]
        if len(predictions) == 1:
            assert state.delta is not None
            delta = state.delta
            after = GateState(
                delta=delta,
                weights=weights,
                age=state.age + 1,
                refreshes=state.refreshes,
                steady=True,
            )
        else:
            delta = conditional - predictions[1]
            after = GateState(
                delta=delta,
                weights=weights,
                refreshes=state.refreshes + 1,
                steady=self._is_steady(state, weights, delta),
            )
        return conditional + (scale - 1.0) * delta, after

    def _reuses(self, state: GateState, weights: str) -> bool:
        known = state.delta is not None and state.weights == weights
        return known and state.steady and state.age < self.reuses_max

    def _is_steady(self, state: GateState, weights: str, delta: torch.Tensor) -> bool:
        if state.delta is None or state.weights != weights:
            return False
        cosine = cosine_similarity(state.delta.flatten(), delta.flatten(), dim=0)
        return bool(cosine >= self.threshold)
