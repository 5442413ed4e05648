"""Scenarios of the whole core, with scripted workers in virtual time."""

from dataclasses import replace
from datetime import timedelta

import pytest

from fastvideo.requests.types import ErrorDetail
from fastvideo.scheduling.events import (
    AssignLoop,
    CancelRequest,
    CompleteRequest,
    DispatchBatch,
    FailRequest,
    LoopFailed,
    QueueRequest,
    ReportProgress,
    StartRequest,
)
from fastvideo.scheduling.inputs import RequestSubmitted
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.work import CancelScopeKind
from tests.unit.scheduling.world import (
    MODEL,
    START,
    Catalog,
    World,
    denoising,
    edge,
    node,
    program,
    request,
    units_of,
)


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


def test_units_of_requests_at_different_steps_share_batches():
    world = World()
    world.attach()
    world.submit("r1", steps=30)
    world.prepare()
    while not any(d.kind == "diffusion_step" for d in world.made(DispatchBatch)):
        world.step()
    world.submit("r2", steps=3)
    world.run()
    shared = [d for d in world.made(DispatchBatch) if len(d.unit_ids) > 1]
    assert shared
    steps = {unit_id.rsplit("/", 1)[1] for d in shared for unit_id in d.unit_ids}
    assert len(steps) > 1, "the requests were at different steps"
    for batch in shared:
        assert batch.kind == "diffusion_step"
        assert len({ref.request_id for ref in batch.loops}) == len(batch.loops)
    assert isinstance(world.terminal("r1"), CompleteRequest)
    assert isinstance(world.terminal("r2"), CompleteRequest)
    assert world.reserved() == {}


def test_one_compute_batch_in_flight_a_worker_while_writes_use_their_own_slots():
    world = World()
    world.attach(io_slots=2)
    for n in range(6):
        world.submit(f"r{n}", steps=2 + n)
    while world.step():
        batches = world.workers["w1"].batches.values()
        assert sum(d.kind != "artifact_write" for d in batches) <= 1
        assert sum(d.kind == "artifact_write" for d in batches) <= 2
    assert world.core.live_requests == 0


def test_a_request_waits_with_position_and_reason_only_when_it_must():
    world = World(policy=SchedulingPolicy(resident_requests_max=1))
    world.submit("r0")
    queued = world.made(QueueRequest)
    assert queued == [
        QueueRequest(request_id="r0", position=1, reason="no attached worker has model tiny")
    ]
    world.attach()
    world.submit("r1")
    world.submit("r2")
    assert [(d.request_id, d.position) for d in world.made(QueueRequest)[1:]] == [
        ("r1", 1),
        ("r2", 2),
    ]
    assert "all 1 places" in world.made(QueueRequest)[-1].reason
    world.run()
    assert all(isinstance(world.terminal(f"r{n}"), CompleteRequest) for n in range(3))


def test_a_waiting_request_is_cancelled_at_once():
    world = World(policy=SchedulingPolicy(resident_requests_max=1))
    world.attach()
    world.submit("r1")
    world.submit("r2")
    world.cancel("r2")
    cancelled = world.terminal("r2")
    assert isinstance(cancelled, CancelRequest)
    assert cancelled.boundary == "queued"
    world.run()
    assert isinstance(world.terminal("r1"), CompleteRequest)
    assert world.reserved() == {}


def test_a_running_request_is_cancelled_at_its_next_boundary():
    world = World()
    world.attach()
    world.submit("r1", steps=20)
    while world.core.workers[0].batches_in_flight == 0 or not denoising(world, 7):
        world.step()
    world.cancel("r1")
    assert not world.made(CancelRequest), "its unit runs"
    units = len(world.made(DispatchBatch))
    world.execute()
    cancelled = world.terminal("r1")
    assert isinstance(cancelled, CancelRequest)
    assert cancelled.boundary == "denoise 7/20"
    assert cancelled.reason == "user"
    assert len(world.made(DispatchBatch)) == units, "no unit began after the cancel"
    assert world.workers["w1"].held == {}
    assert world.reserved() == {}


def test_no_boundary_before_a_unit_lets_it_run_on():
    def plan(spec, loop, instance):
        return [
            replace(u, cancel_boundary=u.step_range.start % 3 == 0)
            for u in units_of(spec, loop, instance)
        ]

    world = World(plan=plan)
    world.attach()
    world.submit("r1", steps=9)
    while not denoising(world, 5):
        world.step()
    world.cancel("r1")
    world.run()
    assert world.terminal("r1").boundary == "denoise 6/9"


def test_a_session_scope_cancels_the_requests_of_the_session():
    world = World()
    world.attach()
    world.submit("a1", session="s")
    world.submit("a2", session="s")
    world.submit("b1", session="t")
    world.cancel("s", CancelScopeKind.SESSION)
    world.run()
    assert isinstance(world.terminal("a1"), CancelRequest)
    assert isinstance(world.terminal("a2"), CancelRequest)
    assert isinstance(world.terminal("b1"), CompleteRequest)


def test_a_unit_error_fails_its_request_and_no_other():
    world = World()
    world.attach()
    world.submit("good", steps=5)
    world.submit("bad", steps=5)
    while not _sharing(world, "good", "bad"):
        world.step()
    report = world.execution()
    results = tuple(
        replace(r, next_plan=None, loop_result=None, error=ErrorDetail(reason="NAN_LATENTS"))
        if r.loop.request_id == "bad"
        else r
        for r in report.results
    )
    world.tell(replace(report, results=results))
    failed = world.terminal("bad")
    assert isinstance(failed, FailRequest)
    assert failed.error.reason == "NAN_LATENTS"
    world.run()
    assert isinstance(world.terminal("good"), CompleteRequest)
    assert world.reserved() == {}


def test_a_missing_result_fails_the_request():
    world = World()
    world.attach()
    world.submit("r1")
    world.prepare()
    world.tell(replace(world.execution(), results=()))
    assert world.terminal("r1").error.reason == "CONTRACT_VIOLATION"
    assert world.reserved() == {}


def test_a_loop_that_cannot_be_made_fails_its_request():
    world = World()
    world.attach()
    world.submit("r1")
    loop = world.workers["w1"].preparing[0].loop
    world.tell(LoopFailed(worker_id="w1", loop=loop, error=ErrorDetail(reason="PROMPT_TOO_LONG")))
    assert world.terminal("r1").error.reason == "PROMPT_TOO_LONG"
    assert world.reserved() == {}


def test_a_passed_deadline_fails_the_request():
    world = World()
    world.submit("r1", deadline_s=5)
    assert world.core.next_deadline() == START + timedelta(seconds=5)
    world.tick(4.9)
    assert world.core.live_requests == 1
    world.tick(0.2)
    assert world.terminal("r1").error.reason == "DEADLINE_EXCEEDED"
    assert world.core.next_deadline() is None


@pytest.mark.row("SCH-03")
def test_what_can_never_fit_fails_at_once_and_names_the_resource():
    world = World()
    world.attach(memory=5)
    world.submit("r1")
    world.prepare()
    error = world.terminal("r1").error
    assert error.reason == "RESOURCE_EXHAUSTED"
    assert error.subject == "memory_bytes/activations"
    assert error.attributes == {"needed": "10", "limit": "5"}
    assert not world.made(DispatchBatch)
    assert world.reserved() == {}


def test_memory_bounds_the_batch():
    world = World()
    world.attach(memory=25)
    for n in range(5):
        world.submit(f"r{n}", steps=5)
    world.run()
    assert max(len(d.unit_ids) for d in world.made(DispatchBatch)) == 2
    assert world.core.live_requests == 0


def test_an_unknown_model_or_program_fails_typed():
    world = World()
    world.submit("r1", model="other")
    assert world.terminal("r1").error.reason == "NOT_FOUND"


def test_duplicates_change_nothing():
    world = World()
    world.attach()
    world.submit("r1")
    spec = world.specs["r1"]
    assert world.tell(RequestSubmitted(spec=spec)) == ()
    world.prepare()
    report = world.execution()
    world.tell(report)
    assert world.tell(report) == ()
    world.run()
    assert isinstance(world.terminal("r1"), CompleteRequest)
    assert world.cancel("r1") == ()


def test_branches_of_a_program_run_side_by_side():
    diamond = program(
        node("a"),
        node("b"),
        node("c"),
        node("d"),
        edges=(edge("a", "b"), edge("a", "c"), edge("b", "d", "left"), edge("c", "d", "right")),
    )
    world = World(catalog=Catalog(programs={MODEL: diamond}))
    world.attach()
    world.submit("r1")
    world.run()
    assert isinstance(world.terminal("r1"), CompleteRequest)
    *begun, last = [d.loop for d in world.made(AssignLoop)]
    assert [loop.node_id for loop in begun] == ["a", "b", "c"]
    assert last.node_id == "d"


def test_a_loop_is_told_where_its_inputs_are():
    world = World()
    world.attach()
    world.submit("r1")
    world.prepare()
    world.execute()
    loop = world.made(AssignLoop)[-1].loop
    assert world.core.loop_inputs(loop) == {"text": "encode.text"}


def test_a_new_leader_goes_on_counting():
    world = World(epoch=7)
    world.attach()
    spec = request("r1")
    world.specs["r1"] = spec
    world.tell(
        RequestSubmitted(spec=spec, attempts=2, progress=0.5, started_at=START, accepted_at=START)
    )
    world.run()
    assert world.terminal("r1").metrics.attempts == 3
    assert world.made(DispatchBatch)[0].batch_id == "7-1"
    assert min(d.fraction for d in world.made(ReportProgress)) > 0.5


def _sharing(world: World, *request_ids: str) -> bool:
    batches = [b for w in world.workers.values() for b in w.batches.values()]
    return any(set(request_ids) <= {r.request_id for r in b.loops} for b in batches)
