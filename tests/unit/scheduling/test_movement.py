"""Saved at a boundary, set aside, handed over, gone on with: nothing runs twice for nothing."""

from collections import Counter
from dataclasses import replace

import pytest

from fastvideo.errors import InvalidField
from fastvideo.requests.events import RequestLogged
from fastvideo.scheduling.effects import request_event
from fastvideo.scheduling.events import (
    AssignLoop,
    CompleteRequest,
    DispatchBatch,
    PreemptRequest,
    SnapshotRequest,
)
from fastvideo.scheduling.policy import SchedulingPolicy, SloClass
from fastvideo.scheduling.work import ResourceRequest
from tests.unit.scheduling.moving import Moving
from tests.unit.scheduling.world import MODEL, Catalog, edge, node, program, unit

SAVE_OFTEN = SchedulingPolicy(snapshot_seconds_min=0.0, snapshot_seconds_guess=0.0)
ONE_PLACE = SchedulingPolicy(
    resident_requests_max=1, snapshot_overhead_max=0.0, residency_seconds_min=0.05
)


def saving_often(**options: object) -> Moving:
    """Saving costs nothing and is done after every step."""
    world = Moving(policy=SAVE_OFTEN, **options)
    world.save_seconds = 0.0
    return world


def at_denoise_step(world: Moving, request_id: str, step: int) -> None:
    """Let the workers work until a step of a request's denoising is in flight."""
    wanted = f"/denoise/{world.core._state.requests[request_id].attempt}/{step}"
    for _ in range(200):
        for worker in world.workers.values():
            for batch in worker.batches.values():
                if any(u == request_id + wanted for u in batch.unit_ids):
                    return
        assert world.step()


def units_run(world: Moving, request_id: str) -> list[str]:
    """The units of a request that were dispatched, as node and step."""
    return [
        "/".join((unit_id.split("/")[1], unit_id.split("/")[3]))
        for batch in world.made(DispatchBatch)
        for unit_id in batch.unit_ids
        if unit_id.startswith(request_id + "/")
    ]


# -- when it is saved --------------------------------------------------------------------


def test_saving_takes_no_more_than_its_share_of_what_is_computed():
    policy = SchedulingPolicy(snapshot_overhead_max=0.02, snapshot_seconds_min=0.0)
    world = Moving(policy=policy)
    world.save_seconds = 0.05
    world.batch_seconds = 0.5
    world.attach()
    world.submit(steps=60)
    world.run()
    asked = world.made(SnapshotRequest)
    assert len(asked) >= 5
    computed = world.terminal("r1").metrics.device_seconds
    assert len(asked) * world.save_seconds <= 0.02 * computed + world.save_seconds


def test_two_snapshots_of_a_request_are_some_time_apart():
    policy = SchedulingPolicy(snapshot_seconds_min=5.0, snapshot_seconds_guess=0.0)
    world = Moving(policy=policy)
    world.batch_seconds = 1.0
    world.save_seconds = 0.0
    world.attach()
    world.submit(steps=40)
    world.run()
    assert 7 <= len(world.made(SnapshotRequest)) <= 9


def test_nothing_is_saved_by_a_worker_that_cannot_or_when_it_is_forbidden():
    for policy, cannot in (
        (SchedulingPolicy(snapshot_overhead_max=0.0), ""),
        (SAVE_OFTEN, "SNAPSHOT_UNSUPPORTED"),
    ):
        world = Moving(policy=policy)
        world.cannot_save = cannot
        world.attach()
        world.submit(steps=20)
        world.run()
        assert len(world.made(SnapshotRequest)) == (1 if cannot else 0)
        assert isinstance(world.terminal("r1"), CompleteRequest)


# -- after a loss ------------------------------------------------------------------------


def test_a_lost_worker_s_request_goes_on_from_its_last_snapshot():
    world = saving_often()
    world.attach("w1")
    world.submit(steps=10)
    at_denoise_step(world, "r1", 6)
    world.attach("w2")
    world.lose("w1")
    world.run()
    done = world.terminal("r1")
    assert isinstance(done, CompleteRequest)
    assert done.metrics.attempts == 2
    again = [a for a in world.made(AssignLoop) if a.loop.attempt == 2]
    assert [(a.loop.node_id, a.restore is not None) for a in again] == [
        ("denoise", True),
        ("decode", False),
        ("write", False),
    ]
    # Nothing before the snapshot runs again, and the encoder not at all.
    repeated = [name for name, n in Counter(units_run(world, "r1")).items() if n > 1]
    assert set(repeated) <= {"denoise/5", "denoise/6"}


def test_what_ended_is_put_back_where_others_need_it():
    world = saving_often(catalog=Catalog(programs={MODEL: FORK}))
    world.attach("w1")
    world.submit(steps=4)
    for _ in range(60):
        world.step()
        run = world.core._state.requests["r1"].snapshots
        if "text" in run and run["text"].ended and "video" not in run:
            break
    world.attach("w2")
    world.lose("w1")
    world.run()
    assert isinstance(world.terminal("r1"), CompleteRequest)
    again = {a.loop.node_id: a.restore for a in world.made(AssignLoop) if a.loop.attempt == 2}
    assert again["text"] is not None
    assert again["text"].ended
    assert units_run(world, "r1").count("text/0") == 1


FORK = program(
    node("text"),
    node("video"),
    node("audio"),
    edges=(edge("text", "video"), edge("text", "audio")),
)


def test_an_end_of_the_program_that_was_reached_is_not_reached_again():
    world = saving_often(catalog=Catalog(programs={MODEL: BRANCHES}))
    world.attach("w1")
    world.submit(steps=6)
    for _ in range(40):
        world.step()
        loops = world.core._state.requests["r1"].loops
        if "quick" in loops and loops["quick"].phase == "ended":
            break
    world.attach("w2")
    world.lose("w1")
    world.run()
    assert isinstance(world.terminal("r1"), CompleteRequest)
    assert units_run(world, "r1").count("quick/0") == 1


BRANCHES = program(node("quick"), node("denoise"))


def test_a_snapshot_that_is_refused_costs_only_itself():
    world = saving_often()
    world.attach("w1")
    world.submit(steps=10)
    at_denoise_step(world, "r1", 6)
    world.cannot_restore = "SNAPSHOT_GONE"
    world.attach("w2")
    world.lose("w1")
    world.run()
    done = world.terminal("r1")
    assert isinstance(done, CompleteRequest)
    # One loss; the refusals are none.
    assert units_run(world, "r1").count("denoise/0") == 2
    assert world.core.live_requests == 0


def test_a_snapshot_of_other_weights_is_not_used():
    world = saving_often()
    world.attach("w1", card="one")
    world.submit(steps=10)
    at_denoise_step(world, "r1", 6)
    saved = world.core._state.requests["r1"].snapshots["denoise"]
    world.core._state.requests["r1"].snapshots["denoise"] = replace(saved, card_digest="other")
    world.attach("w2", card="one")
    world.lose("w1")
    world.run()
    assert isinstance(world.terminal("r1"), CompleteRequest)
    assert units_run(world, "r1").count("denoise/0") == 2


# -- set aside ---------------------------------------------------------------------------


def test_a_request_of_a_higher_class_takes_the_place_of_a_lower_one_which_goes_on_later():
    world = Moving(policy=ONE_PLACE)
    world.attach()
    world.submit("low", steps=10)
    at_denoise_step(world, "low", 6)
    world.submit("high", steps=3, priority=1)
    (aside,) = world.made(PreemptRequest)
    assert (aside.request_id, aside.worker_id) == ("low", "w1")
    world.run()
    ends = [d.request_id for d in world.decisions if isinstance(d, CompleteRequest)]
    assert ends == ["high", "low"]
    assert Counter(units_run(world, "low")).most_common(1)[0][1] == 1
    # It was no loss, and the user is told.
    done = world.terminal("low")
    assert done.metrics.units == 1 + 10 + 3 + 1
    told = [event for d in world.decisions if (event := request_event(d)) is not None]
    logged = [e for name, e in told if name == "low" and isinstance(e, RequestLogged)]
    assert [e.level for e in logged] == ["info", "info"]
    # Who has its place may be another tenant's.
    assert aside.reason == "high has a higher priority"
    assert logged[0].message == "is set aside: another request has a higher priority"
    assert world.reserved() == {}


def test_equal_priority_sets_nobody_aside():
    world = Moving(policy=ONE_PLACE)
    world.attach()
    world.submit("first", steps=10, priority=1)
    at_denoise_step(world, "first", 6)
    world.submit("second", priority=1)
    world.tick(10.0)
    assert world.made(PreemptRequest) == []


def test_only_a_place_that_would_do_is_taken_from_anybody():
    def plan(spec, loop, instance):
        resources = ResourceRequest(compute=True, memory_bytes={"activations": spec.sampling.width})
        return [unit(loop, n, 6, resources=resources, instance=instance) for n in range(6)]

    only = Catalog(programs={MODEL: program(node("only"))})
    world = Moving(policy=ONE_PLACE, catalog=only, plan=plan)
    world.attach("large", memory=1_000)
    # Such requests are known to need much.
    world.submit("teaches", width=200)
    world.run()
    world.attach("small", memory=100)
    for name in ("low-large", "low-small"):
        world.submit(name, width=10)
    for _ in range(4):
        world.step()
    world.submit("high", width=200, priority=1)
    world.tick(1.0)
    # The other one came later, but on a worker that is too small.
    assert [d.request_id for d in world.made(PreemptRequest)] == ["low-large"]


def test_who_waited_too_long_for_its_place_keeps_it():
    world = Moving(policy=replace(ONE_PLACE, queue_wait_seconds_max=2.0))
    world.attach()
    world.submit("first", steps=2, priority=1)
    world.submit("low", steps=10)
    world.tick(3.0)
    at_denoise_step(world, "low", 2)
    world.submit("high", steps=2, priority=1)
    world.tick(1.0)
    assert world.made(PreemptRequest) == []


def test_a_request_has_its_place_for_a_while_at_least():
    world = Moving(policy=ONE_PLACE)
    world.attach()
    world.submit("low", steps=10)
    world.submit("high", steps=3, priority=1)
    assert world.made(PreemptRequest) == []
    due = world.core.next_deadline()
    assert due is not None
    world.tick((due - world.now).total_seconds())
    assert [d.request_id for d in world.made(PreemptRequest)] == ["low"]


def test_a_request_is_set_aside_only_a_few_times():
    world = Moving(policy=ONE_PLACE)
    world.attach()
    world.submit("low", steps=80)
    for n in range(6):
        if len(world.made(PreemptRequest)) == ONE_PLACE.preemptions_max:
            break
        at_denoise_step(world, "low", 8 * n + 8)
        world.submit(f"high-{n}", steps=2, priority=1)
        world.tick(1.0)
        while f"high-{n}" in world.core._state.requests:
            world.step()
    assert len(world.made(PreemptRequest)) == ONE_PLACE.preemptions_max
    world.run()
    assert world.core.live_requests == 0


def test_a_place_that_is_on_its_way_sets_aside_nobody_else():
    policy = SchedulingPolicy(
        resident_requests_max=3, snapshot_overhead_max=0.0, residency_seconds_min=0.0
    )
    world = Moving(policy=policy)
    world.attach()
    for n in range(3):
        world.submit(f"low-{n}", steps=10)
    for _ in range(12):
        world.step()
    world.submit("high", steps=3, priority=1)
    world.tick(1.0)
    assert len(world.made(PreemptRequest)) == 1
    # Another one wants another place.
    world.submit("higher", steps=3, priority=2)
    assert len(world.made(PreemptRequest)) == 2
    world.run()
    assert world.core.live_requests == 0


def test_who_cannot_be_saved_goes_on_where_it_is():
    world = Moving(policy=ONE_PLACE)
    world.attach()
    world.submit("low", steps=10)
    at_denoise_step(world, "low", 6)
    world.cannot_save = "SNAPSHOT_UNSUPPORTED"
    world.submit("high", steps=3, priority=1)
    world.run()
    ends = [d.request_id for d in world.decisions if isinstance(d, CompleteRequest)]
    assert ends == ["low", "high"]
    assert world.terminal("low").metrics.attempts == 1


def test_a_request_that_is_cancelled_while_it_is_set_aside_is_cancelled():
    world = Moving(policy=ONE_PLACE)
    world.attach()
    world.submit("low", steps=10)
    at_denoise_step(world, "low", 6)
    world.submit("high", steps=3, priority=1)
    world.cancel("low")
    world.run()
    assert world.core.live_requests == 0
    assert world.reserved() == {}


def test_classes_of_service_decide_who_is_higher():
    policy = SchedulingPolicy(
        resident_requests_max=1,
        snapshot_overhead_max=0.0,
        residency_seconds_min=0.0,
        slo_classes={"online": SloClass(priority_min=10)},
    )
    world = Moving(policy=policy)
    world.attach()
    world.submit("one", steps=10, priority=3)
    at_denoise_step(world, "one", 6)
    world.submit("other", priority=9)
    assert world.made(PreemptRequest) == []
    world.submit("online", priority=10)
    assert len(world.made(PreemptRequest)) == 1


# -- draining ----------------------------------------------------------------------------


def test_a_draining_worker_hands_over_what_would_not_end_in_time():
    world = Moving(policy=SchedulingPolicy(snapshot_overhead_max=0.0, drain_seconds_max=1.0))
    world.batch_seconds = 0.4
    world.attach("w1")
    world.submit("long", steps=40)
    at_denoise_step(world, "long", 5)
    world.attach("w2")
    world.drain("w1")
    world.run()
    assert isinstance(world.terminal("long"), CompleteRequest)
    (aside,) = world.made(PreemptRequest)
    assert aside.reason == "worker w1 is draining"
    assert {a.worker_id for a in world.made(AssignLoop) if a.loop.attempt == 2} == {"w2"}
    assert Counter(units_run(world, "long")).most_common(1)[0][1] == 1
    assert world.workers["w1"].held == {}


def test_a_draining_worker_finishes_what_ends_soon():
    world = Moving(policy=SchedulingPolicy(snapshot_overhead_max=0.0, drain_seconds_max=2.0))
    world.attach("w1")
    world.submit("short", steps=5)
    at_denoise_step(world, "short", 3)
    world.attach("w2")
    world.drain("w1")
    world.run()
    assert world.made(PreemptRequest) == []
    assert world.terminal("short").metrics.attempts == 1


@pytest.mark.parametrize("knob", ["snapshot_overhead_max", "preemptions_max"])
def test_knobs_are_checked(knob):
    with pytest.raises(InvalidField, match=knob):
        SchedulingPolicy(**{knob: -1})  # type: ignore[arg-type]
