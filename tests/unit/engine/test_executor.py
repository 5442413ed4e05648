"""The executor: loops advance by units, failures stay their own, everything is given back."""

import hashlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from fastvideo.engine.executor import ExecutorLimits
from fastvideo.errors import ContractViolation, InvalidField, ResourceExhausted, Unavailable
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.commands import ExecuteBatch, PrepareLoop, ReleaseLoops
from fastvideo.scheduling.events import BatchExecuted, LoopFailed
from fastvideo.scheduling.work import (
    CancelScope,
    CancelScopeKind,
    LoopRef,
    StepResult,
    UnitKind,
    WorkPlan,
)

World = Any
MakeRequest = Callable[..., RequestSpec]
MakeCommand = Callable[..., PrepareLoop]


def _batch(unit_ids: Sequence[str], **changes: Any) -> ExecuteBatch:
    return ExecuteBatch(
        **{"batch_id": "b", "kind": UnitKind.DIFFUSION_STEP, "unit_ids": tuple(unit_ids)} | changes
    )


def _step(world: World, *plans: WorkPlan) -> BatchExecuted:
    units = [unit.unit_id for plan in plans for unit in plan.units]
    result: BatchExecuted = world.executor.execute(_batch(units))
    return result


def _run_to_end(world: World, plan: WorkPlan) -> list[StepResult]:
    results = []
    while True:
        [result] = _step(world, plan).results
        assert result.error is None, result.error
        results.append(result)
        if result.next_plan is None:
            return results
        plan = result.next_plan


def test_a_loop_runs_step_by_step_to_its_result(world: World, make_request: MakeRequest) -> None:
    results = _run_to_end(world, world.prepare(make_request("r", steps=3)))
    assert [result.state_version for result in results] == [1, 2, 3]
    assert len({result.state_digest for result in results}) == 3
    end = results[-1].loop_result
    assert end is not None
    assert end.value_names == ("row", "frames", "latents")
    assert end.digests.keys() == {"row"}


def test_the_state_digest_is_of_the_exact_state_bytes(
    world: World, make_request: MakeRequest
) -> None:
    [result] = _run_to_end(world, world.prepare(make_request("r", steps=1)))
    row = world.executor.values.bind(("r", 1), {"row": "spin.row"})["row"]
    expected = hashlib.sha256((1).to_bytes(4) + row.numpy().tobytes()).hexdigest()
    assert result.state_digest == expected


def test_units_of_requests_at_different_steps_share_a_forward_with_the_bits_of_solo_runs(
    world: World, make_world: type[World], make_request: MakeRequest
) -> None:
    solo = make_world()
    digests = {
        name: _run_to_end(solo, solo.prepare(make_request(name, steps=steps, seed=seed)))[-1]
        for name, steps, seed in (("a", 4, 1), ("b", 2, 2))
    }
    ahead = world.prepare(make_request("a", steps=4, seed=1))
    for _ in range(2):
        [result] = _step(world, ahead).results
        assert result.next_plan is not None
        ahead = result.next_plan
    behind = world.prepare(make_request("b", steps=2, seed=2))
    executed = _step(world, ahead, behind)
    assert executed.forwards == 1
    plans = [result.next_plan for result in executed.results]
    last = _step(world, *[plan for plan in plans if plan is not None])
    assert [result.state_digest for result in last.results] == [
        digests["a"].state_digest,
        digests["b"].state_digest,
    ]
    assert world.kernel.batches == [1, 1, 2, 2]


def test_a_failing_unit_fails_alone(world: World, make_request: MakeRequest) -> None:
    good = world.prepare(make_request("good", seed=1))
    bad = world.prepare(make_request("bad", prompt="fail at 0"))
    other = world.prepare(make_request("other", seed=2))
    results = _step(world, good, bad, other).results
    assert [result.error is None for result in results] == [True, False, True]
    error = results[1].error
    assert error is not None
    # Users learn what kind of thing broke, and not its words.
    assert (error.reason, error.attributes) == ("INTERNAL", {"type": "RuntimeError"})
    assert "cannot be turned" not in error.message
    assert results[0].next_plan is not None
    # What failed is freed at once; the others go on to the bits of undisturbed runs.
    assert world.executor.loops == 2


def test_a_loop_that_cannot_be_made_says_why(
    world: World, make_request: MakeRequest, make_command: MakeCommand
) -> None:
    request = make_request("r")
    cases = {
        "NOT_FOUND": make_command(request, loop_id="denoise"),
        "VALUE_MISSING": make_command(request, inputs={"start": "encode.features"}),
    }
    for reason, command in cases.items():
        event = world.executor.prepare(command)
        assert isinstance(event, LoopFailed)
        assert event.error.reason == reason
    assert world.pools.in_use_bytes() == world.start_bytes


def test_values_flow_from_node_to_node(world: World, make_request: MakeRequest) -> None:
    request = make_request("r", steps=2)
    _run_to_end(world, world.prepare(request, node_id="first"))
    row = world.executor.values.bind(("r", 1), {"row": "first.row"})["row"]
    _run_to_end(world, world.prepare(request, node_id="second", inputs={"start": "first.row"}))
    turned = world.executor.values.bind(("r", 1), {"row": "second.row"})["row"]
    turn = world.residents.find("mi_toy").components["turn"]
    with torch.no_grad():
        assert torch.equal(turned, turn(turn(row[None]))[0])


def test_release_gives_every_byte_back_after_any_end(
    world: World, make_request: MakeRequest
) -> None:
    _run_to_end(world, world.prepare(make_request("done")))
    _step(world, world.prepare(make_request("failed", prompt="fail at 0")))
    _step(world, world.prepare(make_request("cancelled")))
    assert world.pools.in_use_bytes() != world.start_bytes
    for request_id in ("done", "failed", "cancelled"):
        world.executor.release(ReleaseLoops(request_id=request_id, attempt=1))
    assert world.pools.in_use_bytes() == world.start_bytes
    assert world.executor.loops == 0


def test_unknown_and_repeated_units_carry_errors_and_harm_no_other(
    world: World, make_request: MakeRequest
) -> None:
    plan = world.prepare(make_request("r"))
    _step(world, plan)
    stale = plan.units[0].unit_id
    fresh = world.prepare(make_request("s")).units[0].unit_id
    results = world.executor.execute(_batch([stale, "no/such/unit", fresh])).results
    reasons = [result.error.reason if result.error else "" for result in results]
    assert reasons == ["UNKNOWN_UNIT", "UNKNOWN_UNIT", ""]


def test_a_released_loop_is_gone_at_once_and_is_not_revived(
    world: World, make_request: MakeRequest, make_command: MakeCommand
) -> None:
    plan = world.prepare(make_request("r"))
    [ref] = world.executor.release(ReleaseLoops(request_id="r", attempt=1))
    assert ref == plan.loop
    [result] = _step(world, plan).results
    assert result.error is not None
    assert result.error.reason == "LOOP_RELEASED"
    late = world.executor.prepare(make_command(make_request("r"), node_id="decode"))
    assert isinstance(late, LoopFailed)
    assert late.error.reason == "LOOP_RELEASED"
    assert world.pools.in_use_bytes() == world.start_bytes


def test_after_starting_over_an_attempt_that_was_released_may_come_again(
    world: World, make_request: MakeRequest
) -> None:
    plan = world.prepare(make_request("r"))
    world.executor.release(ReleaseLoops(request_id="r", attempt=1))
    world.executor.start_over(timeout_s=30.0)
    _run_to_end(world, world.prepare(make_request("r")))
    assert plan.loop.attempt == 1


def test_starting_over_waits_for_units_that_run(world: World, make_request: MakeRequest) -> None:
    plan = world.prepare(make_request("r"))
    started, proceed = threading.Event(), threading.Event()

    def pause() -> None:
        started.set()
        assert proceed.wait(30)

    world.kernel.during_step = pause
    thread = threading.Thread(target=lambda: _step(world, plan))
    thread.start()
    assert started.wait(30)
    with pytest.raises(Unavailable, match="did not end"):
        world.executor.start_over(timeout_s=0.01)
    proceed.set()
    thread.join(10)
    world.executor.start_over(timeout_s=30.0)
    assert world.executor.loops == 0


@pytest.mark.parametrize(
    ("kind", "target", "left"),
    [
        (CancelScopeKind.REQUEST, "a", 2),
        (CancelScopeKind.LOOP, "a/spin", 2),
        (CancelScopeKind.SESSION, "session", 1),
        (CancelScopeKind.REQUEST, "nobody", 3),
    ],
)
def test_cancel_frees_what_the_scope_names(
    world: World, make_request: MakeRequest, kind: CancelScopeKind, target: str, left: int
) -> None:
    world.prepare(make_request("a"))
    for name in ("b", "c"):
        world.prepare(make_request(name, session_id="session"))
    freed = world.executor.cancel(CancelScope(kind=kind, target_id=target))
    assert len(freed) == 3 - left
    assert world.executor.loops == left


@pytest.mark.parametrize("target", ["s", "r/", "/video", ""])
def test_a_stream_that_cannot_be_is_refused(world: World, target: str) -> None:
    with pytest.raises(InvalidField, match="target_id"):
        world.executor.cancel(CancelScope(kind=CancelScopeKind.STREAM, target_id=target))


def test_a_cancelled_stream_of_every_attempt_that_is_here_is_not_written(
    world: World, make_request: MakeRequest
) -> None:
    request = make_request("r")
    for attempt in (1, 2):
        world.prepare(request, attempt=attempt)
    scope = CancelScope(kind=CancelScopeKind.STREAM, target_id="r/video")
    assert world.executor.cancel(scope) == ()
    assert world.executor.loops == 2
    streams = world.executor._releaser._streams
    told = [
        streams.is_cancelled(LoopRef(request_id="r", node_id="write", attempt=attempt), name)
        for attempt in (1, 2, 3)
        for name in ("video", "sheet")
    ]
    assert told == [True, False, True, False, False, False]


def test_cancel_during_a_step_lands_at_its_boundary(
    world: World, make_request: MakeRequest
) -> None:
    going = world.prepare(make_request("going"))
    staying = world.prepare(make_request("staying"))
    started, proceed = threading.Event(), threading.Event()

    def pause() -> None:
        started.set()
        assert proceed.wait(30)

    world.kernel.during_step = pause
    executed: list[BatchExecuted] = []
    thread = threading.Thread(target=lambda: executed.append(_step(world, going, staying)))
    thread.start()
    assert started.wait(30)
    freed = world.executor.cancel(CancelScope(kind=CancelScopeKind.REQUEST, target_id="going"))
    assert world.executor.loops == 2
    proceed.set()
    assert world.executor.wait_gone(freed, 10)
    thread.join(10)
    going_result, staying_result = executed[0].results
    assert going_result.error is not None
    assert going_result.error.reason == "LOOP_RELEASED"
    assert staying_result.next_plan is not None
    assert world.executor.loops == 1


def test_batches_that_may_not_be_are_refused_and_leave_the_loops_runnable(
    world: World, make_request: MakeRequest
) -> None:
    narrow, wide = (world.prepare(make_request(f"r{w}", width=w)) for w in (48, 64))
    units = [plan.units[0].unit_id for plan in (narrow, wide)]
    with pytest.raises(ContractViolation, match="may not share"):
        world.executor.execute(_batch(units))
    with pytest.raises(ContractViolation, match="of kind"):
        world.executor.execute(_batch(units[:1], kind=UnitKind.VAE_TILE))
    with pytest.raises(InvalidField, match="each unit once"):
        world.executor.execute(_batch([units[0], units[0]]))
    with pytest.raises(InvalidField, match="unit_ids"):
        world.executor.execute(_batch([]))
    many = [world.prepare(make_request(f"m{i}")).units[0].unit_id for i in range(5)]
    with pytest.raises(ContractViolation, match="at most 4"):
        world.executor.execute(_batch(many))
    assert _step(world, narrow).results[0].error is None


def test_everything_is_bounded(
    make_world: type[World], make_request: MakeRequest, make_command: MakeCommand
) -> None:
    world = make_world(limits=ExecutorLimits(loops=1, units_per_batch=1, values_per_request=2))
    plan = world.prepare(make_request("r", steps=1))
    refused = world.executor.prepare(make_command(make_request("s")))
    assert isinstance(refused, LoopFailed)
    assert refused.error.reason == "RESOURCE_EXHAUSTED"
    with pytest.raises(ResourceExhausted):
        world.executor.execute(_batch(["a", "b"]))
    [result] = _step(world, plan).results
    assert result.error is not None
    assert (result.error.reason, result.error.subject) == ("RESOURCE_EXHAUSTED", "values")


def test_a_unit_that_declares_more_than_is_free_fails_by_the_pool_s_name(
    make_world: type[World], make_request: MakeRequest
) -> None:
    world = make_world(budget_bytes=2_000)
    small = world.prepare(make_request("small"))
    world.kernel.memory_bytes = {"activations": 100_000}
    large = world.prepare(make_request("large"))
    results = _step(world, small, large).results
    assert results[0].error is None
    assert results[1].error is not None
    assert (results[1].error.reason, results[1].error.subject) == ("OUT_OF_MEMORY", "activations")
    for name in ("small", "large"):
        world.executor.release(ReleaseLoops(request_id=name, attempt=1))
    assert world.pools.in_use_bytes() == world.start_bytes


def test_a_plan_for_an_unknown_pool_is_a_contract_violation(
    world: World, make_request: MakeRequest, make_command: MakeCommand
) -> None:
    world.kernel.memory_bytes = {"attic": 1}
    event = world.executor.prepare(make_command(make_request("r")))
    assert isinstance(event, LoopFailed)
    assert event.error.reason == "INCOMPLETE_PLAN"
    assert "attic" in event.error.message
