"""Where requests go: load, pools, meshes, instances and sizes."""

from dataclasses import replace

import pytest

from fastvideo.requests.types import Capture
from fastvideo.scheduling.events import (
    AssignLoop,
    CompleteRequest,
    FailRequest,
    QueueRequest,
    RestartRequest,
    WorkerAttached,
    WorkerDraining,
)
from fastvideo.scheduling.inputs import RequestSubmitted
from fastvideo.scheduling.policy import SchedulingPolicy, SloClass
from fastvideo.scheduling.work import ModelState, PlacementHint, ResourceRequest
from tests.unit.scheduling.timed import ONLY, Timed, one_unit, places
from tests.unit.scheduling.world import MODEL, Catalog, World, node, program, request, unit


def last_reason(world, request_id):
    return [d.reason for d in world.made(QueueRequest) if d.request_id == request_id][-1]


# -- load, pool, mesh, instance ----------------------------------------------------------


def test_requests_spread_by_predicted_seconds_for_each_slot():
    def plan(spec, loop, instance):
        steps = spec.sampling.steps
        return [unit(loop, n, steps, instance=instance) for n in range(steps)]

    world = Timed(catalog=ONLY, plan=plan)
    world.attach("small", compute_slots=1)
    world.attach("large", compute_slots=3)
    # One of each size teaches what they cost.
    for steps in (4, 40):
        world.submit(f"first-{steps}", steps=steps)
        world.finish()
    for n in range(12):
        world.submit(f"long-{n}", steps=40)
    counts = [list(places(world).values()).count(name) for name in ("small", "large")]
    # Two were the first ones'.
    assert counts[1] >= 2.4 * (counts[0] - 2)


def test_a_class_is_bound_to_its_pool_and_its_mesh():
    policy = SchedulingPolicy(
        slo_classes={
            "fast": SloClass(priority_min=1, pool="fast", mesh="tp2"),
            "slow": SloClass(priority_min=0),
        }
    )
    world = World(policy=policy, catalog=ONLY, plan=one_unit)
    world.attach("plain")
    world.submit("r1", priority=1)
    assert last_reason(world, "r1") == f"no attached worker has model {MODEL} on mesh tp2"
    world.attach("wide", mesh="tp2")
    assert "r1" not in places(world)
    world.submit("r2", priority=1)
    assert last_reason(world, "r2") == f"no attached worker with model {MODEL} plays fast"
    world.attach("fast", mesh="tp2", role="fast")
    world.submit("r3", priority=0)
    assert places(world)["r1"] == places(world)["r2"] == "fast"
    assert places(world)["r3"] in ("plain", "wide")


def test_a_worker_of_a_role_takes_only_programs_of_that_role():
    roles = Catalog(
        programs={
            MODEL: program(replace(node("only"), role="denoise")),
            "other": program(replace(node("only"), role="encode")),
        }
    )
    world = World(catalog=roles, plan=one_unit)
    world.attach("d", role="denoise", models=(MODEL, "other"))
    world.submit("r1")
    world.submit("r2", model="other")
    assert places(world) == {"r1": "d"}
    assert "plays encode" in last_reason(world, "r2")
    world.attach("any", models=(MODEL, "other"))
    assert places(world)["r2"] == "any"


def test_a_unit_in_another_role_than_its_workers_is_refused_by_name():
    def plan(spec, loop, instance):
        return [
            replace(u, placement_hint=PlacementHint(role="encode"))
            for u in one_unit(spec, loop, instance)
        ]

    world = World(catalog=ONLY, plan=plan)
    world.attach("w1", role="denoise")
    world.submit("r1")
    world.prepare()
    error = world.terminal("r1").error
    assert (error.reason, error.subject) == ("ROLE_MISMATCH", "role/encode")
    assert world.reserved() == {}


@pytest.mark.row("SCH-18")
def test_placement_picks_worker_pool_mesh_and_instance():
    policy = SchedulingPolicy(
        slo_classes={"vip": SloClass(priority_min=1, pool="fast", mesh="tp2")}
    )
    world = World(policy=policy, catalog=ONLY, plan=one_unit)
    world.attach("plain", mesh="tp2")
    world.attach("narrow", role="fast", mesh="tp1")
    instances = tuple(
        ModelState(model_instance_id=f"fast/{n}", model_id=MODEL, parallel_plan_hash=mesh)
        for n, mesh in enumerate(("tp1", "tp2", "tp2"))
    )
    world.workers["fast"] = world.workers["narrow"]
    world.tell(
        WorkerAttached(
            worker_id="fast",
            incarnation="f",
            instances=instances,
            memory_bytes={},
            compute_slots=1,
            io_slots=1,
            role="fast",
        )
    )
    for n in range(4):
        world.submit(f"r{n}", priority=1)
    chosen = [(d.worker_id, d.model_instance_id) for d in world.made(AssignLoop)]
    # The instances of the right mesh in the right pool, in turn.
    assert chosen == [("fast", "fast/1"), ("fast", "fast/2")] * 2


def test_places_that_are_kept_for_a_class_stay_free():
    policy = SchedulingPolicy(
        resident_requests_max=3,
        slo_classes={"vip": SloClass(priority_min=5, reserved_places=1)},
        preemptions_max=0,
    )
    world = World(policy=policy, catalog=ONLY, plan=one_unit)
    world.attach()
    for n in range(4):
        world.submit(f"r{n}")
    assert sorted(places(world)) == ["r0", "r1"]
    assert last_reason(world, "r2") == f"all 2 places on workers with model {MODEL} are taken"
    world.submit("vip", priority=5)
    assert "vip" in places(world)


@pytest.mark.row("DEP-10")
def test_capacity_utilisation_and_class_steer_where_requests_go():
    policy = SchedulingPolicy(
        resident_requests_max=8,
        slo_classes={"vip": SloClass(priority_min=1, pool="vip"), "all": SloClass()},
    )

    def seconds(batch, units):
        return 0.01 * units

    world = Timed(policy=policy, catalog=ONLY, plan=one_unit, seconds=seconds)
    world.attach("vip", role="vip")
    world.attach("one", compute_slots=1)
    world.attach("four", compute_slots=4)
    world.submit("first")
    world.finish()
    for n in range(10):
        world.submit(f"r{n}")
    world.submit("v", priority=1)
    found = places(world)
    # By class to the pool; by utilisation to the larger worker; by capacity never beyond places.
    assert found["v"] == "vip"
    by_worker = [list(found.values()).count(name) for name in ("one", "four")]
    assert by_worker[1] > 2 * (by_worker[0] - 1)
    for n in range(10, 40):
        world.submit(f"r{n}")
    assert all(view.loops <= 8 for view in world.core.workers)


# -- size --------------------------------------------------------------------------------


def by_width(spec, loop, instance):
    resources = ResourceRequest(compute=True, memory_bytes={"activations": spec.sampling.width})
    return one_unit(spec, loop, instance, resources=resources)


@pytest.mark.row("SCH-03")
def test_what_no_worker_can_ever_hold_is_refused_when_it_is_submitted():
    world = World(catalog=ONLY, plan=by_width)
    world.attach("w1", memory=100)
    world.submit("r1", width=200)
    world.prepare()
    assert world.terminal("r1").error.subject == "memory_bytes/activations"
    before = len(world.made(AssignLoop))
    # From now on that is known: nothing is placed, nothing waits.
    world.submit("r2", width=200)
    error = world.terminal("r2").error
    assert (error.reason, error.subject) == ("RESOURCE_EXHAUSTED", "memory_bytes/activations")
    assert error.attributes == {"needed": "200", "limit": "100"}
    assert len(world.made(AssignLoop)) == before
    # Another size is no concern of it.
    world.submit("r3", width=80)
    world.run()
    assert isinstance(world.terminal("r3"), CompleteRequest)
    assert world.reserved() == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"sampling": {"guidance_scale": 3.0}},
        {"outputs": {"sheet": True}},
        {"outputs": {"capture": Capture.BEHAVIOR}},
    ],
    ids=str,
)
def test_what_is_too_large_in_another_way_refuses_no_other_request(changes):
    """Guidance has more branches, and other files need other staging: that is no news of size."""

    def plan(spec, loop, instance):
        is_more = spec.request_id == "more"
        resources = ResourceRequest(compute=True, memory_bytes={"activations": 60 + 60 * is_more})
        return one_unit(spec, loop, instance, resources=resources)

    world = World(catalog=ONLY, plan=plan)
    world.attach("w1", memory=100)
    plain = request("more")
    parts = {name: replace(getattr(plain, name), **fields) for name, fields in changes.items()}
    world.specs["more"] = replace(plain, **parts)
    world.tell(RequestSubmitted(spec=world.specs["more"]))
    world.prepare()
    assert world.terminal("more").error.subject == "memory_bytes/activations"
    world.submit("plain")
    world.run()
    assert isinstance(world.terminal("plain"), CompleteRequest)


def test_a_request_that_is_too_large_for_its_worker_goes_to_one_that_holds_it():
    world = World(catalog=ONLY, plan=by_width)
    world.attach("small", memory=100)
    world.submit("r1", width=200)
    world.attach("large", memory=1_000)
    world.prepare("small")
    (again,) = world.made(RestartRequest)
    assert "worker small is too small" in again.reason
    world.run()
    assert isinstance(world.terminal("r1"), CompleteRequest)
    # The next one knows.
    world.submit("r2", width=200)
    assert places(world)["r2"] == "large"
    world.run()
    assert world.reserved() == {}


def test_who_waits_while_its_kind_turns_out_too_large_for_all_fails_too():
    world = World(policy=SchedulingPolicy(resident_requests_max=1), catalog=ONLY, plan=by_width)
    world.attach("small", memory=100)
    world.submit("r1", width=200)
    world.submit("r2", width=200)
    world.submit("r3", width=50)
    world.prepare("small")
    for name in ("r1", "r2"):
        assert world.terminal(name).error.subject == "memory_bytes/activations"
    world.run()
    assert isinstance(world.terminal("r3"), CompleteRequest)


def test_a_small_request_does_not_wait_behind_a_large_one_that_has_no_place():
    policy = SchedulingPolicy(resident_requests_max=1)
    world = World(policy=policy, catalog=ONLY, plan=by_width)
    world.attach("small", memory=100)
    world.attach("large", memory=1_000)
    for name in ("teach", "teach2"):
        world.submit(name, width=200)
        world.run()
    world.submit("big1", width=200)
    world.submit("big2", width=200)
    assert last_reason(world, "big2").startswith("all 1 places")
    world.submit("tiny", width=10)
    assert places(world)["tiny"] == "small"
    world.run()
    assert world.core.live_requests == 0


def test_what_only_a_worker_that_goes_could_hold_is_refused():
    world = World(catalog=ONLY, plan=by_width)
    world.attach("large", memory=1_000)
    world.submit("r1", width=200)
    world.run()
    world.attach("small", memory=100)
    world.tell(WorkerDraining(worker_id="large"))
    world.submit("r2", width=200)
    assert world.terminal("r2").error.attributes == {"needed": "200", "limit": "100"}


def test_nothing_is_refused_while_no_worker_has_the_model():
    world = World(catalog=ONLY, plan=by_width)
    world.attach("w1", memory=100)
    world.submit("r1", width=200)
    world.prepare()
    world.lose("w1")
    world.submit("r2", width=200)
    world.attach("w2", memory=1_000)
    world.run()
    assert isinstance(world.terminal("r1"), FailRequest)
    assert isinstance(world.terminal("r2"), CompleteRequest)
