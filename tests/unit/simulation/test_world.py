"""Worlds that a sound scheduler brings to a good end."""

from fastvideo.simulation.world import World
from tests.unit.simulation.traces import SMALL, small


def test_what_is_too_large_for_one_pool_goes_to_another() -> None:
    model = SMALL["models"]["video"]
    denoise = {**model["loops"]["denoise"], "memory_bytes": {"activations": 50}}
    pool = SMALL["pools"]["gpu"]
    scenario = small(
        models={"video": {**model, "loops": {**model["loops"], "denoise": denoise}}},
        pools={
            "small": {**pool, "count": 1, "memory_bytes": {"activations": 49}},
            "large": {**pool, "count": 1, "memory_bytes": {"activations": 400}},
        },
    )
    world = World(scenario, 1)
    world.run()
    run = world.summary()
    assert run.classes[0].completed == run.requests > 20
    assert run.restarts > 0
    assert {one.name: one.utilisation > 0 for one in run.pools} == {"small": False, "large": True}
