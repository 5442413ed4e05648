import pytest
import torch

from fastvideo.loops.guidance import (
    ClassifierFree,
    NoGuidance,
    branch_rows,
    policy_for,
    predict,
)

SHAPE = (1, 2, 1, 2, 2)


@pytest.mark.row("GUI-01")
@pytest.mark.parametrize("scale", [1.5, 3.0, 7.0])
def test_classifier_free_guidance_follows_the_formula(scale: float) -> None:
    conditional, unconditional = torch.rand(SHAPE), torch.rand(SHAPE)
    combined = ClassifierFree().combine([conditional, unconditional], scale)
    expected = unconditional + scale * (conditional - unconditional)
    assert torch.equal(combined, expected)
    assert ClassifierFree().space == "velocity"


@pytest.mark.parametrize(
    ("scale", "name"), [(1.0, "none"), (0.5, "none"), (1.01, "classifier_free")]
)
def test_guidance_is_off_up_to_one(scale: float, name: str) -> None:
    assert policy_for(scale).name == name


def test_no_guidance_takes_its_one_branch_as_it_is() -> None:
    prediction = torch.rand(SHAPE)
    assert NoGuidance().combine([prediction], 1.0) is prediction


@pytest.mark.row("GUI-02")
@pytest.mark.parametrize(("rows_max", "forwards"), [(1, 6), (2, 3), (4, 2), (32, 1)])
def test_any_split_of_the_rows_gives_the_same_predictions(rows_max: int, forwards: int) -> None:
    rows = [
        row
        for index in range(3)
        for row in branch_rows(
            torch.full(SHAPE, float(index)),
            torch.tensor([index]),
            torch.arange(12.0).view(2, 3, 2) + index,
        )
    ]
    sizes = []

    def forward(
        samples: torch.Tensor, timesteps: torch.Tensor, features: torch.Tensor
    ) -> torch.Tensor:
        sizes.append(len(samples))
        return samples + timesteps.view(-1, 1, 1, 1, 1) + features.sum((1, 2)).view(-1, 1, 1, 1, 1)

    predictions, count = predict(forward, rows, rows_max)
    alone, _ = predict(forward, rows, 1)
    assert count == forwards
    assert max(sizes[:count]) <= rows_max
    assert all(torch.equal(left, right) for left, right in zip(predictions, alone, strict=True))
