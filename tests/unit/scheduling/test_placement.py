"""PlacementScheduler alone."""

from dataclasses import replace

import pytest

from fastvideo.errors import StaleWeights
from fastvideo.scheduling.hosts import ANYWHERE
from fastvideo.scheduling.placement import PlacementScheduler
from fastvideo.scheduling.work import ModelState
from tests.unit.scheduling.world import MODEL, request


def add(placement, worker_id, *, models=(MODEL,), places=2, card=""):
    placement.add(
        worker_id,
        [
            ModelState(model_instance_id=f"{worker_id}/{m}", model_id=m, card_digest=card)
            for m in models
        ],
        places,
    )


def check_place(placement, expected, **fields):
    spec = request("r", **fields)
    found = placement.place(spec)
    assert expected in (found.worker_id if found is not None else placement.why_not(spec))


def test_the_worker_with_the_least_predicted_work_is_chosen():
    placement = PlacementScheduler()
    add(placement, "w1")
    add(placement, "w2")
    placement.occupy("w1", 3.0)
    placement.occupy("w2", 1.0)
    check_place(placement, "w2")
    placement.vacate("w1", 3.0)
    check_place(placement, "w1")


def test_equal_loads_go_to_the_worker_with_fewer_requests():
    placement = PlacementScheduler()
    add(placement, "w1")
    add(placement, "w2")
    placement.occupy("w1", 0.0)
    check_place(placement, "w2")


def test_only_workers_with_the_model_and_the_card_serve():
    placement = PlacementScheduler()
    add(placement, "w1", models=("other",))
    check_place(placement, f"no attached worker has model {MODEL}")
    add(placement, "w2", card="old")
    check_place(placement, "with the request's card", card="new")
    add(placement, "w3", card="new")
    check_place(placement, "w3", card="new")
    check_place(placement, "w2", card="old")


def test_a_full_a_draining_and_a_lost_worker_take_nothing():
    placement = PlacementScheduler()
    add(placement, "w1", places=1)
    placement.occupy("w1", 1.0)
    check_place(placement, "all 1 places")
    add(placement, "w2")
    placement.drain("w2")
    check_place(placement, "all 1 places")
    placement.remove("w1")
    check_place(placement, "draining")
    placement.remove("w2")
    check_place(placement, "no attached worker")


def test_a_worker_that_comes_back_is_not_mistaken_for_its_past():
    placement = PlacementScheduler()
    add(placement, "w1")
    add(placement, "w2")
    placement.occupy("w1", 1.0)
    placement.remove("w1")
    add(placement, "w1")
    placement.occupy("w1", 9.0)
    check_place(placement, "w2")


def test_what_is_remembered_of_the_past_is_bounded():
    placement = PlacementScheduler()
    add(placement, "w1", places=10)
    for _ in range(5_000):
        placement.occupy("w1", 0.1)
        placement.vacate("w1", 0.1)
    assert len(placement._open[MODEL]) < 100
    check_place(placement, "w1")


def pinned(weights):
    return replace(request("r"), required_weights_version=weights)


def add_weights(placement, worker_id, weights):
    instance = ModelState(
        model_instance_id=f"{worker_id}/{weights}", model_id=MODEL, weights_version=weights
    )
    placement.add(worker_id, [instance], 2)


def test_a_pinned_request_goes_where_its_weights_are():
    placement = PlacementScheduler()
    add_weights(placement, "w1", "old")
    add_weights(placement, "w2", "new")
    placement.occupy("w2", 9.0)
    found = placement.place(pinned("new"))
    assert found is not None
    assert found.worker_id == "w2"
    placement.check_possible(pinned("new"), ANYWHERE)


def test_a_pinned_request_is_refused_where_only_other_weights_are():
    placement = PlacementScheduler()
    placement.check_possible(pinned("new"), ANYWHERE)
    add_weights(placement, "w1", "old")
    assert placement.place(pinned("new")) is None
    with pytest.raises(StaleWeights, match="have old") as refused:
        placement.check_possible(pinned("new"), ANYWHERE)
    assert refused.value.reason == "STALE_WEIGHTS"
    assert "weights that it must run on" in placement.why_not(pinned("new"))
