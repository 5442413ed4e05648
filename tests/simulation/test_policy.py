"""What the policy promises, seen over whole worlds: shares, turns, bounds, and what knobs do."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from fastvideo.simulation.figures import ClassFigures, RunFigures
from fastvideo.simulation.reading import read_scenario
from fastvideo.simulation.world import World

WORLDS = Path(__file__).parent / "policy"
DOCS = Path(__file__).resolve().parents[2] / "docs" / "simulation"


# Fewer steps and places, so that the first who come are soon done.
SHORTER = (
    "duration_s=30",
    "policy.resident_requests_max=8",
    *(
        f"classes.{name}.{change}"
        for name in ("bronze", "silver", "gold")
        for change in ("steps=[6]", "arrivals.0.per_s=16")
    ),
)


def figures(path: Path, *changes: str, seed: int = 0) -> RunFigures:
    """What a world comes to, all its invariants held."""
    world = World(read_scenario(path, changes), seed)
    world.run()
    return world.summary()


def by_class(run: RunFigures) -> Mapping[str, ClassFigures]:
    return {one.name: one for one in run.classes}


def test_three_tenants_get_device_seconds_by_their_weights() -> None:
    run = figures(DOCS / "fairness.yaml", *SHORTER)
    share = sum(run.tenants.values()) / 7
    for tenant, weight in (("bronze", 1), ("silver", 2), ("gold", 4)):
        assert run.tenants[tenant] == pytest.approx(weight * share, rel=0.10), tenant


def test_tenants_of_one_weight_share_alike() -> None:
    run = figures(DOCS / "fairness.yaml", *SHORTER, "policy.tenant_weights={}")
    share = sum(run.tenants.values()) / 3
    assert all(seconds == pytest.approx(share, rel=0.10) for seconds in run.tenants.values())


def test_64_requests_on_a_budget_of_one_unit_take_turns() -> None:
    run = figures(WORLDS / "turns.yaml")
    (one,) = run.classes
    assert one.completed == 64
    # One unit at a time ...
    assert run.batches == run.units == 64 * 10
    # ... and all of them advance together: the first is done when the last has nearly ended.
    assert one.completion.p50 > 0.8 * one.completion.most
    assert one.wait.most < 0.2 * one.completion.most


def test_a_long_video_and_a_stream_of_short_requests_are_both_bounded() -> None:
    alone = by_class(figures(WORLDS / "long_and_short.yaml", "classes.short.arrivals=[]"))
    both = by_class(figures(WORLDS / "long_and_short.yaml"))
    assert both["long"].completed == alone["long"].completed == 1
    # The stream alone asks for four fifths of the worker, so the video may take five times as long.
    assert both["long"].completion.most < 8 * alone["long"].completion.most
    assert both["short"].completed == both["short"].accepted > 200
    assert both["short"].completion.p99 < 1.0


def test_nobody_waits_for_a_place_as_long_as_a_crowd_of_a_higher_class_lasts() -> None:
    bounded = by_class(figures(WORLDS / "queue.yaml"))
    endless = by_class(figures(WORLDS / "queue.yaml", "policy.queue_wait_seconds_max=10000"))
    assert endless["others"].wait.p95 > 30
    assert bounded["others"].wait.most < 15


@pytest.fixture(scope="module")
def plain() -> RunFigures:
    """The world of the knobs before one is turned."""
    return figures(WORLDS / "knobs.yaml")


WAIT, COMPLETION = "wait", "completion"
PREEMPTION = ("policy.preemptions_max=3", "policy.residency_seconds_min=0.05")
RESERVED = "policy.slo_classes={fast: {priority_min: 1, reserved_places: 2}, slow: {}}"
TARGET = "policy.slo_classes={all: {target_seconds: 5}}"


@pytest.mark.row("SCH-13")
@pytest.mark.parametrize(
    ("knobs", "helped", "what", "most"),
    [
        pytest.param(("classes.shop.priority=1",), "shop", COMPLETION, 0.8, id="priority"),
        pytest.param(("policy.tenant_weights={shop: 8}",), "shop", COMPLETION, 0.8, id="weight"),
        pytest.param((RESERVED,), "vip", WAIT, 0.8, id="reserved places"),
        # With targets the order is that of acceptance, which helps the one who asks for most.
        pytest.param((TARGET,), "archive", COMPLETION, 0.98, id="target"),
        pytest.param(PREEMPTION, "vip", WAIT, 0.95, id="preemption"),
    ],
)
def test_a_knob_changes_p95_as_the_policy_says(
    plain: RunFigures, knobs: tuple[str, ...], helped: str, what: str, most: float
) -> None:
    before = by_class(plain)[helped]
    after = by_class(figures(WORLDS / "knobs.yaml", *knobs))[helped]
    assert getattr(after, what).p95 < most * getattr(before, what).p95
