"""Nothing runs unreserved; caches make room for what runs, and the unit's result tells of it."""

from collections.abc import Callable
from typing import Any

import pytest

from fastvideo.cache.keys import key_digest
from fastvideo.engine.reservations import Reservations
from fastvideo.loops.contract import StepContext
from fastvideo.memory.pools import MemoryTag
from fastvideo.model.caching import CacheKey, CacheOutcome
from fastvideo.requests.types import OutputSpec, RequestSpec
from fastvideo.scheduling.commands import ExecuteBatch, ReleaseLoops
from fastvideo.scheduling.events import BatchExecuted
from fastvideo.scheduling.work import UnitKind, WorkPlan, WorkUnit

World = Any
MakeRequest = Callable[..., RequestSpec]


class Value:
    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


def key(name: str) -> CacheKey:
    return CacheKey(model_id="toy", input_hashes={"text": name})


def step(world: World, *plans: WorkPlan) -> BatchExecuted:
    units = [unit for plan in plans for unit in plan.units]
    executed: BatchExecuted = world.executor.execute(
        ExecuteBatch(
            batch_id="b", kind=units[0].kind, unit_ids=tuple(unit.unit_id for unit in units)
        )
    )
    return executed


def test_while_a_unit_runs_all_that_it_declares_is_reserved_and_after_it_nothing_is(
    world: World, make_request: MakeRequest
) -> None:
    seen: list[dict[str, int]] = []

    def look() -> None:
        owners = world.pools.owners(MemoryTag.ACTIVATIONS)
        seen.append({name: size for name, size in owners.items() if name.startswith("unit:")})

    world.kernel.during_step = look
    plans = [world.prepare(make_request(name)) for name in ("a", "b")]
    step(world, *plans)
    assert seen == [{f"unit:{plan.units[0].unit_id}": 256 for plan in plans}]
    left = world.pools.owners(MemoryTag.ACTIVATIONS)
    assert not [name for name in left if name.startswith("unit:")]


@pytest.mark.row("VAL-06")
def test_a_unit_that_comes_to_run_without_its_reservation_is_refused(
    world: World, make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget(self: Reservations, unit: WorkUnit, context: StepContext) -> None:
        """As a worker would that lets units in without reserving."""

    plan = world.prepare(make_request("r"))
    monkeypatch.setattr(Reservations, "admit", forget)
    [result] = step(world, plan).results
    assert result.error is not None
    assert (result.error.reason, result.error.subject) == (
        "UNRESERVED_UNIT",
        plan.units[0].unit_id,
    )
    assert world.kernel.batches == []


def test_cached_features_make_room_for_a_unit_and_its_result_says_which(
    make_world: type[World], make_request: MakeRequest
) -> None:
    world = make_world(budget_bytes=2_000)
    for name in "abcd":
        world.executor.features.keep(key(name), Value(200))
    world.kernel.memory_bytes = {"activations": 3_300}
    hungry, bystander = (world.prepare(make_request(name)) for name in ("hungry", "bystander"))
    [result] = step(world, hungry).results
    assert result.error is None
    assert [(look.outcome, look.key_digest) for look in result.cache_lookups] == [
        (CacheOutcome.EVICT, key_digest(key("a")))
    ]
    assert step(world, bystander).results[0].error is None


def test_what_a_request_s_claim_evicted_is_told_by_its_first_unit(
    make_world: type[World], make_request: MakeRequest
) -> None:
    world = make_world(budget_bytes=420)
    plan: WorkPlan | None = world.prepare(make_request("known", steps=1))
    assert plan is not None
    step(world, plan)
    world.executor.release(ReleaseLoops(request_id="known", attempt=1))
    world.kernel.memory_bytes = {"activations": 1}
    for name in "ab":
        world.executor.features.keep(key(name), Value(200))
    world.pools.resize(MemoryTag.ACTIVATIONS, "others", 350)
    [result] = step(world, world.prepare(make_request("r", steps=2))).results
    assert result.error is None, result.error
    assert [(look.outcome, look.key_digest) for look in result.cache_lookups] == [
        (CacheOutcome.EVICT, key_digest(key("a")))
    ]
    assert result.next_plan is not None
    assert step(world, result.next_plan).results[0].cache_lookups == ()


def test_evictions_change_no_bits(make_world: type[World], make_request: MakeRequest) -> None:
    def digests(world: World) -> list[str]:
        plan: WorkPlan | None = world.prepare(make_request("r", steps=4))
        found = []
        while plan is not None:
            [result] = step(world, plan).results
            assert result.error is None, result.error
            found.append(result.state_digest)
            plan = result.next_plan
        return found

    short = make_world(budget_bytes=2_000)
    short.kernel.memory_bytes = {"activations": 3_300}
    for name in "abcd":
        short.executor.features.keep(key(name), Value(200))
    assert digests(short) == digests(make_world())
    assert short.executor.features.usage.entries < 4


def test_a_role_s_share_bounds_its_units_and_no_other_s(
    make_world: type[World], make_request: MakeRequest
) -> None:
    world = make_world(role_budgets={"spin": {MemoryTag.ACTIVATIONS: 600}})
    plans = [world.prepare(make_request(name)) for name in ("a", "b", "c")]
    results = step(world, *plans).results
    reasons = [result.error.subject if result.error else "" for result in results]
    # Two times 256 and three states fit into 600, a third unit does not.
    assert reasons == ["", "", "spin/activations"]
    refused = results[2].error
    assert refused is not None
    assert (refused.reason, refused.attributes["role"]) == ("OUT_OF_MEMORY", "spin")
    for name in ("a", "b", "c"):
        world.executor.release(ReleaseLoops(request_id=name, attempt=1))
    assert world.pools.role_in_use_bytes("spin")[MemoryTag.ACTIVATIONS] == 0


def test_a_file_counts_by_its_real_size_while_it_is_stored(
    world: World, make_request: MakeRequest
) -> None:
    """The writer declares a bound; once the file is encoded its own size counts."""
    spec = make_request("r", steps=1, outputs=OutputSpec(video=True))
    step(world, world.prepare(spec))
    plan = world.prepare(spec, node_id="write", loop_id="write", inputs={"frames": "spin.frames"})
    staged: list[int] = []
    put = world.artifacts.put

    def watched(artifact: Any, data: bytes, *more: Any) -> Any:
        staged.append(world.pools.in_use_bytes()[MemoryTag.STAGING])
        assert staged[-1] == len(data)
        return put(artifact, data, *more)

    world.artifacts.put = watched
    [result] = step(world, plan).results
    assert result.error is None, result.error
    assert plan.units[0].kind is UnitKind.ARTIFACT_WRITE
    assert plan.units[0].resources.memory_bytes["staging"] >= staged[0] > 0
    assert world.pools.in_use_bytes()[MemoryTag.STAGING] == 0


def test_a_file_that_does_not_fit_fails_by_the_pool_s_name(
    make_world: type[World], make_request: MakeRequest
) -> None:
    world = make_world(budget_bytes=50_000)
    spec = make_request("r", steps=1, outputs=OutputSpec(video=True))
    step(world, world.prepare(spec))
    world.pools.resize(MemoryTag.STAGING, "others", 50_000)
    world.pools.resize(MemoryTag.CACHES, "entries", 50_000)
    plan = world.prepare(spec, node_id="write", loop_id="write", inputs={"frames": "spin.frames"})
    [result] = step(world, plan).results
    assert result.error is not None
    assert (result.error.reason, result.error.subject) == ("OUT_OF_MEMORY", "staging")
