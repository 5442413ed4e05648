"""TransferScheduler: moves are planned, priced by their bytes, and ordered on their links."""

import pytest

from fastvideo.deployment.card import CostModel
from fastvideo.errors import FailedPrecondition
from fastvideo.model.specs import CostPrior
from fastvideo.scheduling.cost import CostEstimator
from fastvideo.scheduling.transfer import (
    PHASE,
    Held,
    Move,
    TransferPlan,
    TransferScheduler,
    refuse_moves,
    schedule,
)
from fastvideo.scheduling.work import LoopRef

pytestmark = pytest.mark.row("SCH-19")

INPUTS = {"latents": "denoise.latents", "features": "encode.features", "mask": "encode.mask"}
HELD = {
    "denoise.latents": Held("w2", 4_000),
    "encode.features": Held("w1", 9_000),
    "encode.mask": Held("w3", 1_000),
}


def by_byte(size_bytes):
    return size_bytes / 1_000


def test_values_that_are_there_need_no_move():
    held = dict.fromkeys(HELD, Held("w1", 10))
    assert TransferScheduler().plan("w1", INPUTS, held) == TransferPlan()
    assert TransferPlan().seconds == TransferPlan().size_bytes == 0


def test_what_is_elsewhere_moves_the_shortest_first_at_its_price():
    plan = TransferScheduler(by_byte).plan("w1", INPUTS, HELD)
    assert plan.moves == (
        Move(
            value="encode.mask",
            source="w3",
            target="w1",
            size_bytes=1_000,
            predicted_seconds=1.0,
        ),
        Move(
            value="denoise.latents",
            source="w2",
            target="w1",
            size_bytes=4_000,
            predicted_seconds=4.0,
        ),
    )
    assert plan.size_bytes == 5_000
    # Two links: the longer one bounds it.
    assert plan.seconds == 4.0


def test_a_value_that_several_inputs_name_moves_once():
    inputs = {"latents": "denoise.latents", "again": "denoise.latents"}
    assert len(TransferScheduler(by_byte).plan("w1", inputs, HELD).moves) == 1


def test_a_value_that_is_nowhere_is_refused_by_name():
    with pytest.raises(FailedPrecondition, match="latents is on no worker") as refused:
        TransferScheduler().plan("w1", INPUTS, {})
    assert (refused.value.reason, refused.value.subject) == ("VALUE_MISSING", "denoise.latents")


def test_without_measurements_a_move_costs_more_the_more_it_weighs():
    transfers = TransferScheduler()
    prices = [transfers.price(size) for size in (0, 1_000_000, 1_000_000_000)]
    assert prices == sorted(prices)
    assert 0 < prices[0] < prices[2]


def test_the_price_is_that_of_the_one_cost_model():
    prior = CostPrior(phase=PHASE, seconds_per_token=1e-6)
    costs = CostEstimator(lambda model_id, phase: prior if phase == PHASE else None)
    transfers = TransferScheduler(lambda size: costs.predict("m", PHASE, str(size)))
    assert transfers.price(4_096) == pytest.approx(0.004096)
    costs.measure("m", PHASE, "4096", 1, 0.1)
    assert transfers.price(4_096) == pytest.approx(0.1)
    assert transfers.price(8_192) > 0.1
    exported: CostModel = costs.export()
    assert [(entry.phase, entry.seconds) for entry in exported.entries] == [(PHASE, 0.1)]


def plan_of(*sizes, source="w2"):
    held = {f"n.{size}": Held(source, size) for size in sizes}
    return TransferScheduler(by_byte).plan("w1", {value: value for value in held}, held)


def test_a_link_takes_one_move_after_another_the_urgent_request_first():
    slots = schedule([(5, plan_of(1_000, 2_000)), (1, plan_of(4_000))])
    assert [(slot.move.value, slot.starts_seconds, slot.arrives_seconds) for slot in slots] == [
        ("n.4000", 0.0, 4.0),
        ("n.1000", 4.0, 5.0),
        ("n.2000", 5.0, 7.0),
    ]


def test_links_do_not_wait_for_each_other():
    slots = schedule([(0, plan_of(3_000)), (1, plan_of(2_000, source="w3"))])
    assert [slot.starts_seconds for slot in slots] == [0.0, 0.0]


def test_the_order_is_the_same_for_the_same_plans():
    plans = [(1, plan_of(2_000)), (1, plan_of(2_000, source="w3")), (0, plan_of(1_000))]
    assert schedule(plans) == schedule(list(plans))


def test_moves_inside_a_request_are_refused_with_what_they_would_cost():
    with pytest.raises(FailedPrecondition, match=r"n\.4000 of w2") as refused:
        refuse_moves(LoopRef(request_id="r", node_id="decode", attempt=1), plan_of(4_000))
    assert refused.value.reason == "TRANSFER_UNSUPPORTED"
    assert refused.value.attributes["bytes"] == "4000"
    refuse_moves(LoopRef(), TransferPlan())
