"""Models come and go, sleep and wake; each shared tensor is counted once."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fastvideo.engine.instance import weights_bytes
from fastvideo.errors import AlreadyExists, CheckpointError, NotFound
from fastvideo.memory.pools import MemoryTag
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.commands import ExecuteBatch
from fastvideo.scheduling.events import BatchExecuted
from fastvideo.scheduling.work import UnitKind, WorkPlan

World = Any
MATRIX_BYTES = 4 * 4 * 4


def _step(world: World, plan: WorkPlan) -> BatchExecuted:
    result: BatchExecuted = world.executor.execute(
        ExecuteBatch(batch_id="b", kind=UnitKind.DIFFUSION_STEP, unit_ids=(plan.units[0].unit_id,))
    )
    return result


@pytest.mark.row("MOD-08")
def test_two_loops_share_one_live_component_whose_memory_counts_once(
    world: World, make_request: Callable[..., RequestSpec]
) -> None:
    instance = world.residents.find("mi_toy")
    seen: list[Any] = []
    run_step = world.kernel.run_step

    def watched(batch: Any, used: Any, context: Any) -> Any:
        seen.append(used.components["turn"])
        return run_step(batch, used, context)

    world.kernel.run_step = watched
    for node_id in ("first", "second"):
        _step(world, world.prepare(make_request("r"), node_id=node_id))
    assert seen == [instance.components["turn"]] * 2
    assert seen[0] is seen[1]
    assert world.pools.in_use_bytes()[MemoryTag.WEIGHTS] == MATRIX_BYTES


def test_a_tensor_that_two_components_share_counts_once() -> None:
    shared = torch.nn.Linear(4, 4, bias=False)
    other = torch.nn.Linear(4, 4, bias=False)
    other.weight = shared.weight
    assert weights_bytes({"a": shared, "b": shared, "c": other}) == MATRIX_BYTES


def test_loaded_weights_are_counted_until_they_are_unloaded(world: World) -> None:
    assert world.pools.in_use_bytes()[MemoryTag.WEIGHTS] == MATRIX_BYTES
    assert world.residents.unload("mi_toy") == MATRIX_BYTES
    assert world.pools.in_use_bytes()[MemoryTag.WEIGHTS] == 0
    with pytest.raises(NotFound):
        world.residents.find("mi_toy")


def test_a_model_is_loaded_once(world: World) -> None:
    with pytest.raises(AlreadyExists):
        world.residents.load("toy")


def test_sleep_lets_go_of_the_parameters_and_wake_goes_on_with_the_same_bits(
    world: World, make_world: type[World], make_request: Callable[..., RequestSpec]
) -> None:
    undisturbed = make_world()
    expected = _step(undisturbed, undisturbed.prepare(make_request("r"))).results[0]

    plan = world.prepare(make_request("r"))
    parameter = weakref.ref(world.residents.find("mi_toy").components["turn"].weight)
    assert world.residents.sleep() == MATRIX_BYTES
    gc.collect()
    assert parameter() is None
    assert world.pools.in_use_bytes()[MemoryTag.WEIGHTS] == 0

    assert world.residents.wake() == MATRIX_BYTES
    assert _step(world, plan).results[0].state_digest == expected.state_digest


def test_asleep_a_unit_fails_by_name(
    world: World, make_request: Callable[..., RequestSpec]
) -> None:
    plan = world.prepare(make_request("r"))
    world.residents.sleep()
    error = _step(world, plan).results[0].error
    assert error is not None
    assert error.reason == "WEIGHTS_ASLEEP"


def test_other_weights_may_not_wake_in_their_place(world: World) -> None:
    world.residents.sleep()
    world.loader.weights_version = "w2"
    with pytest.raises(CheckpointError, match="other weights"):
        world.residents.wake()
