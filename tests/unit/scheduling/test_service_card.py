"""The deployment card: pools by role, targets by class, and the one cost model."""

from fastvideo.deployment.card import EngineLoad, RolePoolSpec
from fastvideo.deployment.catalog import Catalog
from fastvideo.model.specs import ParallelPlan
from fastvideo.scheduling.policy import SchedulingPolicy, SloClass
from fastvideo_scheduler.card import deployment_card
from tests.unit.scheduling.world import World

MODEL = "moving-digits"


def test_the_card_says_which_pools_there_are_and_what_their_classes_aim_at():
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
    card = deployment_card("engine", Catalog.load(models=(MODEL,)), world.core)
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


def test_a_standby_offers_nothing():
    card = deployment_card("engine", Catalog.load(models=(MODEL,)), None)
    assert (card.role_pools, card.slo_schema, card.model_specs) == ((), {}, ())
