"""Who is next: running requests, then priority and deadline, and whoever has starved."""

import pytest

from fastvideo.scheduling.events import (
    CompleteRequest,
    DispatchBatch,
    StartRequest,
)
from fastvideo.scheduling.policy import SchedulingPolicy
from tests.unit.scheduling.world import MODEL, Catalog, World, denoising, node, program, unit


@pytest.mark.row("SCH-09")
def test_running_requests_go_before_new_ones_but_not_for_long():
    policy = SchedulingPolicy(fresh_wait_seconds_max=0.05)
    world = World(policy=policy)
    world.attach()
    world.submit("old", steps=30)
    while not denoising(world, 2):
        world.step()
    world.submit("new", steps=30)
    world.prepare()
    submitted = world.now
    world.execute()
    assert world.made(DispatchBatch)[-1].loops[0].request_id == "old"
    while world.made(StartRequest)[-1].request_id != "new":
        world.execute()
    waited = (world.now - submitted).total_seconds()
    assert 0.05 <= waited <= 0.05 + 2 * world.batch_seconds


def test_priority_and_deadline_order_waiting_requests():
    world = World(policy=SchedulingPolicy(resident_requests_max=1))
    world.attach()
    world.submit("first")
    world.submit("plain")
    world.submit("soon", deadline_s=100)
    world.submit("urgent", priority=5)
    world.run()
    order = [d.request_id for d in world.made(StartRequest)]
    assert order == ["first", "urgent", "soon", "plain"]


def test_a_starved_unit_goes_before_everything():
    world = World(policy=SchedulingPolicy(starving_wait_seconds_max=0.3))
    world.attach()
    world.submit("low", steps=2, priority=-1)
    world.prepare()
    world.execute()
    world.prepare()
    for n in range(40):
        world.submit(f"high{n}", steps=40, priority=9)
    for _ in range(200):
        world.step()
    done = {d.request_id for d in world.made(CompleteRequest)}
    assert "low" in done


def test_what_else_a_request_offers_counts_as_running_once_it_runs():
    policy = SchedulingPolicy(fresh_wait_seconds_max=900.0, window_steps_max=1)
    world = World(
        policy=policy,
        catalog=Catalog(programs={MODEL: program(node("a"), node("b"))}),
        plan=lambda spec, loop, instance: [unit(loop, max_batch=1, instance=instance)],
    )
    world.attach()
    world.submit("busy")
    world.prepare()
    for name in ("r1", "r2"):
        world.submit(name)
    # While another runs: a branch of each, and then the other branches.
    made = world.workers["w1"].preparing
    made.sort(key=lambda told: (told.loop.request_id != "busy", told.loop.node_id))
    world.run()
    order = [f"{d.loops[0].request_id}/{d.loops[0].node_id}" for d in world.made(DispatchBatch)]
    assert order == ["busy/a", "busy/b", "r1/a", "r1/b", "r2/a", "r2/b"]
