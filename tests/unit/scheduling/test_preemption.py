"""How often a request may give its place away."""

from fastvideo.scheduling.events import (
    PreemptRequest,
    ResidentLoop,
    WorkerDetached,
    WorkerReattached,
)
from fastvideo.scheduling.policy import SchedulingPolicy
from tests.unit.scheduling.moving import Moving

TWICE = SchedulingPolicy(
    resident_requests_max=1,
    snapshot_overhead_max=0.0,
    residency_seconds_min=0.05,
    preemptions_max=2,
)


def test_to_be_asked_again_is_not_to_be_set_aside_again():
    """The stream broke over the first command; the request may still be set aside a second time."""
    world = Moving(policy=TWICE)
    world.attach()
    world.submit("low", steps=40)
    for name, step in (("high-1", 8), ("high-2", 16)):
        while world.core._state.requests["low"].reached != ("denoise", step, 40):
            assert world.step()
        world.submit(name, steps=2, priority=1)
        world.tick(1.0)
        if name == "high-1":
            while world.workers["w1"].batches:
                world.execute()
            reattach(world, "low")
        while name in world.core._state.requests:
            world.step()
    asked = [d.request_id for d in world.made(PreemptRequest)]
    # Twice the first time.
    assert asked == ["low", "low", "low"]
    world.run()
    assert world.core.live_requests == 0


def reattach(world: Moving, request_id: str) -> None:
    """The stream of the only worker breaks and comes back; it holds what the core knows."""
    request = world.core._state.requests[request_id]
    incarnation = world.workers["w1"].incarnation
    world.tell(WorkerDetached(worker_id="w1", incarnation=incarnation))
    world.saving["w1"].clear()
    loops = tuple(
        ResidentLoop(loop=run.ref, loop_id=run.loop_id, state_version=run.state_version)
        for run in request.loops.values()
    )
    scope = f"{request_id}/{request.attempt}"
    world.tell(
        WorkerReattached(worker_id="w1", incarnation=incarnation, loops=loops, scopes=(scope,))
    )
