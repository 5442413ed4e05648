"""What a tally takes for near enough: only what was measured."""

import math

import pytest

from fastvideo.replay.tally import Tally
from fastvideo.replay.types import Comparison, ReplayKind, ReplayRequest

DIGESTS = Comparison(subject="latents", equal=False)
SCORE = Comparison(subject="score", equal=True, max_abs_difference=0.0)


def tally_of(*comparisons: Comparison, kept_max: int = 0) -> Tally:
    request = ReplayRequest(kind=ReplayKind.EXECUTION, comparisons_max=kept_max)
    tally = Tally(lambda _: None, request)
    for comparison in comparisons:
        tally.add(comparison)
    return tally


def apart(difference: float, *, equal: bool = False) -> Comparison:
    return Comparison(subject="latents", equal=equal, max_abs_difference=difference)


def test_what_differs_and_was_not_measured_is_not_near() -> None:
    assert not tally_of(DIGESTS, SCORE).all_within(1.0)
    assert not tally_of(DIGESTS).all_within(math.inf)


def test_what_results_tell_may_differ_by_bits() -> None:
    tally = tally_of(apart(0.25))
    tally.add(Comparison(subject="denoise 1/2", equal=False), told_by_results=True)
    assert tally.all_within(0.25)
    assert not tally.all_within(0.2)


@pytest.mark.parametrize("order", [(0.0, math.nan), (math.nan, 0.0)])
def test_nan_is_infinitely_far(order: tuple[float, float]) -> None:
    assert not tally_of(*map(apart, order)).all_within(1e9)


def test_what_is_not_kept_counts() -> None:
    tally = tally_of(SCORE, apart(5.0, equal=True), kept_max=1)
    assert not tally.all_within(1.0)


def test_where_nothing_was_measured_nothing_is_near() -> None:
    assert not tally_of().all_within(1.0)
    assert not tally_of(Comparison(subject="latents", equal=True)).all_within(1.0)
