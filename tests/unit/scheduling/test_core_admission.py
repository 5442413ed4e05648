"""Nothing starts before all that it declares is reserved; whoever waits is told for what."""

from dataclasses import replace

import pytest

from fastvideo.requests.types import ErrorDetail
from fastvideo.scheduling.events import (
    CompleteRequest,
    DeferLoop,
    DispatchBatch,
    QueueRequest,
    RestartRequest,
)
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.work import ResourceRequest
from tests.unit.scheduling.world import MODEL, Catalog, World, node, program, unit

# Each alone is all that a worker has of it.
SCARCE = {
    "memory_bytes/activations": ResourceRequest(memory_bytes={"activations": 100}),
    "cache_blocks": ResourceRequest(cache_blocks=8),
    "transfer_bytes": ResourceRequest(transfer_bytes=64),
    "capture_shapes": ResourceRequest(capture_shape="48x48"),
    "stream_slots": ResourceRequest(stream_slots=4),
    "staging_bytes": ResourceRequest(staging_bytes=32),
    "role_slots/decode": ResourceRequest(role_slots={"decode": 1}),
}
POLICY = SchedulingPolicy(
    worker_budget={
        "cache_blocks": 8,
        "transfer_bytes": 64,
        "stream_slots": 4,
        "staging_bytes": 32,
        "role_slots/decode": 1,
    }
)


def world_of(resources: ResourceRequest) -> World:
    """Requests of one unit off the step path; two would run at once, were there enough."""
    world = World(
        policy=POLICY,
        catalog=Catalog(programs={MODEL: program(node("only"))}),
        plan=lambda spec, loop, instance: [
            unit(loop, max_batch=1, resources=resources, instance=instance)
        ],
    )
    world.attach(memory=100, io_slots=2)
    for name in ("r1", "r2"):
        world.submit(name)
        world.prepare()
    return world


@pytest.mark.row("SCH-01")
@pytest.mark.parametrize("resource", SCARCE)
def test_a_unit_waits_for_each_resource_that_it_declares(resource):
    world = world_of(SCARCE[resource])
    (first,) = world.made(DispatchBatch)
    assert first.loops[0].request_id == "r1"
    (deferred,) = world.made(DeferLoop)
    assert deferred.loop.request_id == "r2"
    assert deferred.reason.startswith(f"{resource}: ")
    (queued,) = world.made(QueueRequest)
    assert (queued.request_id, queued.position, queued.reason) == ("r2", 1, deferred.reason)
    world.execute()
    assert world.made(DispatchBatch)[-1].loops[0].request_id == "r2"
    world.run()
    assert isinstance(world.terminal("r2"), CompleteRequest)
    assert world.reserved() == {}


@pytest.mark.row("SCH-01")
def test_a_unit_waits_for_its_slot_without_a_word():
    world = world_of(ResourceRequest(compute=True))
    assert len(world.made(DispatchBatch)) == 1
    assert not world.made(DeferLoop)
    world.run()
    assert world.reserved() == {}


def test_units_that_need_little_run_side_by_side():
    world = world_of(ResourceRequest(memory_bytes={"activations": 50}))
    assert len(world.made(DispatchBatch)) == 2
    assert world.reserved()["memory_bytes/activations"] == 100


def test_blocks_that_a_loop_keeps_stay_reserved_while_it_lives():
    kept = ResourceRequest(compute=True, cache_blocks=6, cache_blocks_kept=True)
    world = World(
        policy=POLICY,
        catalog=Catalog(programs={MODEL: program(node("only"))}),
        plan=lambda spec, loop, instance: [
            unit(loop, n, 3, max_batch=1, resources=kept, instance=instance) for n in range(3)
        ],
    )
    world.attach(compute_slots=2)
    world.submit("r1")
    world.submit("r2")
    world.prepare()
    world.prepare()
    # Of 8 blocks the first keeps 6, between its units too.
    assert world.reserved()["cache_blocks"] == 6
    world.execute()
    assert {r.request_id for d in world.made(DispatchBatch) for r in d.loops} == {"r1"}
    assert world.made(DeferLoop)[-1].loop.request_id == "r2"
    assert world.made(DeferLoop)[-1].reason == "cache_blocks: 6 needed, 2 of 8 free"
    assert world.reserved()["cache_blocks"] == 6
    world.run()
    assert len(world.made(CompleteRequest)) == 2
    assert world.reserved() == {}


def test_a_loop_that_grows_keeps_what_it_declared_last():
    world = World(
        policy=POLICY,
        catalog=Catalog(programs={MODEL: program(node("only"))}),
        plan=lambda spec, loop, instance: [
            unit(
                loop,
                n,
                3,
                max_batch=1,
                resources=ResourceRequest(compute=True, cache_blocks=2 + n, cache_blocks_kept=True),
                instance=instance,
            )
            for n in range(3)
        ],
    )
    world.attach()
    world.submit("r1")
    world.prepare()
    reserved = [world.reserved()["cache_blocks"]]
    for _ in range(2):
        world.execute()
        reserved.append(world.reserved()["cache_blocks"])
    assert reserved == [2, 3, 4]
    world.run()
    assert world.reserved() == {}


@pytest.mark.row("SCH-04")
@pytest.mark.parametrize("resource", SCARCE)
@pytest.mark.parametrize("end", ["completes", "fails", "is cancelled", "loses its worker"])
def test_everything_is_given_back_however_it_ends(resource, end):
    kept = replace(SCARCE[resource], compute=True, cache_blocks_kept=True)
    world = World(
        policy=POLICY,
        catalog=Catalog(programs={MODEL: program(node("only"))}),
        plan=lambda spec, loop, instance: [
            unit(loop, n, 3, max_batch=1, resources=kept, instance=instance) for n in range(3)
        ],
    )
    world.attach("w1", memory=100)
    world.submit("r1")
    world.prepare()
    world.execute()
    assert world.reserved()[resource] > 0
    if end == "fails":
        report = world.execution()
        (result,) = report.results
        broken = replace(result, next_plan=None, error=ErrorDetail(reason="NAN_LATENTS"))
        world.tell(replace(report, results=(broken,)))
    elif end == "is cancelled":
        world.cancel("r1")
        world.execute()
    elif end == "loses its worker":
        world.lose("w1")
        world.attach("w1", memory=100)
    world.run()
    assert world.core.live_requests == 0
    assert world.reserved() == {}


@pytest.mark.row("SCH-02", "TST-04")
def test_load_that_is_jointly_impossible_defers_and_all_of_it_finishes_as_if_alone():
    def plan(spec, loop, instance):
        resources = ResourceRequest(
            compute=True,
            memory_bytes={"activations": 60},
            staging_bytes=20,
            stream_slots=3,
            cache_blocks=5,
        )
        return [
            replace(unit(loop, n, 4, resources=resources, instance=instance), max_batch=8)
            for n in range(4)
        ]

    def digests(count):
        world = World(
            policy=POLICY, catalog=Catalog(programs={MODEL: program(node("denoise"))}), plan=plan
        )
        world.attach(memory=100, compute_slots=8)
        for n in range(count):
            world.submit(f"r{n}")
        world.run()
        assert world.reserved() == {}
        return world, {f"r{n}": world.terminal(f"r{n}").latents_digest for n in range(count)}

    world, together = digests(12)
    assert world.made(DeferLoop)
    # Any two are too much together, of each resource.
    assert all(len(d.unit_ids) == 1 for d in world.made(DispatchBatch))
    assert together["r0"] == digests(1)[1]["r0"]
    assert all(isinstance(world.terminal(name), CompleteRequest) for name in together)


def test_a_role_and_a_pool_have_the_budget_that_the_policy_gives_them():
    policy = SchedulingPolicy(
        worker_budget={"memory_bytes/activations": 80},
        role_budgets={"decode": {"memory_bytes/activations": 30, "staging_bytes": 7}},
    )
    world = World(
        policy=policy,
        catalog=Catalog(programs={MODEL: program(node("only"))}),
        plan=lambda spec, loop, instance: [
            unit(
                loop,
                resources=ResourceRequest(compute=True, memory_bytes={"activations": 50}),
                instance=instance,
            )
        ],
    )
    world.attach("d", role="decode", memory=1_000)
    world.submit("r1")
    world.prepare("d")
    assert world.terminal("r1").error.attributes == {"needed": "50", "limit": "30"}
    world.attach("w", memory=1_000)
    world.submit("r2")
    world.submit("r3")
    world.run()
    # 80 of the 1,000 that the worker announced: one at a time.
    assert [len(d.unit_ids) for d in world.made(DispatchBatch)] == [1, 1]


def growing(spec, loop, instance):
    """A loop of 7 steps that keeps one block more with each."""
    return [
        unit(
            loop,
            n,
            7,
            max_batch=1,
            resources=ResourceRequest(compute=True, cache_blocks=2 + n, cache_blocks_kept=True),
            instance=instance,
        )
        for n in range(7)
    ]


def test_loops_that_keep_what_the_others_need_do_not_stall_their_worker():
    world = World(
        policy=POLICY, catalog=Catalog(programs={MODEL: program(node("only"))}), plan=growing
    )
    world.attach(compute_slots=4)
    # Each needs all 8 blocks at its end; together they have them long before.
    for n in range(4):
        world.submit(f"r{n}")
    world.run()
    assert len(world.made(CompleteRequest)) == 4
    reasons = {d.reason for d in world.made(RestartRequest)}
    assert reasons == {"worker w1 is stalled: the others need what it keeps"}
    # Whoever came first never gave way.
    assert "r0" not in {d.request_id for d in world.made(RestartRequest)}
    assert world.reserved() == {}


def test_what_fits_is_found_behind_many_that_do_not_when_nothing_else_runs():
    def plan(spec, loop, instance):
        blocks = 5 if spec.request_id == "keeper" else 1 if spec.request_id == "small" else 8
        resources = ResourceRequest(
            compute=True, cache_blocks=blocks, cache_blocks_kept=spec.request_id == "keeper"
        )
        steps = 40 if spec.request_id == "keeper" else 1
        return [
            unit(loop, n, steps, batch_key=spec.request_id, resources=resources, instance=instance)
            for n in range(steps)
        ]

    policy = replace(POLICY, deferrals_max=2)
    catalog = Catalog(programs={MODEL: program(node("only"))})
    world = World(policy=policy, catalog=catalog, plan=plan)
    world.attach()
    for name in ("keeper", "big0", "big1", "big2", "small"):
        world.submit(name)
    world.run()
    assert len(world.made(CompleteRequest)) == 5
    assert world.reserved() == {}
