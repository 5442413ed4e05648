"""Nobody waits for a place for as long as a crowd of a higher class lasts."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

from fastvideo.scheduling.core import SchedulerCore
from fastvideo.scheduling.events import AssignLoop, WorkerAttached
from fastvideo.scheduling.inputs import RequestSubmitted
from fastvideo.scheduling.observe import observe
from fastvideo.scheduling.policy import SchedulingPolicy, SloClass
from fastvideo.scheduling.relief import note_relief, overdue
from fastvideo.scheduling.state import new_state
from fastvideo.scheduling.work import ModelState
from tests.unit.scheduling.world import MODEL, START, TEXT_TO_VIDEO, Catalog, World, request

POLICY = SchedulingPolicy(
    resident_requests_max=1, queue_wait_seconds_max=2.0, preemptions_max=0, window_steps_max=1
)


def crowd(
    policy: SchedulingPolicy, low: tuple[str, ...], stranded: str = ""
) -> tuple[World, list[str]]:
    """Two urgent requests come for each that ends; gives who got a place, in order.

    One that is `stranded` came first, with a card that no worker has.
    """
    world = World(policy=policy)
    world.attach(card="served")
    world.batch_seconds = 0.05
    if stranded:
        world.submit(stranded, card="another")
    for request_id in low:
        world.submit(request_id, steps=1, priority=0)
    for number in range(40):
        world.submit(f"high{number}", steps=1, priority=5)
        for _ in range(9):
            world.step()
    placed = [d.loop.request_id for d in world.made(AssignLoop) if d.loop.node_id == "encode"]
    return world, placed


def test_who_waited_too_long_gets_a_place_before_others_of_higher_priority() -> None:
    _, placed = crowd(POLICY, ("first", "low1", "low2", "low3"))
    assert {"low1", "low2", "low3"} <= set(placed)
    # One after the other, with others between them.
    places = [placed.index(name) for name in ("low1", "low2", "low3")]
    assert places == sorted(places)
    assert places[0] > 3
    assert all(later - earlier >= 2 for earlier, later in pairwise(places))


def test_a_crowd_of_a_higher_class_lets_all_of_a_lower_one_in_by_turns() -> None:
    policy = replace(
        POLICY,
        resident_requests_max=2,
        slo_classes={"high": SloClass(priority_min=5, reserved_places=1)},
    )
    world = World(policy=policy)
    world.attach()
    world.batch_seconds = 0.05
    for number in range(80):
        if number == 2:
            for name in ("low1", "low2", "low3"):
                world.submit(name, steps=1, priority=0)
        for one in range(2):
            world.submit(f"high{number}-{one}", steps=1, priority=5)
        for _ in range(9):
            world.step()
    placed = [d.loop.request_id for d in world.made(AssignLoop) if d.loop.node_id == "encode"]
    # While many of the crowd waited, who waited too long themselves.
    assert {"low1", "low2", "low3"} <= set(placed)
    assert world.core.queued_requests > 20


def test_who_waits_for_a_card_that_no_worker_has_takes_nobodys_turn() -> None:
    low = ("first", "low1", "low2", "low3")
    _, placed = crowd(POLICY, low, stranded="stranded")
    assert placed == crowd(POLICY, low)[1]


def test_the_turn_of_one_that_may_have_no_place_is_the_next_ones() -> None:
    """What is free is kept from the lowest, who came first; the crowd does not take it for that."""
    classes = {
        "high": SloClass(priority_min=5),
        "middle": SloClass(priority_min=1, reserved_places=2),
    }
    policy = replace(POLICY, resident_requests_max=3, slo_classes=classes)
    world = World(policy=policy)
    world.attach()
    world.batch_seconds = 0.05
    world.submit("long", steps=400, priority=0)
    for name in ("high-a", "high-b"):
        world.submit(name, steps=1, priority=5)
    world.submit("lowest", steps=1, priority=0)
    world.submit("middle", steps=1, priority=1)
    for number in range(60):
        for one in range(2):
            world.submit(f"high{number}-{one}", steps=1, priority=5)
        for _ in range(9):
            world.step()
    placed = [d.loop.request_id for d in world.made(AssignLoop) if d.loop.node_id == "encode"]
    assert "lowest" not in placed
    assert "middle" in placed


def test_a_crowd_of_another_model_on_the_same_worker_takes_no_turns_away() -> None:
    world = World(
        policy=POLICY, catalog=Catalog(programs={MODEL: TEXT_TO_VIDEO, "other": TEXT_TO_VIDEO})
    )
    world.attach(models=(MODEL, "other"))
    world.batch_seconds = 0.05
    world.submit("first", steps=1)
    for name in ("low1", "low2", "low3"):
        world.submit(name, steps=1, priority=0)
    for number in range(40):
        world.submit(f"high{number}", model="other", steps=1, priority=5)
        for _ in range(9):
            world.step()
    placed = {d.loop.request_id for d in world.made(AssignLoop)}
    assert {"low1", "low2", "low3"} <= placed


def test_one_whose_turn_went_to_a_later_one_is_due_at_the_next_place() -> None:
    state = new_state(Catalog(), POLICY, epoch=1)
    worker = WorkerAttached(
        worker_id="w1", instances=(ModelState(model_instance_id="w1/m", model_id=MODEL),)
    )
    observe(state, worker, START)
    for name in ("first", "second", "third"):
        observe(state, RequestSubmitted(spec=request(name)), START)
    late = START + timedelta(seconds=POLICY.queue_wait_seconds_max)
    first, second = state.requests["first"], state.requests["second"]
    # The first could have none of the free places.
    assert overdue(state, (MODEL,), late, {"first"}) is second
    note_relief(state, second, state.workers["w1"], late)
    state.dequeue(second)
    assert overdue(state, (MODEL,), late, {"first"}) is None
    assert overdue(state, (MODEL,), late, ()) is first


def test_until_then_priority_counts() -> None:
    patient = SchedulingPolicy(
        resident_requests_max=1, queue_wait_seconds_max=900.0, preemptions_max=0
    )
    _, placed = crowd(patient, ("first", "low1"))
    assert "low1" not in placed


def test_a_replay_knows_whose_turn_it_is() -> None:
    world, _ = crowd(POLICY, ("first", "low1", "low2", "low3"))
    again = SchedulerCore(Catalog(), policy=POLICY, epoch=1)
    for event, now, decisions in world.history:
        again.replay(event, decisions, now)
    assert again.digest() == world.core.digest()
