"""Attempts saved at a boundary: they go on with equal bits, and nothing is lost or left over."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from fastvideo.engine.executor import ExecutorLimits
from fastvideo.engine.snapshotting import SnapshotGone
from fastvideo.errors import FastVideoError, NotFound, Unavailable
from fastvideo.loops.contract import PlanContext
from fastvideo.loops.snapshot_format import SnapshotMismatch
from fastvideo.requests.types import OutputSpec, RequestSpec
from fastvideo.scheduling.commands import (
    ExecuteBatch,
    PrepareLoop,
    ReleaseLoops,
    SnapshotLoops,
)
from fastvideo.scheduling.events import BatchExecuted, LoopFailed, LoopPrepared, RequestSnapshotted
from fastvideo.scheduling.work import (
    CancelScope,
    CancelScopeKind,
    LoopSnapshot,
    StepResult,
    WorkPlan,
)

World = Any
MakeRequest = Callable[..., RequestSpec]
MakeCommand = Callable[..., PrepareLoop]


def _window(world: World, plan: WorkPlan, steps: int = 1) -> BatchExecuted:
    [unit] = plan.units
    executed: BatchExecuted = world.executor.execute(
        ExecuteBatch(batch_id="b", kind=unit.kind, unit_ids=(unit.unit_id,), window=steps)
    )
    return executed


def _run(world: World, plan: WorkPlan | None, steps: int = 1_000) -> list[StepResult]:
    """Run a loop for some steps or to its end."""
    results: list[StepResult] = []
    while plan is not None and plan.units and len(results) < steps:
        [result] = _window(world, plan).results
        assert result.error is None, result.error
        results.append(result)
        plan = result.next_plan
    return results


def _digests(results: list[StepResult]) -> list[str]:
    return [result.state_digest for result in results]


def _snapshot(world: World, request_id: str, *, release: bool = True) -> RequestSnapshotted:
    event: RequestSnapshotted = world.executor.snapshot(
        SnapshotLoops(request_id=request_id, attempt=1, release=release)
    )
    return event


def _restored(world: World, command: PrepareLoop) -> WorkPlan:
    assert command.restore is not None
    event = world.executor.prepare(command, world.executor.fetch(command.restore))
    assert isinstance(event, LoopPrepared), event
    return event.plan


@pytest.mark.parametrize("elsewhere", [False, True])
def test_preempted_at_any_boundary_other_work_done_resumed_with_equal_bits(
    make_world: type[World], make_request: MakeRequest, make_command: MakeCommand, elsewhere: bool
) -> None:
    request = make_request("r", steps=5, seed=3)
    undisturbed = make_world()
    expected = _run(undisturbed, undisturbed.prepare(request))
    for boundary in range(5):
        world = make_world()
        before = _run(world, world.prepare(request), boundary)
        event = _snapshot(world, "r")
        assert event.error is None
        assert event.released
        assert world.pools.in_use_bytes() == world.start_bytes
        [saved] = event.snapshots
        assert (saved.state_version, saved.steps_done, saved.steps) == (boundary, boundary, 5)
        assert (saved.weights_version, saved.card_digest) == ("w1", "0" * 64)
        _run(world, world.prepare(make_request("other", seed=9)))
        there = make_world(shelf=world.shelf) if elsewhere else world
        command = replace(make_command(request, attempt=2), restore=saved)
        after = _run(there, _restored(there, command))
        assert _digests(before) + _digests(after) == _digests(expected)
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
    expected = _digests(_run(undisturbed, undisturbed.prepare(request)))
    world = make_world()
    taken: list[RequestSnapshotted] = []

    def during_step() -> None:
        if len(world.kernel.batches) == 4:
            # From another thread, while the fourth step runs: it does not wait for it.
            thread = threading.Thread(
                target=lambda: taken.append(_snapshot(world, "r", release=False))
            )
            thread.start()
            thread.join(10)
            assert len(taken) == 1

    world.kernel.during_step = during_step
    executed = _window(world, world.prepare(request), steps=8)
    assert (len(executed.results), executed.yielded) == (8, False)
    assert _digests(list(executed.results)) == expected
    [saved] = taken[0].snapshots
    assert (saved.state_version, taken[0].released, taken[0].error) == (3, False, None)
    assert saved.state_digest == expected[2]
    there = make_world(shelf=world.shelf)
    command = replace(make_command(request, attempt=2), restore=saved)
    assert _digests(_run(there, _restored(there, command))) == expected[3:]


def test_what_ended_loops_left_is_saved_and_put_back_for_the_nodes_that_follow(
    make_world: type[World], make_request: MakeRequest, make_command: MakeCommand
) -> None:
    request = make_request("r", steps=4)
    undisturbed, world = make_world(), make_world()
    inputs = {"start": "first.row"}
    _run(undisturbed, undisturbed.prepare(request, node_id="first"))
    expected = _run(undisturbed, undisturbed.prepare(request, node_id="second", inputs=inputs))

    [*_, ended] = _run(world, world.prepare(request, node_id="first"))
    before = _run(world, world.prepare(request, node_id="second", inputs=inputs), 1)
    by_node = {saved.loop.node_id: saved for saved in _snapshot(world, "r").snapshots}
    assert by_node.keys() == {"first", "second"}
    assert (by_node["first"].ended, by_node["second"].ended) == (True, False)
    assert by_node["first"].loop_result == ended.loop_result
    assert (by_node["first"].state_digest, by_node["first"].steps_done) == ("", 4)

    there = make_world(shelf=world.shelf)
    for node_id in ("second", "first"):
        command = make_command(request, node_id=node_id, inputs=inputs, attempt=2)
        plan = _restored(there, replace(command, restore=by_node[node_id]))
        if node_id == "first":
            assert (plan.units, plan.state_version) == ((), 4)
            continue
        after = _run(there, plan)
    assert _digests(before) + _digests(after) == _digests(expected)
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
    expected = _digests(_run(undisturbed, undisturbed.prepare(request)))
    for each in (world, undisturbed):
        _in_sections(each, 3)
    before = _run(world, world.prepare(request), 5)
    going_on, set_aside = (_snapshot(world, "r", release=release) for release in (False, True))
    assert going_on.snapshots == set_aside.snapshots
    [saved] = set_aside.snapshots
    assert (saved.state_version, saved.steps_done) == (3, 3)
    assert world.executor.loops == 0
    plan = _restored(world, replace(make_command(request, attempt=2), restore=saved))
    assert _digests(before)[:3] + _digests(_run(world, plan)) == expected


def test_a_window_that_runs_ends_at_its_next_boundary_when_its_loop_is_to_be_moved(
    world: World, make_request: MakeRequest, make_command: MakeCommand
) -> None:
    request = make_request("r", steps=9)
    taken: list[RequestSnapshotted] = []
    thread = threading.Thread(target=lambda: taken.append(_snapshot(world, "r")))

    def during_step() -> None:
        if len(world.kernel.batches) == 3:
            thread.start()
            _wait_until(lambda: _is_pausing(world))

    world.kernel.during_step = during_step
    executed = _window(world, world.prepare(request), steps=9)
    thread.join(10)
    assert (len(executed.results), executed.yielded) == (3, True)
    [saved] = taken[0].snapshots
    assert saved.state_version == 3
    assert world.executor.loops == 0
    plan = _restored(world, replace(make_command(request, attempt=2), restore=saved))
    assert len(_run(world, plan)) == 6


def test_nothing_of_an_attempt_runs_while_it_is_saved_to_be_moved(
    world: World, make_request: MakeRequest
) -> None:
    plan = world.prepare(make_request("r"))
    put_blob, ran = world.shelf.put_blob, []

    def meanwhile(data: bytes) -> str:
        ran.append(_window(world, plan).results[0])
        digest: str = put_blob(data)
        return digest

    world.shelf.put_blob = meanwhile
    assert _snapshot(world, "r").released
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
            thread = threading.Thread(target=lambda: taken.append(_snapshot(world, "r")))
            thread.start()
            thread.join(10)

    world.kernel.during_step = during_step
    executed = _window(world, world.prepare(make_request("r", steps=4)), steps=4)
    [event] = taken
    assert event.error is not None
    assert event.error.reason == "DEADLINE_EXCEEDED"
    assert (event.released, event.snapshots) == (False, ())
    # It goes on as if nobody had asked.
    assert len(executed.results) == 4


def test_what_cannot_be_stored_is_told_and_the_attempt_goes_on(
    world: World, make_request: MakeRequest
) -> None:
    [result] = _run(world, world.prepare(make_request("r", steps=3)), 1)
    in_use = world.pools.in_use_bytes()

    def away(data: bytes) -> str:
        raise Unavailable("the store is away")

    world.shelf.put_blob = away
    event = _snapshot(world, "r")
    assert event.error is not None
    assert event.error.reason == "UNAVAILABLE"
    assert not event.released
    assert world.pools.in_use_bytes() == in_use
    assert len(_run(world, result.next_plan)) == 2


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
    [saved] = _snapshot(world, "r").snapshots
    assert seen[0] >= saved.size_bytes
    assert world.pools.in_use_bytes()["staging"] == 0
    small = make_world(budget_bytes=25_000)
    small.prepare(make_request("r"))
    event = _snapshot(small, "r")
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
    _run(world, world.prepare(make_request("r", steps=2), node_id="first"))
    plan = world.prepare(make_request("r", steps=5), node_id="second")
    first = _snapshot(world, "r", release=False)
    assert _snapshot(world, "r", release=False).snapshots == first.snapshots
    assert len(puts) == 2
    _window(world, plan)
    moved = _snapshot(world, "r", release=False).snapshots
    assert len(puts) == 3
    assert moved[0] == first.snapshots[0]
    assert moved[1] != first.snapshots[1]


def test_an_attempt_of_which_nothing_is_here_has_no_snapshots_and_may_not_come_back(
    world: World, make_request: MakeRequest, make_command: MakeCommand
) -> None:
    event = _snapshot(world, "nobody", release=False)
    assert (event.snapshots, event.error, event.released) == ((), None, False)
    world.prepare(make_request("r"))
    assert _snapshot(world, "r").released
    # Also when no loop lives at that moment, and when nothing was there at all.
    _run(world, world.prepare(make_request("between", steps=1)))
    assert _snapshot(world, "between").released
    assert _snapshot(world, "nobody").released
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
        _snapshot(world, "r", release=release)
        assert world.executor.loops == 0
        assert world.pools.in_use_bytes() == world.start_bytes


def _refusal(world: World, command: PrepareLoop) -> FastVideoError:
    assert command.restore is not None
    try:
        saved = world.executor.fetch(command.restore)
    except FastVideoError as error:
        return error
    event = world.executor.prepare(command, saved)
    assert isinstance(event, LoopFailed)
    assert world.executor.loops == 0
    told = event.error
    return FastVideoError(told.message, reason=told.reason, subject=told.subject)


@pytest.mark.parametrize(
    ("change", "reason", "subject"),
    [
        ({"weights_version": "w2"}, "SNAPSHOT_MISMATCH", "weights_version"),
        ({"card_digest": "1" * 64}, "SNAPSHOT_MISMATCH", "card_digest"),
        ({"state_digest": "1" * 64}, "SNAPSHOT_MISMATCH", "state_digest"),
        ({"format": 2}, "SNAPSHOT_MISMATCH", "format"),
        ({"ended": True}, "SNAPSHOT_MISMATCH", "kind"),
        ({"digest": "1" * 64}, "SNAPSHOT_GONE", "1" * 64),
    ],
)
def test_a_snapshot_that_does_not_fit_is_refused_and_leaves_nothing(
    world: World,
    make_request: MakeRequest,
    make_command: MakeCommand,
    change: dict[str, Any],
    reason: str,
    subject: str,
) -> None:
    request = make_request("r")
    world.prepare(request)
    [saved] = _snapshot(world, "r").snapshots
    command = replace(make_command(request, attempt=2), restore=replace(saved, **change))
    error = _refusal(world, command)
    assert (error.reason, error.subject) == (reason, subject)
    assert world.pools.in_use_bytes() == world.start_bytes
    assert len(_run(world, _restored(world, replace(command, restore=saved)))) == 3


def test_outputs_that_do_not_fit_are_refused_whole(
    make_world: type[World], make_request: MakeRequest, make_command: MakeCommand
) -> None:
    request = make_request("r")
    world = make_world()
    _run(world, world.prepare(request))
    [saved] = _snapshot(world, "r").snapshots
    # Of three values the last does not fit.
    there = make_world(shelf=world.shelf, limits=ExecutorLimits(values_per_request=2))
    error = _refusal(there, replace(make_command(request, attempt=2), restore=saved))
    assert (error.reason, error.subject) == ("RESOURCE_EXHAUSTED", "values")
    there.executor.release(ReleaseLoops(request_id="r", attempt=2))
    assert there.pools.in_use_bytes() == there.start_bytes
    assert there.executor.snapshot(SnapshotLoops(request_id="r", attempt=2)).snapshots == ()


def test_a_snapshot_under_changed_weights_is_refused(
    make_world: type[World], make_request: MakeRequest, make_command: MakeCommand
) -> None:
    request = make_request("r")
    world = make_world()
    world.prepare(request)
    [saved] = _snapshot(world, "r").snapshots
    there = make_world(shelf=world.shelf)
    there.residents.find("mi_toy").weights_version = "w2"
    error = _refusal(there, replace(make_command(request, attempt=2), restore=saved))
    assert (error.reason, error.subject) == ("SNAPSHOT_MISMATCH", "weights_version")


def test_without_a_store_snapshots_are_unsupported(
    make_world: type[World], make_request: MakeRequest, make_command: MakeCommand
) -> None:
    world = make_world(shelf=None)
    with pytest.raises(FastVideoError) as caught:
        _snapshot(world, "r")
    assert caught.value.reason == "SNAPSHOT_UNSUPPORTED"
    restore = LoopSnapshot(loop=make_command(make_request("r")).loop)
    event = world.executor.prepare(replace(make_command(make_request("r")), restore=restore))
    assert isinstance(event, LoopFailed)
    assert event.error.reason == "SNAPSHOT_UNSUPPORTED"


def test_files_that_were_written_are_not_written_again_after_a_move(
    make_world: type[World], make_request: MakeRequest, make_command: MakeCommand
) -> None:
    outputs = OutputSpec(video=True, preview=True, sheet=True)
    request = make_request("r", steps=1, outputs=outputs)
    world = make_world()
    _run(world, world.prepare(request))
    inputs = {"frames": "spin.frames"}
    written = _run(
        world, world.prepare(request, node_id="write", loop_id="write", inputs=inputs), 2
    )
    by_node = {saved.loop.node_id: saved for saved in _snapshot(world, "r").snapshots}
    there = make_world(shelf=world.shelf)
    command = make_command(request, node_id="write", loop_id="write", inputs=inputs, attempt=2)
    rest = _run(there, _restored(there, replace(command, restore=by_node["write"])))
    assert len(written) + len(rest) == 3
    result = rest[-1].loop_result
    assert result is not None
    here, other = world.artifacts, there.artifacts
    assert len(result.artifact_ids) == 3
    for artifact_id, store in zip(result.artifact_ids, (here, here, other), strict=True):
        assert store.get(artifact_id)
    with pytest.raises(NotFound):
        other.get(result.artifact_ids[0])


def test_the_two_errors_of_snapshots_are_preconditions_with_their_own_reasons() -> None:
    assert SnapshotGone("gone").reason == "SNAPSHOT_GONE"
    assert SnapshotMismatch("other").reason == "SNAPSHOT_MISMATCH"


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
    for _ in range(1_000):
        if condition():
            return
        woken.wait(0.01)
    raise AssertionError("it did not come about")
