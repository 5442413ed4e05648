"""Scenarios of the whole core, with scripted workers in virtual time."""

from fastvideo.scheduling.events import (
    AssignLoop,
    CompleteRequest,
    QueueRequest,
    ReportProgress,
    StartRequest,
)
from tests.unit.scheduling.world import World


def test_a_request_walks_its_program_to_completion():
    world = World()
    world.attach()
    world.submit("r1", steps=4)
    world.run()
    done = world.terminal("r1")
    assert isinstance(done, CompleteRequest)
    assert done.artifact_ids == ("art_r1",)
    assert done.latents_digest == "digest-r1"
    assert [d.loop.node_id for d in world.made(AssignLoop)] == [
        "encode",
        "denoise",
        "decode",
        "write",
    ]
    # encode 1, denoise 4, decode 3, write 1; the write takes no device time.
    assert done.metrics.units == 9
    assert round(done.metrics.device_seconds, 6) == 0.08
    assert done.metrics.attempts == 1
    assert world.made(StartRequest) == [StartRequest(request_id="r1", attempt=1)]
    assert not world.made(QueueRequest)
    progress = [d.fraction for d in world.made(ReportProgress)]
    assert progress == sorted(progress)
    assert progress[-1] == 1.0
    assert world.reserved() == {}
    assert world.core.live_requests == 0
