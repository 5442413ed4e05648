"""AdmissionController alone: all that is declared, reserved or refused, and given back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastvideo.errors import ContractViolation, ResourceExhausted
from fastvideo.scheduling.admission import (
    AdmissionController,
    Ledger,
    add_amounts,
    unit_amounts,
)
from fastvideo.scheduling.events import WorkerAttached
from fastvideo.scheduling.work import LoopRef, ResourceRequest
from tests.unit.scheduling.world import unit

pytestmark = pytest.mark.row("SCH-20")

REF = LoopRef(request_id="r1", node_id="n", attempt=1)
EVERYTHING = ResourceRequest(
    compute=True,
    memory_bytes={"activations": 100, "unused": 0},
    cache_blocks=2,
    transfer_bytes=30,
    capture_shape="48x48",
    stream_slots=1,
    staging_bytes=40,
    role_slots={"decode": 1},
)
AMOUNTS = {
    "compute_slots": 1,
    "memory_bytes/activations": 100,
    "cache_blocks": 2,
    "transfer_bytes": 30,
    "capture_shapes": 1,
    "stream_slots": 1,
    "staging_bytes": 40,
    "role_slots/decode": 1,
}


def test_a_unit_reserves_everything_that_it_declares():
    assert unit_amounts(unit(REF, resources=EVERYTHING)) == AMOUNTS


def test_a_unit_off_the_step_path_takes_an_io_slot():
    assert unit_amounts(unit(REF, resources=ResourceRequest())) == {"io_slots": 1}


def test_amounts_add_up():
    assert add_amounts({"a": 1, "b": 2}, {"b": 3, "c": 4}) == {"a": 1, "b": 5, "c": 4}


@pytest.mark.parametrize("resource", AMOUNTS)
def test_each_resource_alone_can_make_a_unit_wait(resource):
    ledger = Ledger({**AMOUNTS}, {resource: 1})
    reason = ledger.missing(AMOUNTS)
    assert reason is not None
    assert reason.startswith(f"{resource}: {AMOUNTS[resource]} needed")


@pytest.mark.parametrize("resource", AMOUNTS)
def test_each_resource_alone_can_make_a_unit_impossible(resource):
    controller = AdmissionController(resident_requests_max=1, worker_budget={})
    ledger = Ledger(AMOUNTS | {resource: AMOUNTS[resource] - 1})
    with pytest.raises(ResourceExhausted) as refused:
        controller.check_possible(unit(REF, resources=EVERYTHING), ledger)
    assert refused.value.subject == resource
    assert refused.value.attributes["needed"] == str(AMOUNTS[resource])


def test_what_is_taken_now_is_not_impossible():
    controller = AdmissionController(resident_requests_max=1, worker_budget={})
    ledger = Ledger({**AMOUNTS}, {**AMOUNTS})
    controller.check_possible(unit(REF, resources=EVERYTHING), ledger)
    assert ledger.missing(AMOUNTS) is not None


def test_a_worker_announces_its_budget_and_the_policy_adds_the_rest():
    controller = AdmissionController(resident_requests_max=4, worker_budget={"stream_slots": 9})
    worker = WorkerAttached(compute_slots=1, io_slots=2, memory_bytes={"activations": 100})
    assert controller.ledger(worker).budget == {
        "compute_slots": 1,
        "io_slots": 2,
        "resident_requests": 4,
        "capture_shapes": 1,
        "memory_bytes/activations": 100,
        "stream_slots": 9,
    }


def test_of_what_a_worker_announces_the_policy_only_takes_away_and_a_role_goes_first():
    controller = AdmissionController(
        resident_requests_max=4,
        worker_budget={"memory_bytes/activations": 500, "memory_bytes/caches": 30, "io_slots": 9},
        role_budgets={"decode": {"memory_bytes/caches": 20, "compute_slots": 1}},
    )
    memory = {"activations": 100, "caches": 100}
    budgets = {
        role: controller.ledger(
            WorkerAttached(compute_slots=2, io_slots=2, memory_bytes=memory, role=role)
        ).budget
        for role in ("", "decode")
    }
    for role, caches, slots in (("", 30, 2), ("decode", 20, 1)):
        assert budgets[role]["memory_bytes/activations"] == 100
        assert budgets[role]["memory_bytes/caches"] == caches
        assert budgets[role]["compute_slots"] == slots
        assert budgets[role]["io_slots"] == 2


def test_all_or_nothing_is_reserved():
    ledger = Ledger({"a": 5, "b": 1})
    with pytest.raises(ContractViolation):
        ledger.reserve({"a": 2, "b": 2})
    assert ledger.reserved == {}


def test_more_than_was_taken_cannot_be_given_back():
    ledger = Ledger({"a": 5}, {"a": 1})
    with pytest.raises(ContractViolation):
        ledger.release({"a": 2})


amounts = st.dictionaries(st.sampled_from("abc"), st.integers(1, 5), min_size=1)


@given(st.lists(st.tuples(amounts, st.booleans()), max_size=20))
def test_reservations_never_pass_the_budget_and_all_come_back(asked):
    ledger = Ledger({"a": 8, "b": 4, "c": 6})
    held = []
    for amount, give_back in asked:
        if ledger.missing(amount) is None:
            ledger.reserve(amount)
            held.append(amount)
        if give_back and held:
            ledger.release(held.pop(0))
        assert all(0 < ledger.reserved[name] <= ledger.budget[name] for name in ledger.reserved)
    for amount in held:
        ledger.release(amount)
    assert ledger.reserved == {}
