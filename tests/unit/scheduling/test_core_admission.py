"""Nothing starts before all that it declares is reserved; whoever waits is told for what."""

import pytest

from fastvideo.scheduling.events import (
    CompleteRequest,
    DeferLoop,
    DispatchBatch,
    QueueRequest,
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
