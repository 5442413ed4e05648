"""Tolerances a tap, rungs in order."""

from collections.abc import Callable, Iterable

import pytest

from fastvideo.model.rungs import TapParity, climb, tolerance_of
from fastvideo.model.specs import ParityTestSpec


def allows(name: str, allowed: float, rung: str = "C0") -> ParityTestSpec:
    return ParityTestSpec(name=name, rung=rung, max_abs_difference=allowed)


TESTS = (
    allows("transformer", 0.1),
    allows("transformer/blocks.*", 0.2),
    allows("transformer/blocks.1.*", 0.3),
    allows("transformer/blocks.1.norm", 0.4),
    allows("latents", 0.5, "C1"),
)


@pytest.mark.row("LAD-07")
@pytest.mark.parametrize(
    ("tap", "rung", "allowed"),
    [
        ("transformer", "C0", 0.1),
        ("transformer/proj_out", "C0", 0.1),
        ("transformer/blocks.0.norm", "C0", 0.2),
        ("transformer/blocks.1.ffn", "C0", 0.3),
        ("transformer/blocks.1.norm", "C0", 0.4),
        ("latents", "C1", 0.5),
        ("latents", "C0", 0.0),
        ("vae", "C0", 0.0),
    ],
)
def test_the_most_particular_test_decides(tap: str, rung: str, allowed: float) -> None:
    assert tolerance_of(TESTS, rung, tap) == allowed


def rung(
    ran: list[str], name: str, apart: float, tolerance: float = 0.0
) -> Callable[[], Iterable[TapParity]]:
    def run() -> Iterable[TapParity]:
        ran.append(name)
        yield TapParity(rung=name, tap=name, max_abs_difference=apart, tolerance=tolerance)

    return run


@pytest.mark.row("LAD-07")
def test_rungs_run_in_order_up_to_the_first_that_fails() -> None:
    ran: list[str] = []
    rungs = {
        name: rung(ran, name, apart) for name, apart in (("C2", 0.0), ("C1", 1.0), ("C0", 0.0))
    }
    ladder = climb(rungs)
    assert ran == ["C0", "C1"]
    assert ladder.not_run == ("C2",)
    assert not ladder.passes
    assert ladder.first_failure is not None
    assert ladder.first_failure.tap == "C1"


def test_a_ladder_passes_when_every_tap_is_within_its_tolerance() -> None:
    ladder = climb({"C0": rung([], "C0", 0.1, tolerance=0.1)})
    assert ladder.passes
    assert ladder.first_failure is None


def test_a_step_beyond_the_tolerance_fails_whatever_the_largest_difference() -> None:
    tap = TapParity(rung="C1", tap="latents", max_abs_difference=0.0, tolerance=1.0, first_step=3)
    assert not tap.passed


def test_what_is_no_number_is_never_near() -> None:
    tap = TapParity(rung="C0", tap="vae", max_abs_difference=float("inf"), tolerance=1e9)
    assert not tap.passed
