"""A policy that makes no sense is refused by its knob."""

from typing import Any

import pytest

from fastvideo.errors import InvalidField
from fastvideo.scheduling.policy import SchedulingPolicy, SloClass


@pytest.mark.parametrize(
    ("knobs", "named", "allowed"),
    [
        ({"attempts_max": 0}, "attempts_max", "more than 0"),
        ({"drain_seconds_max": -1.0}, "drain_seconds_max", "0 or more"),
        ({"window_seconds_max": float("inf")}, "window_seconds_max", "a number up to"),
        ({"residency_seconds_min": 1e12}, "residency_seconds_min", "a number up to"),
        ({"tenant_weights": {"a": float("nan")}}, "tenant_weights.a", "a number up to"),
        ({"worker_budget": {"cache_blocks": float("nan")}}, "worker_budget.cache_blocks", "number"),
        # A bound of what nothing counts would bound nothing.
        ({"worker_budget": {"memory": 1}}, "worker_budget.memory", "memory_bytes/NAME"),
        ({"worker_budget": {"memory_bytes/": 1}}, "worker_budget.memory_bytes/", "cache_blocks"),
        ({"role_budgets": {"d": {"compute": 1}}}, "role_budgets.d.compute", "compute_seconds"),
        (
            {
                "resident_requests_max": 4,
                "slo_classes": {"a": SloClass(reserved_places=2), "b": SloClass(reserved_places=2)},
            },
            "slo_classes",
            "fewer than resident_requests_max, 4",
        ),
        ({"slo_classes": {"a": SloClass(target_seconds=float("nan"))}}, "slo_classes.a", "below"),
    ],
)
def test_a_knob_that_makes_no_sense_is_refused_by_name(
    knobs: dict[str, Any], named: str, allowed: str
) -> None:
    with pytest.raises(InvalidField) as refused:
        SchedulingPolicy(**knobs)
    assert refused.value.field == named
    assert allowed in refused.value.allowed


def test_budgets_are_of_everything_that_is_counted() -> None:
    budget = {"compute_seconds": 0.05, "memory_bytes/activations": 2e9, "role_slots/decode": 1}
    assert SchedulingPolicy(worker_budget=budget, role_budgets={"decode": budget})


def test_places_are_kept_for_each_class_and_those_above_it() -> None:
    policy = SchedulingPolicy(
        slo_classes={
            "high": SloClass(priority_min=9, reserved_places=1),
            "middle": SloClass(priority_min=5, reserved_places=3),
            "low": SloClass(),
        }
    )
    assert policy.kept_from(9) == ()
    assert policy.kept_from(5) == ((9, 1),)
    assert policy.kept_from(0) == ((9, 1), (5, 4))
