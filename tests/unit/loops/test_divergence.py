import torch

from fastvideo.loops.divergence import compare_trajectories, max_abs_difference

INFINITE = float("inf")


def test_equal_trajectories_do_not_diverge() -> None:
    steps = [torch.ones(2), torch.zeros(2)]
    found = compare_trajectories(steps, [step.clone() for step in steps])
    assert found.first_step is None
    assert found.differences == (0.0, 0.0)
    assert found.max_abs_difference == 0.0


def test_the_first_step_beyond_the_tolerance_is_named() -> None:
    ours = [torch.tensor([0.0]), torch.tensor([0.5]), torch.tensor([2.0])]
    reference = [torch.tensor([0.0])] * 3
    assert compare_trajectories(ours, reference).first_step == 1
    assert compare_trajectories(ours, reference, tolerance=0.5).first_step == 2
    assert compare_trajectories(ours, reference, tolerance=2.0).first_step is None


def test_what_cannot_be_compared_is_infinitely_far() -> None:
    assert max_abs_difference(torch.tensor([float("nan")]), torch.zeros(1)) == INFINITE
    assert max_abs_difference(torch.zeros(1), torch.zeros(2)) == INFINITE
    assert compare_trajectories([torch.zeros(1)], [torch.zeros(1)] * 2).first_step == 1
    assert compare_trajectories([], []).max_abs_difference == 0.0
