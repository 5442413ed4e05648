"""A request's memory is claimed whole before it begins; what it really took is learned."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fastvideo.engine.claims import Claims
from fastvideo.engine.residency import ResidencyBook
from fastvideo.errors import Cancelled, Unavailable
from fastvideo.memory.pools import MemoryPools, MemoryTag, OutOfMemory
from fastvideo.requests.types import (
    Capture,
    OutputSpec,
    RequestKind,
    RequestSpec,
    SamplingParams,
)
from fastvideo.scheduling.commands import (
    ExecuteBatch,
    PrepareLoop,
    ReleaseLoops,
    SnapshotLoops,
)
from fastvideo.scheduling.events import LoopFailed, LoopPrepared
from fastvideo.scheduling.work import CancelScope, CancelScopeKind, UnitKind, WorkPlan

World = Any
MakeRequest = Callable[..., RequestSpec]
MakeCommand = Callable[..., PrepareLoop]


@pytest.fixture
def pools() -> MemoryPools:
    return MemoryPools(dict.fromkeys(MemoryTag, 200))


@pytest.fixture
def claims(pools: MemoryPools) -> Claims:
    return Claims(pools, 100)


# -- claims --------------------------------------------------------------------------------


def test_what_fits_is_granted_at_once_and_the_rest_in_order(claims: Claims) -> None:
    first, large, small = claims.take("a", 60), claims.take("b", 90), claims.take("c", 10)
    assert first.done()
    # The small one would fit, but nobody overtakes.
    assert not large.done()
    assert not small.done()
    assert claims.waiting == 2
    claims.release("a")
    assert large.done()
    assert small.done()
    assert set(claims.scopes()) == {"b", "c"}


def test_a_scope_claims_once(claims: Claims, pools: MemoryPools) -> None:
    claims.take("a", 60)
    assert claims.take("a", 60).done()
    assert pools.usage()[MemoryTag.ACTIVATIONS].reserved == 60
    waiting = claims.take("b", 60)
    assert claims.take("b", 60) is waiting


def test_one_that_can_never_be_had_is_refused_at_once(claims: Claims) -> None:
    with pytest.raises(OutOfMemory) as caught:
        claims.take("a", 101)
    assert caught.value.attributes["owner"] == "a"
    assert claims.scopes() == ()


def test_one_that_gives_up_waiting_is_told_and_lets_others_pass(claims: Claims) -> None:
    claims.take("a", 60)
    large, small = claims.take("b", 90), claims.take("c", 10)
    claims.release("b")
    with pytest.raises(Cancelled):
        large.result(0)
    assert small.done()


def test_all_that_wait_may_be_sent_away(claims: Claims) -> None:
    claims.take("a", 60)
    waiting = [claims.take(name, 60) for name in ("b", "c")]
    claims.give_up(Unavailable("draining"))
    for future in waiting:
        with pytest.raises(Unavailable):
            future.result(0)
    assert claims.scopes() == ("a",)


def test_to_wait_for_nobody_is_refused(claims: Claims, pools: MemoryPools) -> None:
    pools.resize(MemoryTag.ACTIVATIONS, "other", 200)
    pools.resize(MemoryTag.CACHES, "kept", 150)
    with pytest.raises(OutOfMemory):
        claims.take("a", 60)


def test_one_that_waited_for_what_others_then_took_is_refused_in_the_end(
    claims: Claims, pools: MemoryPools
) -> None:
    claims.take("a", 60)
    waiting = claims.take("b", 90)
    pools.resize(MemoryTag.ACTIVATIONS, "other", 140)
    pools.resize(MemoryTag.CACHES, "kept", 190)
    claims.release("a")
    with pytest.raises(OutOfMemory):
        waiting.result(0)
    assert claims.scopes() == ()


# -- what was learned ----------------------------------------------------------------------


def request(width: int = 10, frames: int = 10, program: str = "p") -> RequestSpec:
    return RequestSpec(
        request_id="r",
        kind=RequestKind.GENERATION,
        program_id=program,
        sampling=SamplingParams(width=width, height=10, num_frames=frames),
        outputs=OutputSpec(),
    )


def test_nothing_is_expected_before_anything_was_seen() -> None:
    assert ResidencyBook().expected_bytes("mi", request()) == 0


def test_a_shape_that_was_seen_bounds_larger_ones_by_proportion_and_smaller_ones_as_it_is() -> None:
    book = ResidencyBook()
    book.note("mi", request(), 1_000, values=3)
    assert book.expected_bytes("mi", request()) == 1_100
    assert book.expected_bytes("mi", request(width=5)) == 1_100
    assert book.expected_bytes("mi", request(width=20, frames=30)) == 6_600
    book.note("mi", request(width=20, frames=30), 4_000, values=3)
    assert book.expected_bytes("mi", request(width=20, frames=30)) == 4_400
    # The tightest of the bounds.
    assert book.expected_bytes("mi", request(width=20, frames=20)) == 4_400


def test_a_request_that_ended_early_lowers_no_bound() -> None:
    book = ResidencyBook()
    book.note("mi", request(), 1_000, values=3)
    book.note("mi", request(width=20), 10, values=1)
    assert book.expected_bytes("mi", request(width=20)) == 2_200
    book.note("mi", request(), 2_000, values=4)
    assert book.expected_bytes("mi", request()) == 2_200


def test_one_that_captures_is_expected_to_keep_every_step_and_teaches_nothing() -> None:
    book = ResidencyBook()
    book.note("mi", request(), 1_200, values=3)
    spec = request()
    captured = replace(
        spec,
        outputs=OutputSpec(capture=Capture.BEHAVIOR),
        sampling=replace(spec.sampling, steps=11),
    )
    assert book.expected_bytes("mi", captured) == 3 * book.expected_bytes("mi", spec)
    book.note("mi", captured, 9_000, values=5)
    assert book.expected_bytes("mi", spec) == 1_320


def test_another_program_of_the_model_is_a_first_guess_and_another_model_is_none() -> None:
    book = ResidencyBook()
    book.note("mi", request(), 1_000, values=3)
    assert book.expected_bytes("mi", request(program="q")) == 1_100
    assert book.expected_bytes("other", request()) == 0
    book.forget("mi")
    assert book.expected_bytes("mi", request()) == 0


# -- in an executor ------------------------------------------------------------------------


def run_to_end(world: World, plan: WorkPlan | None) -> None:
    while plan is not None:
        executed = world.executor.execute(
            ExecuteBatch(
                batch_id="b", kind=UnitKind.DIFFUSION_STEP, unit_ids=(plan.units[0].unit_id,)
            )
        )
        assert executed.results[0].error is None, executed.results[0].error
        plan = executed.results[0].next_plan


def complete(world: World, spec: RequestSpec) -> None:
    run_to_end(world, world.prepare(spec))
    world.executor.release(ReleaseLoops(request_id=spec.request_id, attempt=1))


def test_a_request_waits_for_the_memory_that_it_will_keep(
    make_world: type[World], make_request: MakeRequest, make_command: MakeCommand
) -> None:
    # A row is 16 bytes, the frames 60; half of the pool is for what requests keep.
    world = make_world(budget_bytes=420)
    complete(world, make_request("known"))
    first = world.executor.claim_memory(make_command(make_request("first")))
    second = world.executor.claim_memory(make_command(make_request("second")))
    third = world.executor.claim_memory(make_command(make_request("third")))
    assert [first.done(), second.done(), third.done()] == [True, True, False]
    assert world.executor.waiting_for_memory == 1
    # Whoever does not wait is refused, and the first two are unharmed.
    failed = world.executor.prepare(make_command(make_request("impatient")))
    assert isinstance(failed, LoopFailed)
    assert failed.error.reason == "OUT_OF_MEMORY"
    for name in ("first", "second"):
        complete(world, make_request(name))
    assert third.done()
    complete(world, make_request("third"))
    assert world.pools.in_use_bytes() == world.start_bytes
    assert world.pools.usage()[MemoryTag.ACTIVATIONS].reserved == 0


def test_a_request_that_could_never_fit_is_told_so_before_it_begins(
    make_world: type[World], make_request: MakeRequest, make_command: MakeCommand
) -> None:
    world = make_world(budget_bytes=420)
    complete(world, make_request("known", width=48))
    with pytest.raises(OutOfMemory) as caught:
        world.executor.claim_memory(make_command(make_request("huge", width=4_800)))
    assert caught.value.subject == "activations"


@pytest.mark.parametrize("kind", [CancelScopeKind.REQUEST, CancelScopeKind.SESSION])
def test_cancelling_one_that_waits_lets_it_go(
    make_world: type[World],
    make_request: MakeRequest,
    make_command: MakeCommand,
    kind: CancelScopeKind,
) -> None:
    world = make_world(budget_bytes=420)
    complete(world, make_request("known"))
    for name in ("first", "second"):
        world.executor.claim_memory(make_command(make_request(name)))
    waiting = world.executor.claim_memory(make_command(make_request("third", session_id="third")))
    world.executor.cancel(CancelScope(kind=kind, target_id="third"))
    with pytest.raises(Cancelled):
        waiting.result(0)
    with pytest.raises(Cancelled):
        world.executor.claim_memory(make_command(make_request("third")))
    world.executor.release_all()
    assert world.pools.usage()[MemoryTag.ACTIVATIONS].reserved == 0


def test_a_loop_that_cannot_be_made_leaves_no_claim(
    world: World, make_request: MakeRequest, make_command: MakeCommand
) -> None:
    world.residents.sleep()
    assert isinstance(world.executor.prepare(make_command(make_request("r"))), LoopFailed)
    world.executor.check_no_requests()


@pytest.mark.parametrize("end", ["released", "set aside", "not made"])
def test_the_span_of_a_request_is_forgotten_with_it(
    world: World, make_request: MakeRequest, make_command: MakeCommand, end: str
) -> None:
    command = replace(make_command(make_request("r")), traceparent="00-trace-span-01")
    world.executor.claim_memory(command)
    assert world.executor.traceparent(("r", 1)) == command.traceparent
    if end == "not made":
        world.residents.sleep()
    kind = LoopFailed if end == "not made" else LoopPrepared
    assert isinstance(world.executor.prepare(command), kind)
    if end == "released":
        world.executor.release(ReleaseLoops(request_id="r", attempt=1))
    elif end == "set aside":
        world.executor.snapshot(SnapshotLoops(request_id="r", attempt=1, release=True))
    assert world.executor.traceparent(("r", 1)) == ""
