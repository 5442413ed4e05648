"""The cost model: a prior, then what was measured, and how far it is off."""

import pytest

from fastvideo.deployment.card import CostEntry
from fastvideo.model.specs import CostPrior
from fastvideo.scheduling.cost import CostEstimator, request_phase, request_shape, shape_elements
from tests.unit.scheduling.world import request

PRIOR = CostPrior(phase="denoise", base_seconds=0.5, seconds_per_token=0.001)


def estimator():
    return CostEstimator(lambda model, phase: PRIOR if phase == "denoise" else None)


def test_a_prior_prices_what_nobody_measured():
    costs = estimator()
    assert costs.predict("m", "denoise", "10x10") == pytest.approx(0.6)
    # A forward's fixed part does not grow with its units.
    assert costs.predict("m", "denoise", "10x10", units=3) == pytest.approx(0.8)
    assert costs.predict("m", "decode", "10x10") == 0.0


def test_measurements_replace_the_prior():
    costs = estimator()
    costs.measure("m", "denoise", "10x10", 1, 0.2)
    assert costs.predict("m", "denoise", "10x10") == pytest.approx(0.2)


def test_another_shape_is_scaled_and_another_batch_size_multiplied():
    costs = estimator()
    costs.measure("m", "denoise", "10x10", 1, 0.2)
    assert costs.predict("m", "denoise", "20x10") == pytest.approx(0.4)
    assert costs.predict("m", "denoise", "10x10", units=4) == pytest.approx(0.8)
    costs.measure("m", "denoise", "10x10", 4, 0.5)
    assert costs.predict("m", "denoise", "10x10", units=4) == pytest.approx(0.5)


def test_the_error_shrinks_and_is_reported():
    costs = estimator()
    costs.measure("m", "denoise", "10x10", 1, 0.2)
    (first,) = costs.export().entries
    for _ in range(30):
        costs.measure("m", "denoise", "10x10", 1, 0.2)
    (last,) = costs.export().entries
    assert last == CostEntry(
        model_id="m",
        phase="denoise",
        shape="10x10",
        seconds=pytest.approx(0.2),
        relative_error=pytest.approx(0.0, abs=0.01),
        samples=31,
    )
    assert first.relative_error > 0.5


def test_a_drift_is_followed():
    costs = estimator()
    for seconds in [0.1] * 10 + [0.3] * 20:
        costs.measure("m", "denoise", "10x10", 1, seconds)
    assert costs.predict("m", "denoise", "10x10") == pytest.approx(0.3, rel=0.01)


@pytest.mark.parametrize(
    ("shape", "elements"),
    [("16x3x6x6/2", 3456), ("7", 7), ("", 1), ("video/9x48", 432), ("0x5", 5)],
)
def test_the_elements_of_a_shape(shape, elements):
    assert shape_elements(shape) == elements


def test_whole_requests_are_priced_by_program_and_size():
    spec = request("r1", steps=20)
    assert request_phase(spec) == "request/text_to_video"
    assert request_shape(spec) == "48x48x9x20"
