"""Worlds that a sound scheduler brings to a good end."""

from typing import Any

from fastvideo.simulation.world import World
from tests.unit.simulation.traces import SMALL, small

POOL = SMALL["pools"]["gpu"]


def needing(memory_bytes: int) -> dict[str, Any]:
    """The small models, each guidance branch of a step with so much memory."""
    model = SMALL["models"]["video"]
    denoise = {**model["loops"]["denoise"], "memory_bytes": {"activations": memory_bytes}}
    return {"video": {**model, "loops": {**model["loops"], "denoise": denoise}}}


def test_what_is_too_large_for_one_pool_goes_to_another() -> None:
    scenario = small(
        models=needing(50),
        pools={
            "small": {**POOL, "count": 1, "memory_bytes": {"activations": 49}},
            "large": {**POOL, "count": 1, "memory_bytes": {"activations": 400}},
        },
    )
    world = World(scenario, 1)
    world.run()
    run = world.summary()
    assert run.classes[0].completed == run.requests > 20
    assert run.restarts > 0
    assert {one.name: one.utilisation > 0 for one in run.pools} == {"small": False, "large": True}


def test_what_is_too_large_everywhere_takes_nobody_of_another_kind_along() -> None:
    one = SMALL["classes"]["video"]
    scenario = small(
        models=needing(50),
        pools={"gpu": {**POOL, "memory_bytes": {"activations": 60}}},
        classes={
            "guided": {**one, "guidance_scales": [3.0]},
            "plain": {**one, "guidance_scales": [1.0]},
        },
    )
    world = World(scenario, 1)
    world.run()
    guided, plain = world.summary().classes
    assert guided.failed == guided.accepted > 20
    assert plain.completed == plain.accepted > 20
