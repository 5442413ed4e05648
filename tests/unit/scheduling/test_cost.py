"""The cost model: a prior, then what was measured, and how far it is off."""

import json
import random
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from fastvideo.deployment.card import CostEntry, ForwardCost
from fastvideo.model.specs import CostPrior
from fastvideo.scheduling import cost
from fastvideo.scheduling.cost import (
    CostEstimator,
    price_request,
    request_phase,
    request_shape,
    shape_elements,
)
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


@pytest.mark.row("SCH-07")
def test_the_error_shrinks_and_is_reported():
    costs = estimator()
    costs.measure("m", "denoise", "10x10", 1, 0.2)
    (first,) = costs.export().entries
    for _ in range(30):
        costs.measure("m", "denoise", "10x10", 1, 0.2)
    (last,) = costs.export().entries
    near: Any = pytest.approx(0.2)
    assert last == CostEntry(
        model_id="m",
        phase="denoise",
        shape="10x10",
        seconds=near,
        relative_error=cast(Any, pytest.approx(0.0, abs=0.01)),
        samples=31,
        forwards=(ForwardCost(units=1, seconds=near, samples=31),),
    )
    assert first.relative_error > 0.5


@pytest.mark.row("SCH-07")
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


def test_whole_requests_are_priced_by_program_size_and_branches():
    plain = request("r1", steps=20)
    guided = replace(plain, sampling=replace(plain.sampling, guidance_scale=3.0))
    assert request_phase(plain) == "request/text_to_video"
    assert request_shape(plain) == "48x48x9x20/1"
    costs = estimator()
    for _ in range(9):
        for spec, seconds in ((plain, 1.0), (guided, 2.0)):
            costs.measure(spec.model_id, request_phase(spec), request_shape(spec), 1, seconds)
    assert price_request(costs, plain) == pytest.approx(1.0)
    assert price_request(costs, guided) == pytest.approx(2.0)


# -- what was not seen -------------------------------------------------------------------


def machine(elements, units, *, fixed=0.004, each=1e-5, power=1.0):
    """Seconds of a forward on a made-up machine."""
    return fixed + each * elements**power * units


def test_a_forward_of_another_size_has_its_fixed_part_once():
    costs = estimator()
    for units in (1, 4):
        costs.measure("m", "decode", "10x10", units, machine(100, units))
    for units in (2, 3, 8):
        assert costs.predict("m", "decode", "10x10", units=units) == pytest.approx(
            machine(100, units)
        )


def test_a_shape_that_was_seen_alone_has_the_fixed_share_of_its_phase():
    costs = estimator()
    for units in (1, 4):
        costs.measure("m", "decode", "10x10", units, machine(100, units))
    costs.measure("m", "decode", "20x10", 1, 2 * machine(100, 1))
    assert costs.predict("m", "decode", "20x10", units=4) == pytest.approx(2 * machine(100, 4))


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_a_shape_that_was_not_seen_follows_the_power_of_those_that_were(power):
    costs = estimator()
    for side in (8, 16, 32):
        seconds = machine(side * side, 1, fixed=0.0, power=power)
        costs.measure("m", "decode", f"{side}x{side}", 1, seconds)
    for side in (12, 48):
        expected = machine(side * side, 1, fixed=0.0, power=power)
        assert costs.predict("m", "decode", f"{side}x{side}") == pytest.approx(expected)


def test_noise_makes_no_prediction_negative_or_falling():
    costs = estimator()
    for units, seconds in ((1, 0.020), (2, 0.018), (4, 0.017)):
        costs.measure("m", "decode", "10x10", units, seconds)
    assert 0 < costs.predict("m", "decode", "10x10", units=3) <= 0.02
    assert costs.predict("m", "decode", "10x10", units=16) >= 0.017
    other = estimator()
    for side, seconds in ((8, 0.03), (16, 0.02)):
        other.measure("m", "decode", f"{side}x{side}", 1, seconds)
    assert other.predict("m", "decode", "32x32") == pytest.approx(0.02)


# -- error -------------------------------------------------------------------------------


def error_of(costs, samples):
    """The mean error over consecutive tenths of the samples."""
    errors = []
    for units, shape, seconds in samples:
        predicted = costs.predict("m", "decode", shape, units=units)
        errors.append(min(1.0, abs(predicted - seconds) / seconds))
        costs.measure("m", "decode", shape, units, seconds)
    tenth = len(errors) // 10
    return [sum(errors[n * tenth : (n + 1) * tenth]) / tenth for n in range(10)]


def test_the_error_shrinks_on_a_noisy_machine_and_is_published():
    noise = random.Random(7)
    samples = []
    for _ in range(2_000):
        units, side = noise.randint(1, 8), noise.choice((8, 12, 16, 24))
        seconds = machine(side * side, units) * noise.gauss(1.0, 0.05)
        samples.append((units, f"{side}x{side}", seconds))
    costs = estimator()
    errors = error_of(costs, samples)
    assert errors[-1] < 0.06, errors
    assert errors[-1] < 0.7 * errors[0], errors
    assert costs.samples == 2_000
    assert costs.error == pytest.approx(errors[-1], abs=0.02)
    for entry in costs.export().entries:
        assert entry.relative_error < 0.1
        assert entry.samples > 400


def test_the_error_shrinks_on_recorded_steps():
    """Steps of moving-digits on one core: shape, units a forward, seconds."""
    recorded = json.loads((Path(__file__).parent / "recorded_steps.json").read_text())
    costs = estimator()
    errors = error_of(costs, [(units, shape, seconds) for shape, units, seconds in recorded])
    early, late = sum(errors[:2]) / 2, sum(errors[-5:]) / 5
    assert late < 0.5 * early, errors
    assert late < 0.15, errors


def test_sizes_that_were_held_back_are_predicted_from_the_others():
    recorded = json.loads((Path(__file__).parent / "recorded_steps.json").read_text())
    costs = estimator()
    held_back = (3, 6)
    for shape, units, seconds in recorded:
        if units not in held_back:
            costs.measure("m", "decode", shape, units, seconds)
    for shape, units in {(s, u) for s, u, _ in recorded if u in held_back}:
        truth = statistics.median(t for s, u, t in recorded if (s, u) == (shape, units))
        assert costs.predict("m", "decode", shape, units=units) == pytest.approx(truth, rel=0.25)


def test_a_card_of_many_shapes_has_the_prices_of_each_and_works_out_a_phase_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs = CostEstimator(lambda model_id, phase: None)
    # All but one shape were seen with one number of units, which is not one.
    for width in range(1, 201):
        costs.measure("m", "denoise", f"{width}x8", 4, 0.01 * width)
    costs.measure("m", "denoise", "1x8", 2, 0.008)
    expected = [costs.predict("m", "denoise", f"{width}x8") for width in range(1, 201)]
    worked_out = []
    share = cost._fixed_share

    def counted(shapes):
        worked_out.append(shapes)
        return share(shapes)

    monkeypatch.setattr(cost, "_fixed_share", counted)
    assert [entry.seconds for entry in costs.export().entries] == expected
    assert len(worked_out) == 1
