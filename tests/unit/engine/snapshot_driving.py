"""Loops that are run, saved and made again on a worker of a small real model."""

from collections.abc import Callable
from typing import Any

from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.commands import (
    ExecuteBatch,
    PrepareLoop,
    SnapshotLoops,
)
from fastvideo.scheduling.events import BatchExecuted, LoopPrepared, RequestSnapshotted
from fastvideo.scheduling.work import (
    StepResult,
    WorkPlan,
)

World = Any
MakeRequest = Callable[..., RequestSpec]
MakeCommand = Callable[..., PrepareLoop]


def window(world: World, plan: WorkPlan, steps: int = 1) -> BatchExecuted:
    [unit] = plan.units
    executed: BatchExecuted = world.executor.execute(
        ExecuteBatch(batch_id="b", kind=unit.kind, unit_ids=(unit.unit_id,), window=steps)
    )
    return executed


def run(world: World, plan: WorkPlan | None, steps: int = 1_000) -> list[StepResult]:
    """Run a loop for some steps or to its end."""
    results: list[StepResult] = []
    while plan is not None and plan.units and len(results) < steps:
        [result] = window(world, plan).results
        assert result.error is None, result.error
        results.append(result)
        plan = result.next_plan
    return results


def digests(results: list[StepResult]) -> list[str]:
    return [result.state_digest for result in results]


def snapshot(world: World, request_id: str, *, release: bool = True) -> RequestSnapshotted:
    event: RequestSnapshotted = world.executor.snapshot(
        SnapshotLoops(request_id=request_id, attempt=1, release=release)
    )
    return event


def restored(world: World, command: PrepareLoop) -> WorkPlan:
    assert command.restore is not None
    event = world.executor.prepare(command, world.executor.fetch(command.restore))
    assert isinstance(event, LoopPrepared), event
    return event.plan
