"""Plans declare what was measured once their shape has run; every other run is not measured."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from fastvideo.engine.peaks import PeakBook
from fastvideo.loops.contract import StepContext
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.commands import ExecuteBatch, ReleaseLoops
from fastvideo.scheduling.events import BatchExecuted
from fastvideo.scheduling.work import (
    CachePlan,
    LoopRef,
    PlacementHint,
    ResourceRequest,
    StepRange,
    UnitKind,
    WorkPlan,
    WorkUnit,
)

World = Any
ROW_BYTES = 4_000


def unit(shape: str = "s", *, compute: bool = True, instance: str = "mi") -> WorkUnit:
    return WorkUnit(
        unit_id=f"u/{shape}",
        loop=LoopRef(),
        model_instance_id=instance,
        kind=UnitKind.DIFFUSION_STEP,
        step_range=StepRange(),
        cost_phase="denoise",
        cost_shape=shape,
        resources=ResourceRequest(
            compute=compute, memory_bytes={"activations": 1_000_000, "staging": 7}
        ),
        cache_plan=CachePlan(),
        placement_hint=PlacementHint(),
    )


def plan(*units: WorkUnit) -> WorkPlan:
    return WorkPlan(loop=LoopRef(), units=units)


def run(book: PeakBook, *units: WorkUnit, rows: int = 1, forwards: int = 1) -> int:
    """Run units that hold so many rows at once; returns what was measured."""
    context = StepContext()

    def work() -> None:
        context.forwards += forwards
        kept = [torch.ones(ROW_BYTES // 4) for _ in range(rows)]
        del kept

    return book.run(units, context, work)[1]


def declared(book: PeakBook, shape: str = "s") -> int:
    [planned] = book.declare(plan(unit(shape))).units
    assert planned.resources.memory_bytes["staging"] == 7
    return planned.resources.memory_bytes["activations"]


def test_the_first_runs_of_a_shape_are_measured_and_no_others() -> None:
    book = PeakBook()
    assert [run(book, unit()) >= ROW_BYTES for _ in range(4)] == [True, True, False, False]
    # A batch of another size, another shape: other runs.
    assert run(book, unit(), unit(), rows=2) >= 2 * ROW_BYTES
    assert run(book, unit("t"), rows=3) >= 3 * ROW_BYTES
    # Of sizes that are no power of two only the first that ever ran.
    assert run(book, unit(), unit(), unit()) == 0
    assert run(book, unit("v"), unit("v"), unit("v")) > 0
    assert run(book, unit("v"), unit("v"), unit("v")) == 0


def test_the_kernel_s_figure_holds_until_the_shape_has_run() -> None:
    book = PeakBook()
    assert declared(book) == 1_000_000
    run(book, unit())
    assert declared(book) == pytest.approx(1.1 * ROW_BYTES, rel=0.05)
    assert declared(book, "t") == 1_000_000


def test_work_that_is_done_once_a_shape_is_forgotten_by_the_second_run() -> None:
    book = PeakBook()
    run(book, unit(), rows=50)
    assert declared(book) == pytest.approx(55 * ROW_BYTES, rel=0.05)
    run(book, unit(), rows=2)
    assert declared(book) == pytest.approx(2.2 * ROW_BYTES, rel=0.05)


def test_a_unit_declares_the_largest_share_that_it_had_in_any_batch() -> None:
    book = PeakBook()
    for _ in range(2):
        run(book, unit(), unit(), rows=6)
        run(book, unit(), rows=2)
    assert declared(book) == pytest.approx(3.3 * ROW_BYTES, rel=0.05)


def test_a_run_that_computed_nothing_tells_nothing() -> None:
    book = PeakBook()
    run(book, unit(), forwards=0)
    assert declared(book) == 1_000_000


def test_units_off_the_device_are_not_measured() -> None:
    book = PeakBook()
    assert run(book, unit(compute=False)) == 0
    [kept] = book.declare(plan(unit(compute=False))).units
    assert kept == unit(compute=False)


def test_what_was_measured_of_a_model_goes_with_it() -> None:
    book = PeakBook()
    run(book, unit())
    run(book, unit(instance="other"))
    book.forget("mi")
    assert declared(book) == 1_000_000
    assert book.unit_bytes(unit(instance="other")) is not None


def test_a_batch_says_its_peak_and_the_next_plan_declares_it(
    world: World, make_request: Callable[..., RequestSpec]
) -> None:
    def execute(planned: WorkPlan) -> BatchExecuted:
        units = tuple(unit.unit_id for unit in planned.units)
        executed: BatchExecuted = world.executor.execute(
            ExecuteBatch(batch_id="b", kind=UnitKind.DIFFUSION_STEP, unit_ids=units)
        )
        return executed

    first = world.prepare(make_request("r", steps=4))
    assert first.units[0].resources.memory_bytes == {"activations": 256}
    executed = execute(first)
    assert executed.peak_bytes > 0
    second = executed.results[0].next_plan
    assert second is not None
    told = second.units[0].resources.memory_bytes["activations"]
    assert told == int(executed.peak_bytes * 1.1)
    assert second.units[0].resources == replace(
        first.units[0].resources, memory_bytes={"activations": told}
    )
    world.executor.release(ReleaseLoops(request_id="r", attempt=1))
    # Another request of the shape begins with it.
    assert world.prepare(make_request("s")).units[0].resources.memory_bytes == {"activations": told}
