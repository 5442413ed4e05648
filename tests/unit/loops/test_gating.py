"""A gate leaves the second branch out while its part stands still, request by request."""

import pytest
import torch

from fastvideo.errors import ContractViolation
from fastvideo.loops.gating import AdaptiveGate, GateState
from fastvideo.loops.guidance import ClassifierFree

GATE = AdaptiveGate(threshold=0.9, reuses_max=2)
CONDITIONAL = torch.tensor([1.0, 2.0, 3.0])
UNCONDITIONAL = torch.tensor([0.5, 1.0, 2.0])


def steps(gate: AdaptiveGate, count: int, weights: str = "w") -> tuple[list[int], GateState]:
    """How many branches each step ran, the predictions always the same."""
    state, ran = gate.start(), []
    for _ in range(count):
        branches = gate.branches_at(state, weights)
        predictions = [CONDITIONAL, UNCONDITIONAL][: len(branches)]
        _, state = gate.combine(predictions, 3.0, state, weights)
        ran.append(len(branches))
    return ran, state


def test_a_steady_delta_is_reused_for_a_bounded_number_of_steps() -> None:
    ran, state = steps(GATE, 8)
    # Two refreshes find it steady, two steps reuse it, the next looks again.
    assert ran == [2, 2, 1, 1, 2, 1, 1, 2]
    assert state.refreshes == 4


def test_a_delta_that_turns_is_never_reused() -> None:
    state = GATE.start()
    for step in range(6):
        assert len(GATE.branches_at(state, "w")) == 2
        unconditional = CONDITIONAL - torch.tensor([1.0, -1.0, 0.0]).roll(step)
        _, state = GATE.combine([CONDITIONAL, unconditional], 3.0, state, "w")


def test_both_branches_give_classifier_free_guidance() -> None:
    combined, _ = GATE.combine([CONDITIONAL, UNCONDITIONAL], 3.0, GATE.start(), "w")
    plain = ClassifierFree().combine([CONDITIONAL, UNCONDITIONAL], 3.0)
    torch.testing.assert_close(combined, plain)


def test_a_reused_delta_stands_for_the_second_branch() -> None:
    _, state = steps(GATE, 2)
    combined, after = GATE.combine([CONDITIONAL + 1.0], 3.0, state, "w")
    expected = ClassifierFree().combine([CONDITIONAL + 1.0, UNCONDITIONAL + 1.0], 3.0)
    torch.testing.assert_close(combined, expected)
    assert (after.age, after.refreshes) == (1, 2)


def test_a_delta_of_other_weights_is_not_reused() -> None:
    _, state = steps(GATE, 2)
    assert len(GATE.branches_at(state, "w")) == 1
    assert len(GATE.branches_at(state, "newer")) == 2
    _, after = GATE.combine([CONDITIONAL, UNCONDITIONAL], 3.0, state, "newer")
    # What it was steady against is gone with the weights.
    assert len(GATE.branches_at(after, "newer")) == 2


def test_predictions_of_other_branches_are_refused() -> None:
    with pytest.raises(ContractViolation):
        GATE.combine([CONDITIONAL], 3.0, GATE.start(), "w")
