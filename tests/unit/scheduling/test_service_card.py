"""The deployment card: pools by role, targets by class, and the one cost model."""

import asyncio

from fastvideo.deployment.card import EngineLoad, RolePoolSpec
from fastvideo.deployment.catalog import Catalog
from fastvideo.model.specs import ParallelPlan
from fastvideo.scheduling.policy import SchedulingPolicy, SloClass
from fastvideo_scheduler.card import engine_offer
from tests.unit.scheduling.world import World

MODEL = "moving-digits"


async def test_the_card_says_which_pools_there_are_and_what_their_classes_aim_at():
    policy = SchedulingPolicy(
        slo_classes={
            "interactive": SloClass(priority_min=5, target_seconds=2.0),
            "batch": SloClass(priority_min=-5),
        }
    )
    world = World(policy=policy)
    world.attach("w1", models=(MODEL,))
    world.attach("w2", models=(MODEL,))
    world.attach("w3", models=(MODEL,), role="decode")
    card = (await engine_offer("engine", Catalog.load(models=(MODEL,)), world.core)).card
    assert card.role_pools == (
        RolePoolSpec(role="decode", replicas=1, models=(MODEL,)),
        RolePoolSpec(role="worker", replicas=2, models=(MODEL,)),
    )
    assert card.slo_schema == {"interactive": 2.0}
    assert [one.address for one in card.transfer_endpoints] == ["w1:1", "w2:1", "w3:1"]
    assert card.cache_events == ("trace.cache/text_encoder_output",)
    assert "image_to_video" in card.capabilities.capabilities
    assert card.supported_parallel_plans == (ParallelPlan(),)
    assert set(card.health_schema) == {"grpc.health.v1", *EngineLoad.__dataclass_fields__}
    assert {one.prior.phase for one in card.cost_model.priors} >= {"encode", "denoise", "decode"}
    assert world.core.load.compute_slots == 3
    assert world.core.load.ready_models == (MODEL,)
    assert card.cost_model.entries == world.core.cost_model.entries


async def test_a_standby_offers_nothing():
    card = (await engine_offer("engine", Catalog.load(models=(MODEL,)), None)).card
    assert (card.role_pools, card.slo_schema, card.model_specs) == ((), {}, ())


async def test_whoever_asks_for_a_card_of_many_prices_holds_nobody_up():
    world = World()
    for width in range(1, 1_001):
        world.core._state.costs.measure(MODEL, "denoise", f"{width}x8", 4, 0.01 * width)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    offer = await engine_offer("engine", Catalog.load(models=(MODEL,)), world.core)
    beside.cancel()
    assert offer.card.cost_model.entries == world.core.cost_model.entries
    assert turns >= 1_000 // 16
