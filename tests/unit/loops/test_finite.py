"""What is not finite is found, counted, and its component named."""

from dataclasses import dataclass
from types import MappingProxyType

import pytest
import torch

from fastvideo.loops.finite import NonFinite, find_non_finite


@dataclass
class Output:
    velocity: torch.Tensor
    latents: torch.Tensor


class Named:
    components_of = MappingProxyType({"velocity": "transformer", "latents": "scheduler"})


NAN, INF = float("nan"), float("inf")


def output(velocity: float = 0.0, latents: float = 0.0) -> Output:
    made = Output(torch.zeros(4), torch.zeros(4))
    made.velocity[1], made.latents[2] = velocity, latents
    return made


def test_finite_outputs_are_let_pass() -> None:
    assert find_non_finite(Named(), output()) is None
    assert find_non_finite(Named(), object()) is None


@pytest.mark.parametrize(("value", "nans", "infinities"), [(NAN, 1, 0), (INF, 0, 1), (-INF, 0, 1)])
def test_the_component_that_gave_it_is_named(value: float, nans: int, infinities: int) -> None:
    for wrong, component, field in (
        (output(velocity=value, latents=NAN), "transformer", "velocity"),
        (output(latents=value), "scheduler", "latents"),
    ):
        assert find_non_finite(Named(), wrong) == NonFinite(
            component=component, field=field, nans=nans, infinities=infinities, elements=4
        )


def test_large_numbers_whose_sum_overflows_are_numbers() -> None:
    large = Output(torch.full((8,), 3e38), torch.zeros(1))
    assert find_non_finite(Named(), large) is None


def test_opposite_infinities_are_found() -> None:
    wrong = Output(torch.tensor([INF, -INF]), torch.full((1,), NAN))
    found = find_non_finite(Named(), wrong)
    assert found is not None
    assert (found.nans, found.infinities) == (0, 2)


def test_a_kernel_that_names_nothing_has_its_latents_watched() -> None:
    assert find_non_finite(object(), output(velocity=NAN)) is None
    assert find_non_finite(object(), output(latents=NAN)) is not None
    assert find_non_finite(object(), torch.tensor([NAN])) is not None


def test_integers_are_always_finite() -> None:
    assert find_non_finite(Named(), Output(torch.ones(2, dtype=torch.int64), torch.ones(1))) is None
