"""Cancelling parts: one loop, one stream, a session's requests; what is left goes on."""

from dataclasses import replace

import pytest

from fastvideo.requests.events import RequestLogged
from fastvideo.scheduling.commands import CancelStream as CancelStreamCommand
from fastvideo.scheduling.commands import ReleaseLoops
from fastvideo.scheduling.effects import request_event, worker_command
from fastvideo.scheduling.events import (
    AssignLoop,
    CancelLoop,
    CancelRequest,
    CancelStream,
    CompleteRequest,
    DispatchBatch,
)
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.work import CancelScopeKind, ResourceRequest
from tests.unit.scheduling.timed import Timed
from tests.unit.scheduling.world import (
    MODEL,
    Catalog,
    edge,
    node,
    program,
    unit,
    units_of,
)

# Text makes a video and a sound; each has its own end.
BRANCHES = program(
    node("encode"),
    node("video"),
    node("write_video"),
    node("sound"),
    node("write_sound"),
    edges=(
        edge("encode", "video"),
        edge("video", "write_video"),
        edge("encode", "sound"),
        edge("sound", "write_sound"),
    ),
)
STEPS = {"encode": 1, "video": 12, "write_video": 1, "sound": 6, "write_sound": 1}


def plan(spec, loop, instance):
    steps = STEPS[loop.node_id]
    return [
        unit(loop, n, steps, max_batch=1, batch_key=loop.node_id, instance=instance)
        for n in range(steps)
    ]


def timed(make=plan, catalog=None, **policy):
    world = Timed(
        policy=SchedulingPolicy(**policy),
        catalog=catalog or Catalog(programs={MODEL: BRANCHES}),
        plan=make,
    )
    world.attach()
    return world


def cancel_loop(world, target):
    return world.cancel(target, CancelScopeKind.LOOP)


def ran(world, node_id):
    return [
        batch
        for _, _, decisions in world.history
        for batch in decisions
        if isinstance(batch, DispatchBatch) and batch.loops[0].node_id == node_id
    ]


def test_a_cancelled_loop_ends_and_the_other_branch_goes_on():
    world = timed()
    world.submit("r1")
    world.advance(0.05)
    steps = len(ran(world, "video"))
    assert 0 < steps < 12
    cancel_loop(world, "r1/video")
    world.finish()
    (told,) = world.made(CancelLoop)
    assert (told.loop.node_id, told.worker_id, told.reason) == ("video", "w1", "user")
    assert len(ran(world, "video")) <= steps + 1
    assert not ran(world, "write_video"), "what needs it is skipped"
    assert len(ran(world, "sound")) == 6
    assert isinstance(world.terminal("r1"), CompleteRequest)
    assert world.terminal("r1").metrics.units == 1 + len(ran(world, "video")) + 6 + 1
    assert world.reserved() == {}
    assert world.workers["w1"].held == {}


def test_a_loop_in_a_window_is_cancelled_at_the_next_step():
    def sure(spec, loop, instance):
        units = plan(spec, loop, instance)
        return [replace(u, unconditional_next=len(units) - n - 1) for n, u in enumerate(units)]

    world = timed(sure, window_seconds_max=10.0)
    world.submit("first")
    world.finish()
    world.submit("r1")
    while not any(run.batch.window > 1 for run in world.running.values()):
        world.advance(world.clock_s + 0.001)
    (run,) = world.running.values()
    name = run.batch.loops[0].node_id
    at = world.clock_s
    cancel_loop(world, f"r1/{name}")
    while not world.made(CancelLoop):
        world.advance(world.clock_s + 0.001)
    assert world.clock_s - at <= 0.0115
    world.finish()
    assert isinstance(world.terminal("r1"), CompleteRequest)


def test_a_loop_that_has_not_begun_is_skipped():
    world = timed()
    world.submit("r1")
    cancel_loop(world, "r1/sound")
    world.finish()
    assert [d.loop.node_id for d in world.made(AssignLoop)] == ["encode", "video", "write_video"]
    assert isinstance(world.terminal("r1"), CompleteRequest)


def test_when_no_branch_is_left_the_request_is_cancelled():
    world = timed()
    world.submit("r1")
    world.advance(0.06)
    cancel_loop(world, "r1/video")
    cancel_loop(world, "r1/sound")
    world.finish()
    ended = world.terminal("r1")
    assert isinstance(ended, CancelRequest)
    assert ended.reason == "user"
    assert world.reserved() == {}


def test_a_loop_that_everything_needs_takes_the_request_with_it():
    world = timed(units_of, Catalog())
    world.submit("r1", steps=10)
    world.advance(0.05)
    cancel_loop(world, "r1/denoise")
    world.finish()
    assert isinstance(world.terminal("r1"), CancelRequest)
    assert world.terminal("r1").artifact_ids == ()
    assert world.workers["w1"].held == {}


def test_what_has_ended_before_stays_when_the_rest_is_cancelled():
    world = timed()
    world.submit("r1")
    while not ran(world, "write_sound"):
        world.advance(world.clock_s + 0.005)
    world.advance(world.clock_s + 0.02)
    cancel_loop(world, "r1/video")
    world.finish()
    # The sound is there, so the request completes with it.
    assert isinstance(world.terminal("r1"), CompleteRequest)


def test_a_request_without_a_place_loses_the_branch_at_once():
    world = Timed(catalog=Catalog(programs={MODEL: BRANCHES}), plan=plan)
    world.submit("r1")
    cancel_loop(world, "r1/video")
    (told,) = world.made(CancelLoop)
    assert told.worker_id == ""
    assert worker_command(told) is None
    world.attach()
    world.finish()
    assert not ran(world, "video")
    assert isinstance(world.terminal("r1"), CompleteRequest)


def test_a_cancelled_loop_stays_cancelled_on_another_worker():
    world = timed()
    world.submit("r1")
    world.advance(0.05)
    cancel_loop(world, "r1/video")
    world.advance(0.08)
    world.attach("w2")
    world.lose("w1")
    world.finish()
    assert not [d for d in world.made(AssignLoop) if d.loop.attempt == 2 and "video" in str(d.loop)]
    assert isinstance(world.terminal("r1"), CompleteRequest)


@pytest.mark.parametrize("target", ["r1/nothing", "r2/video", "r1", "", "/video"])
def test_what_there_is_not_cannot_be_cancelled(target):
    world = timed()
    world.submit("r1")
    world.advance(0.05)
    cancel_loop(world, target)
    world.finish()
    assert not world.made(CancelLoop)
    assert isinstance(world.terminal("r1"), CompleteRequest)


def test_a_loop_that_has_ended_or_was_cancelled_is_left_as_it_is():
    world = timed()
    world.submit("r1")
    world.advance(0.05)
    cancel_loop(world, "r1/encode")
    assert not world.made(CancelLoop)
    cancel_loop(world, "r1/sound")
    world.finish()
    cancel_loop(world, "r1/sound")
    assert len(world.made(CancelLoop)) == 1


def test_blocks_that_a_cancelled_loop_kept_are_free_again():
    def keeping(spec, loop, instance):
        kept = ResourceRequest(compute=True, cache_blocks=7, cache_blocks_kept=True)
        return [replace(u, resources=kept) for u in plan(spec, loop, instance)]

    world = timed(keeping)
    world.submit("r1")
    world.advance(0.06)
    assert world.reserved()["cache_blocks"] == 14
    cancel_loop(world, "r1/video")
    while not world.made(CancelLoop):
        world.advance(world.clock_s + 0.005)
    assert world.reserved()["cache_blocks"] == 7
    world.finish()
    assert world.reserved() == {}


# -- streams -----------------------------------------------------------------------------


def test_a_stream_is_cancelled_while_compute_goes_on():
    world = timed()
    world.submit("r1")
    world.advance(0.05)
    for _ in range(2):
        world.cancel("r1/preview", CancelScopeKind.STREAM)
    (told,) = world.made(CancelStream)
    assert worker_command(told) == (
        "w1",
        CancelStreamCommand(request_id="r1", attempt=1, name="preview"),
    )
    world.finish()
    assert isinstance(world.terminal("r1"), CompleteRequest)
    assert len(ran(world, "video")) == 12


def test_a_cancelled_stream_is_cancelled_wherever_the_request_goes():
    world = Timed(catalog=Catalog(programs={MODEL: BRANCHES}), plan=plan)
    world.submit("r1")
    world.cancel("r1/preview", CancelScopeKind.STREAM)
    assert not world.made(CancelStream)
    world.attach("w1")
    world.advance(0.05)
    world.attach("w2")
    world.lose("w1")
    world.finish()
    told = [(d.worker_id, d.attempt) for d in world.made(CancelStream)]
    assert told == [("w1", 1), ("w2", 2)]
    assert isinstance(world.terminal("r1"), CompleteRequest)


# -- sessions ----------------------------------------------------------------------------


def test_after_a_session_was_cancelled_its_next_request_runs():
    world = timed()
    world.submit("a1", session="s")
    world.submit("a2", session="s")
    world.submit("b1", session="t")
    world.advance(0.05)
    world.cancel("s", CancelScopeKind.SESSION)
    world.submit("a3", session="s")
    world.finish()
    ends = {name: type(world.terminal(name)).__name__ for name in ("a1", "a2", "a3", "b1")}
    assert ends == {
        "a1": "CancelRequest",
        "a2": "CancelRequest",
        "a3": "CompleteRequest",
        "b1": "CompleteRequest",
    }


# -- what others learn of it -------------------------------------------------------------


def test_a_worker_frees_the_one_loop_and_the_user_is_told():
    world = timed()
    world.submit("r1")
    world.advance(0.05)
    cancel_loop(world, "r1/video")
    world.finish()
    (told,) = world.made(CancelLoop)
    assert worker_command(told) == (
        "w1",
        ReleaseLoops(request_id="r1", attempt=1, node_ids=("video",)),
    )
    assert request_event(told) == (
        "r1",
        RequestLogged(level="info", message="loop video is cancelled: user", attempt=1),
    )


def test_a_cancelled_request_hands_over_the_artifacts_that_it_had():
    two_writes = program(
        node("write"), node("denoise"), edges=(edge("write", "denoise", "preview"),)
    )
    world = timed(units_of, Catalog(programs={MODEL: two_writes}))
    world.submit("r1", steps=50)
    world.advance(0.1)
    world.cancel("r1")
    world.finish()
    assert world.terminal("r1").artifact_ids == ("art_r1",)
