"""The fleet router: whose price decides, who is passed over and why."""

import random
from dataclasses import replace

import pytest

from fastvideo import wire
from fastvideo.api.common.v1 import deployment_pb2
from fastvideo.deployment.card import (
    CostModel,
    DeploymentCard,
    EngineLoad,
    EngineOffer,
    ModelPrior,
    RolePoolSpec,
)
from fastvideo.deployment.fleet import PriceSource, choose
from fastvideo.errors import FailedPrecondition, InvalidField, Unavailable
from fastvideo.model.specs import CapabilityMatrix, CostPrior
from fastvideo.scheduling import cost
from fastvideo.scheduling.affinity import text_keys
from fastvideo.scheduling.cost import CardCosts, CostEstimator, price
from fastvideo.scheduling.policy import SchedulingPolicy
from tests.unit.scheduling.world import MODEL, World, request

PRIOR = CostPrior(phase="denoise", base_seconds=0.5, seconds_per_token=0.001)


def measured(seconds: float, *, width: int = 48, times: int = 3) -> CostModel:
    """The export of an engine on which such requests took so long."""
    costs = CostEstimator(lambda model, phase: None)
    spec = request("r1", width=width)
    for _ in range(times):
        costs.measure(MODEL, cost.request_phase(spec), cost.request_shape(spec), 1, seconds)
    return costs.export()


def offer(
    engine_id: str,
    costs: CostModel | None = None,
    *,
    backlog_s: float = 0.0,
    slots: int = 1,
    ready: bool = True,
    warm: tuple[str, ...] = (),
    programs: tuple[str, ...] = ("text_to_video",),
    **card: object,
) -> EngineOffer:
    values: dict[str, object] = {
        "engine_id": engine_id,
        "model_specs": (MODEL,),
        "capabilities": CapabilityMatrix(capabilities=("text_to_video",)),
        "role_pools": (RolePoolSpec(role="worker", replicas=1, models=(MODEL,)),),
        "supported_programs": programs,
        "cost_model": costs or CostModel(),
    }
    return EngineOffer(
        card=DeploymentCard(**(values | card)),  # type: ignore[arg-type]
        load=EngineLoad(
            backlog_seconds=backlog_s,
            compute_slots=slots,
            ready_models=(MODEL,) if ready else (),
            warm_keys=warm,
        ),
    )


def shared(world: World, engine_id: str) -> EngineOffer:
    """What that scheduler offers, as it comes over the wire."""
    made = replace(offer(engine_id, world.core.cost_model), load=world.core.load)
    message = deployment_pb2.EngineOffer.FromString(wire.to_proto(made).SerializeToString())
    return wire.from_proto(EngineOffer, message)


@pytest.mark.row("SCH-08")
def test_the_model_that_admits_and_the_one_that_routes_are_one() -> None:
    """One engine gets slower: its scheduler admits less at a time, and the fleet turns away."""

    def run(world: World, seconds: float, requests: int) -> None:
        world.batch_seconds = seconds
        for index in range(requests):
            world.submit(f"{seconds}-{index}", steps=4)
            world.run()

    policy = SchedulingPolicy(worker_budget={"compute_seconds": 0.15}, window_steps_max=1)
    ours, other = World(policy=policy), World(policy=policy)
    for world, seconds in ((ours, 0.01), (other, 0.02)):
        world.attach(compute_slots=2)
        run(world, seconds, 3)
    spec = request("asked", steps=4)
    before = choose(spec, [shared(ours, "a"), shared(other, "b")])
    assert before.engine_id == "a"
    assert before.chosen.price is PriceSource.MEASURED

    def together(world: World) -> float:
        """Predicted seconds that are admitted at once for two requests."""
        world.submit("x", steps=4)
        world.submit("y", steps=4)
        world.prepare()
        world.prepare()
        return world.core.reserved["compute_seconds"]

    cheap = World(policy=policy)
    cheap.attach(compute_slots=2)
    run(cheap, 0.01, 3)
    assert together(cheap) == pytest.approx(0.01 * 2, rel=0.2)

    run(ours, 0.1, 12)
    after = choose(spec, [shared(ours, "a"), shared(other, "b")])
    assert after.engine_id == "b"
    dear = {one.engine_id: one.device_seconds for one in after.candidates}["a"]
    assert dear > 4 * before.chosen.device_seconds
    # Two forwards of 0.1 s are more than the 0.15 s that the budget has.
    assert together(ours) == pytest.approx(0.1, rel=0.2)


@pytest.mark.row("SCH-08")
def test_admission_and_routing_call_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    def priced() -> tuple[float, float]:
        world = World(policy=SchedulingPolicy(window_steps_max=1))
        world.attach()
        world.submit("first", steps=4)
        world.run()
        world.submit("second", steps=4)
        world.prepare()
        (batch,) = world.workers["w1"].batches.values()
        route = choose(request("third", steps=4), [shared(world, "a")])
        return batch.predicted_seconds, route.chosen.device_seconds

    admitted, routed = priced()
    assert admitted > 0
    assert routed > 0
    original = cost.price
    monkeypatch.setattr(cost, "price", lambda *asked: 10 * original(*asked))
    assert priced() == (10 * admitted, 10 * routed)


@pytest.mark.row("SCH-08")
def test_a_card_prices_to_the_bit_as_the_engine_that_made_it() -> None:
    chance = random.Random(8)
    costs = CostEstimator(lambda model, phase: PRIOR if phase == "denoise" else None)
    shapes = [f"{chance.randint(1, 64)}x{chance.randint(1, 64)}" for _ in range(20)]
    for _ in range(300):
        phase = chance.choice(("denoise", "decode", "request/text_to_video"))
        units = chance.randint(1, 4)
        costs.measure("m", phase, chance.choice(shapes), units, chance.uniform(0.01, 2.0))
    made = replace(costs.export(), priors=(ModelPrior(model_id="new", prior=PRIOR),))
    message = deployment_pb2.CostModel.FromString(wire.to_proto(made).SerializeToString())
    card = CardCosts(wire.from_proto(CostModel, message))
    for phase in ("denoise", "decode", "request/text_to_video", "encode"):
        for shape in (*shapes, "7x11x13", "1"):
            for units in range(1, 7):
                wanted = costs.predict("m", phase, shape, units)
                assert price(card, "m", phase, shape, units) == wanted, (phase, shape, units)
    assert price(card, "new", "denoise", "10x10", 2) == price(costs, "new", "denoise", "10x10", 2)


@pytest.mark.row("DEP-02")
def test_calibrating_one_engine_leaves_the_other_s_card_as_it_was() -> None:
    one, other = World(), World()
    for world in (one, other):
        world.attach()
        world.submit("r1", steps=3)
        world.run()
    before = other.core.cost_model
    kept = one.core.cost_model
    assert one.core.cost_model == other.core.cost_model
    one.batch_seconds = 1.0
    for index in range(5):
        one.submit(f"again-{index}", steps=3)
        one.run()
    assert one.core.cost_model != kept
    assert other.core.cost_model == before
    # A card that was handed out is a value: it says what was so when it was made.
    assert choose(request("r", steps=3), [offer("a", kept)]).chosen.device_seconds < 0.2


def test_a_backlog_sends_a_request_to_the_dearer_engine() -> None:
    near = offer("near", measured(1.0), backlog_s=6.0, slots=2)
    far = offer("far", measured(3.0))
    route = choose(request("r1"), [near, far])
    assert route.engine_id == "far"
    assert [(one.engine_id, one.wait_seconds, one.total_seconds) for one in route.candidates] == [
        ("far", 0.0, 3.0),
        ("near", 3.0, 4.0),
    ]


def test_what_is_cached_counts_up_to_its_worth() -> None:
    spec = request("r1", prompt="a red three")
    warm = offer("warm", measured(1.2), warm=text_keys(spec))
    cold = offer("cold", measured(1.0))
    assert choose(spec, [warm, cold]).engine_id == "warm"
    assert choose(spec, [warm, cold], warm_seconds=0.1).engine_id == "cold"
    assert choose(request("r2", prompt="a blue one"), [warm, cold]).engine_id == "cold"


def test_another_size_is_scaled_and_an_unknown_price_is_the_dearest() -> None:
    scaled = offer("scaled", measured(1.0, width=24))
    unknown = offer("unknown")
    route = choose(request("r1", width=48), [unknown, scaled])
    found = {one.engine_id: one for one in route.candidates}
    assert found["scaled"].price is PriceSource.SCALED
    assert found["scaled"].device_seconds == pytest.approx(2.0)
    assert found["unknown"].price is PriceSource.ASSUMED
    assert found["unknown"].device_seconds == found["scaled"].device_seconds
    alone = choose(request("r1"), [offer("b"), offer("a")])
    assert (alone.engine_id, alone.chosen.price) == ("a", PriceSource.UNKNOWN)


def test_who_cannot_run_it_is_passed_over_with_the_reason() -> None:
    offers = [
        offer("other-model", model_specs=("another",)),
        offer("other-card", card_digests={MODEL: "f" * 64}),
        offer("other-program", programs=("image_to_video",)),
        offer("no-workers", role_pools=(RolePoolSpec(role="worker", models=(MODEL,)),)),
        offer("loading", ready=False),
        offer("able", measured(9.0), backlog_s=100.0),
    ]
    route = choose(request("r1", card="0" * 64), offers)
    assert route.engine_id == "able"
    reasons = {one.engine_id: one.refusal for one in route.candidates}
    assert reasons == {
        "able": "",
        "loading": "tiny is not ready there",
        "no-workers": "no pool of it serves tiny now",
        "other-card": "its tiny has another card, ffffffffffff",
        "other-model": "it has no model tiny",
        "other-program": "it has no program text_to_video",
    }


def test_a_refusal_says_whether_to_come_again() -> None:
    with pytest.raises(FailedPrecondition) as never:
        choose(request("r1"), [offer("a", model_specs=("another",))])
    assert (never.value.reason, never.value.attributes) == (
        "NO_ENGINE",
        {"a": "it has no model tiny"},
    )
    with pytest.raises(FailedPrecondition):
        choose(request("r1"), [offer("a")], capability="image_to_video")
    with pytest.raises(Unavailable) as later:
        choose(request("r1"), [offer("a", ready=False), offer("b", model_specs=("another",))])
    assert later.value.reason == "NO_ENGINE_READY"
    with pytest.raises(Unavailable):
        choose(request("r1"), [])
    with pytest.raises(InvalidField):
        choose(request("r1"), [offer("a"), offer("a")])
