"""Attempts saved at a boundary: they go on with equal bits, and nothing is lost or left over."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from fastvideo.engine.executor import ExecutorLimits
from fastvideo.errors import NotFound, Unavailable
from fastvideo.loops.contract import PlanContext
from fastvideo.requests.types import OutputSpec
from fastvideo.scheduling.commands import (
    ReleaseLoops,
    SnapshotLoops,
)
from fastvideo.scheduling.events import LoopFailed, RequestSnapshotted
from fastvideo.scheduling.work import (
    CancelScope,
    CancelScopeKind,
    WorkPlan,
)
from tests.unit.engine.snapshot_driving import (
    MakeCommand,
    MakeRequest,
    World,
    digests,
    restored,
    run,
    snapshot,
    window,
)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_preempted_at_any_boundary_other_work_done_resumed_with_equal_bits(
    make_world: type[World], make_request: MakeRequest, make_command: MakeCommand, elsewhere: bool
) -> None:
    request = make_request("r", steps=5, seed=3)
    undisturbed = make_world()
    expected = run(undisturbed, undisturbed.prepare(request))
    for boundary in range(5):
        world = make_world()
        before = run(world, world.prepare(request), boundary)
        event = snapshot(world, "r")
        assert event.error is None
        assert event.released
        assert world.pools.in_use_bytes() == world.start_bytes
        [saved] = event.snapshots
        assert (saved.state_version, saved.steps_done, saved.steps) == (boundary, boundary, 5)
        assert (saved.weights_version, saved.card_digest) == ("w1", "0" * 64)
        run(world, world.prepare(make_request("other", seed=9)))
        there = make_world(shelf=world.shelf) if elsewhere else world
        command = replace(make_command(request, attempt=2), restore=saved)
        after = run(there, restored(there, command))
        assert digests(before) + digests(after) == digests(expected)
        assert after[-1].loop_result is not None
        assert expected[-1].loop_result is not None
        assert after[-1].loop_result.digests == expected[-1].loop_result.digests
        assert [result.unit_id for result in after] == [
            f"r/spin/2/{step}" for step in range(boundary, 5)
        ]


def test_a_snapshot_of_a_loop_that_goes_on_is_of_a_boundary_and_stops_nothing(
    make_world: type[World], make_request: MakeRequest, make_command: MakeCommand
) -> None:
    request = make_request("r", steps=8)
    undisturbed = make_world()
    expected = digests(run(undisturbed, undisturbed.prepare(request)))
    world = make_world()
    taken: list[RequestSnapshotted] = []

    def during_step() -> None:
        if len(world.kernel.batches) == 4:
            # From another thread, while the fourth step runs: it does not wait for it.
            thread = threading.Thread(
                target=lambda: taken.append(snapshot(world, "r", release=False))
            )
            thread.start()
            thread.join(10)
            assert len(taken) == 1

    world.kernel.during_step = during_step
    executed = window(world, world.prepare(request), steps=8)
    assert (len(executed.results), executed.yielded) == (8, False)
    assert digests(list(executed.results)) == expected
    [saved] = taken[0].snapshots
    assert (saved.state_version, taken[0].released, taken[0].error) == (3, False, None)
    assert saved.state_digest == expected[2]
    there = make_world(shelf=world.shelf)
    command = replace(make_command(request, attempt=2), restore=saved)
    assert digests(run(there, restored(there, command))) == expected[3:]


def test_what_ended_loops_left_is_saved_and_put_back_for_the_nodes_that_follow(
    make_world: type[World], make_request: MakeRequest, make_command: MakeCommand
) -> None:
    request = make_request("r", steps=4)
    undisturbed, world = make_world(), make_world()
    inputs = {"start": "first.row"}
    run(undisturbed, undisturbed.prepare(request, node_id="first"))
    expected = run(undisturbed, undisturbed.prepare(request, node_id="second", inputs=inputs))

    [*_, ended] = run(world, world.prepare(request, node_id="first"))
    before = run(world, world.prepare(request, node_id="second", inputs=inputs), 1)
    by_node = {saved.loop.node_id: saved for saved in snapshot(world, "r").snapshots}
    assert by_node.keys() == {"first", "second"}
    assert (by_node["first"].ended, by_node["second"].ended) == (True, False)
    assert by_node["first"].loop_result == ended.loop_result
    assert (by_node["first"].state_digest, by_node["first"].steps_done) == ("", 4)

    there = make_world(shelf=world.shelf)
    for node_id in ("second", "first"):
        command = make_command(request, node_id=node_id, inputs=inputs, attempt=2)
        plan = restored(there, replace(command, restore=by_node[node_id]))
        if node_id == "first":
            assert (plan.units, plan.state_version) == ((), 4)
            continue
        after = run(there, plan)
    assert digests(before) + digests(after) == digests(expected)
    values = there.executor.values.all(("r", 2))
    for name, value in undisturbed.executor.values.all(("r", 1)).items():
        assert torch.equal(values[name], value)
    # What was put back can be saved again, and goes with the request.
    again = there.executor.snapshot(SnapshotLoops(request_id="r", attempt=2))
    assert {saved.digest for saved in again.snapshots} >= {by_node["first"].digest}
    there.executor.release(ReleaseLoops(request_id="r", attempt=2))
    assert there.pools.in_use_bytes() == there.start_bytes


def test_a_loop_inside_of_a_section_is_saved_as_of_its_last_boundary(
    make_world: type[World], make_request: MakeRequest, make_command: MakeCommand
) -> None:
    request = make_request("r", steps=7)
    undisturbed, world = make_world(), make_world()
    expected = digests(run(undisturbed, undisturbed.prepare(request)))
    for each in (world, undisturbed):
        _in_sections(each, 3)
    before = run(world, world.prepare(request), 5)
    going_on, set_aside = (snapshot(world, "r", release=release) for release in (False, True))
    assert going_on.snapshots == set_aside.snapshots
    [saved] = set_aside.snapshots
    assert (saved.state_version, saved.steps_done) == (3, 3)
    assert world.executor.loops == 0
    plan = restored(world, replace(make_command(request, attempt=2), restore=saved))
    assert digests(before)[:3] + digests(run(world, plan)) == expected


def test_a_window_that_runs_ends_at_its_next_boundary_when_its_loop_is_to_be_moved(
    world: World, make_request: MakeRequest, make_command: MakeCommand
) -> None:
    request = make_request("r", steps=9)
    taken: list[RequestSnapshotted] = []
    thread = threading.Thread(target=lambda: taken.append(snapshot(world, "r")))

    def during_step() -> None:
        if len(world.kernel.batches) == 3:
            thread.start()
            _wait_until(lambda: _is_pausing(world))

    world.kernel.during_step = during_step
    executed = window(world, world.prepare(request), steps=9)
    thread.join(10)
    assert (len(executed.results), executed.yielded) == (3, True)
    [saved] = taken[0].snapshots
    assert saved.state_version == 3
    assert world.executor.loops == 0
    plan = restored(world, replace(make_command(request, attempt=2), restore=saved))
    assert len(run(world, plan)) == 6


def test_nothing_of_an_attempt_runs_while_it_is_saved_to_be_moved(
    world: World, make_request: MakeRequest
) -> None:
    plan = world.prepare(make_request("r"))
    put_blob, ran = world.shelf.put_blob, []

    def meanwhile(data: bytes) -> str:
        ran.append(window(world, plan).results[0])
        digest: str = put_blob(data)
        return digest

    world.shelf.put_blob = meanwhile
    assert snapshot(world, "r").released
    [result] = ran
    assert result.error is not None
    assert result.error.reason == "LOOP_RUNNING"
    assert world.kernel.batches == []


def test_a_step_that_does_not_end_is_waited_for_no_longer_than_allowed(
    make_world: type[World], make_request: MakeRequest
) -> None:
    world = make_world(limits=ExecutorLimits(boundary_s=0.01))
    taken: list[RequestSnapshotted] = []

    def during_step() -> None:
        if not taken:
            thread = threading.Thread(target=lambda: taken.append(snapshot(world, "r")))
            thread.start()
            thread.join(10)

    world.kernel.during_step = during_step
    executed = window(world, world.prepare(make_request("r", steps=4)), steps=4)
    [event] = taken
    assert event.error is not None
    assert event.error.reason == "DEADLINE_EXCEEDED"
    assert (event.released, event.snapshots) == (False, ())
    # It goes on as if nobody had asked.
    assert len(executed.results) == 4


def test_what_cannot_be_stored_is_told_and_the_attempt_goes_on(
    world: World, make_request: MakeRequest
) -> None:
    [result] = run(world, world.prepare(make_request("r", steps=3)), 1)
    in_use = world.pools.in_use_bytes()

    def away(data: bytes) -> str:
        raise Unavailable("the store is away")

    world.shelf.put_blob = away
    event = snapshot(world, "r")
    assert event.error is not None
    assert event.error.reason == "UNAVAILABLE"
    assert not event.released
    assert world.pools.in_use_bytes() == in_use
    assert len(run(world, result.next_plan)) == 2


def test_staging_is_taken_while_bytes_are_made_and_must_fit(
    make_world: type[World], make_request: MakeRequest
) -> None:
    world = make_world()
    put_blob, seen = world.shelf.put_blob, []

    def put_and_look(data: bytes) -> str:
        seen.append(world.pools.in_use_bytes()["staging"])
        return put_blob(data)

    world.shelf.put_blob = put_and_look
    world.prepare(make_request("r"))
    [saved] = snapshot(world, "r").snapshots
    assert seen[0] >= saved.size_bytes
    assert world.pools.in_use_bytes()["staging"] == 0
    small = make_world(budget_bytes=25_000)
    small.prepare(make_request("r"))
    event = snapshot(small, "r")
    assert event.error is not None
    assert (event.error.reason, event.error.subject) == ("OUT_OF_MEMORY", "staging")


def test_a_boundary_that_is_saved_already_is_not_saved_again(
    world: World, make_request: MakeRequest
) -> None:
    put_blob, puts = world.shelf.put_blob, []

    def put_and_count(data: bytes) -> str:
        puts.append(len(data))
        return put_blob(data)

    world.shelf.put_blob = put_and_count
    run(world, world.prepare(make_request("r", steps=2), node_id="first"))
    plan = world.prepare(make_request("r", steps=5), node_id="second")
    first = snapshot(world, "r", release=False)
    assert snapshot(world, "r", release=False).snapshots == first.snapshots
    assert len(puts) == 2
    window(world, plan)
    moved = snapshot(world, "r", release=False).snapshots
    assert len(puts) == 3
    assert moved[0] == first.snapshots[0]
    assert moved[1] != first.snapshots[1]


def test_an_attempt_of_which_nothing_is_here_has_no_snapshots_and_may_not_come_back(
    world: World, make_request: MakeRequest, make_command: MakeCommand
) -> None:
    event = snapshot(world, "nobody", release=False)
    assert (event.snapshots, event.error, event.released) == ((), None, False)
    world.prepare(make_request("r"))
    assert snapshot(world, "r").released
    # Also when no loop lives at that moment, and when nothing was there at all.
    run(world, world.prepare(make_request("between", steps=1)))
    assert snapshot(world, "between").released
    assert snapshot(world, "nobody").released
    for name in ("r", "between", "nobody"):
        late = world.executor.prepare(make_command(make_request(name), node_id="late"))
        assert isinstance(late, LoopFailed)
        assert late.error.reason == "LOOP_RELEASED"
    assert world.pools.in_use_bytes() == world.start_bytes


def test_a_request_that_is_cancelled_while_it_is_saved_is_gone(
    world: World, make_request: MakeRequest
) -> None:
    world.prepare(make_request("r"))
    put_blob = world.shelf.put_blob

    def cancelled(data: bytes) -> str:
        world.executor.cancel(CancelScope(kind=CancelScopeKind.REQUEST, target_id="r"))
        # Freed at once, though what was taken is still being stored.
        assert world.executor.loops == 0
        digest: str = put_blob(data)
        return digest

    world.shelf.put_blob = cancelled
    for release in (False, True):
        snapshot(world, "r", release=release)
        assert world.executor.loops == 0
        assert world.pools.in_use_bytes() == world.start_bytes


def test_files_that_were_written_are_not_written_again_after_a_move(
    make_world: type[World], make_request: MakeRequest, make_command: MakeCommand
) -> None:
    outputs = OutputSpec(video=True, preview=True, sheet=True)
    request = make_request("r", steps=1, outputs=outputs)
    world = make_world()
    run(world, world.prepare(request))
    inputs = {"frames": "spin.frames"}
    written = run(world, world.prepare(request, node_id="write", loop_id="write", inputs=inputs), 2)
    by_node = {saved.loop.node_id: saved for saved in snapshot(world, "r").snapshots}
    there = make_world(shelf=world.shelf)
    command = make_command(request, node_id="write", loop_id="write", inputs=inputs, attempt=2)
    rest = run(there, restored(there, replace(command, restore=by_node["write"])))
    assert len(written) + len(rest) == 3
    result = rest[-1].loop_result
    assert result is not None
    here, other = world.artifacts, there.artifacts
    assert len(result.artifact_ids) == 3
    for artifact_id, store in zip(result.artifact_ids, (here, here, other), strict=True):
        assert store.get(artifact_id)
    with pytest.raises(NotFound):
        other.get(result.artifact_ids[0])


def _in_sections(world: World, steps: int) -> None:
    """Let the toy loop be stopped before every so many steps only."""
    plan_step = world.kernel.plan_step

    def in_sections(state: Any, context: PlanContext) -> WorkPlan | None:
        plan: WorkPlan | None = plan_step(state, context)
        if plan is None:
            return None
        boundary = state.version % steps == 0
        return replace(
            plan, units=tuple(replace(unit, cancel_boundary=boundary) for unit in plan.units)
        )

    world.kernel.plan_step = in_sections


def _is_pausing(world: World) -> bool:
    return any(loop.pausing for loop in world.executor._loops._loops.values())


def _wait_until(condition: Callable[[], bool]) -> None:
    woken = threading.Event()
    for _ in range(6_000):
        if condition():
            return
        woken.wait(0.01)
    raise AssertionError("it did not come about")
