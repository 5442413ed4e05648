"""What is promised of bits: by weights, card and environment, then and now."""

from dataclasses import replace
from typing import Any

import pytest

from fastvideo.deployment.catalog import Catalog
from fastvideo.model.specs import ParityTestSpec
from fastvideo.recompute.promise import files_promised, promise_of
from fastvideo.replay.types import LoggedRun
from fastvideo.requests.types import (
    OutputSpec,
    RequestKind,
    RequestSpec,
    RequestStatus,
    SamplingParams,
)
from fastvideo.scheduling.work import ModelState

MACHINE = {
    "torch": "2.13.0",
    "cpu": "one",
    "threads": "1",
    "python": "3.11.7",
    "av": "17",
    "moving-digits/exact_rows": "32",
}
ENTRY = Catalog.load(["moving-digits"]).get("moving-digits")


def run(**fingerprint: str) -> LoggedRun:
    spec = RequestSpec(
        request_id="req_1",
        kind=RequestKind.GENERATION,
        model_id="moving-digits",
        sampling=SamplingParams(),
        outputs=OutputSpec(),
    )
    return LoggedRun(
        spec=spec,
        status=RequestStatus.COMPLETED,
        instance=ModelState(card_digest="card", weights_version="weights"),
        fingerprint=MACHINE | fingerprint,
    )


def promised(run: LoggedRun, **options: Any) -> Any:
    given = {"card_digest": "card", "weights_version": "weights"} | options
    return promise_of(run, MACHINE, ENTRY.card, **given)


def test_bits_are_promised_where_all_that_they_depend_on_agrees() -> None:
    promise = promised(run(python="3.12.0", av="1"))
    assert promise.kind == "bits"
    assert "cpu" in promise.reason


@pytest.mark.parametrize("name", ["torch", "cpu", "threads", "moving-digits/exact_rows"])
def test_another_environment_has_a_tolerance_and_says_what_differs(name: str) -> None:
    promise = promised(run(**{name: "other"}), tolerance=1e-3)
    assert (promise.kind, promise.tolerance) == ("tolerance", 1e-3)
    assert promise.differences == {name: f"other -> {MACHINE[name]}"}
    assert name in promise.reason


def test_the_tolerance_that_nobody_gave_is_the_cards() -> None:
    tests = (
        ParityTestSpec(name="latents", rung="C1", max_abs_difference=0.25),
        ParityTestSpec(name="frames", rung="C1", max_abs_difference=3.0),
    )
    card = replace(ENTRY.card, parity=replace(ENTRY.card.parity, tests=tests))
    promise = promise_of(
        run(cpu="other"), MACHINE, card, card_digest="card", weights_version="weights"
    )
    assert promise.tolerance == 0.25


@pytest.mark.parametrize("name", ["card_digest", "weights_version"])
def test_nothing_is_promised_of_another_model(name: str) -> None:
    promise = promised(run(), **{name: "other"})
    assert promise.kind == "none"
    assert set(promise.differences) == {name}


def test_a_log_that_knows_no_environment_promises_no_bits() -> None:
    assert promised(replace(run(), fingerprint={})).kind == "tolerance"


def test_files_depend_on_what_writes_them_too() -> None:
    assert files_promised(run(), MACHINE)
    assert not files_promised(run(av="16"), MACHINE)
