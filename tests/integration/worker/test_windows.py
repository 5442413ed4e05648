"""Windows on a real worker: fused steps have the bits of single ones, and end when told."""

from collections.abc import Callable
from typing import Any

import pytest

from fastvideo.api.worker.v1 import worker_pb2
from fastvideo.deployment.catalog import CatalogEntry
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.events import BatchExecuted
from fastvideo.scheduling.work import StepResult, WorkPlan

MakeSpec = Callable[..., RequestSpec]
Attach = Callable[..., Any]

STEPS = {"a": 6, "b": 4, "c": 9}


def _plans(executed: BatchExecuted) -> list[WorkPlan]:
    return [result.next_plan for result in executed.results if result.next_plan is not None]


async def _denoised(
    client: Any, driver: Any, entry: CatalogEntry, make_spec: MakeSpec, windows: list[int]
) -> tuple[dict[str, StepResult], list[BatchExecuted]]:
    """Denoise some requests together, in windows of these many steps over and over."""
    plans = [
        await driver(client, entry, make_spec(name, steps=steps, seed=seed)).until("denoise")
        for seed, (name, steps) in enumerate(STEPS.items())
    ]
    batches: list[BatchExecuted] = []
    while plans:
        executed = await client.execute(*plans, window=windows[len(batches) % len(windows)])
        batches.append(executed)
        plans = _plans(executed)
    for name in STEPS:
        await client.release(name)
    return {r.unit_id: r for executed in batches for r in executed.results}, batches


@pytest.mark.row("LOOP-14")
async def test_fused_steps_give_the_bits_of_single_ones(
    attach: Attach, driver: Any, entry: CatalogEntry, make_spec: MakeSpec
) -> None:
    async with attach() as client:
        single, singles = await _denoised(client, driver, entry, make_spec, [1])
    async with attach() as client:
        fused, windows = await _denoised(client, driver, entry, make_spec, [3, 1, 5])
    assert fused.keys() == single.keys()
    assert len(fused) == sum(STEPS.values())
    assert len(windows) < len(singles)
    for unit_id, result in fused.items():
        alone = single[unit_id]
        assert result.error is None
        assert result.state_digest == alone.state_digest != ""
        assert result.step_range == alone.step_range
        assert (result.loop_result is None) == (alone.loop_result is None)
        if result.loop_result is not None and alone.loop_result is not None:
            assert result.loop_result.digests == alone.loop_result.digests
    for executed in windows:
        # Each unit tells the seconds of its own step, and the batch those of all.
        first = executed.results[0].loop
        seconds = [r.measured_seconds for r in executed.results if r.loop == first]
        assert min(seconds) > 0
        assert sum(seconds) <= executed.measured_seconds


@pytest.mark.row("LOOP-14")
async def test_a_window_that_is_told_to_yield_ends_early_and_goes_on_with_equal_bits(
    attach: Attach, driver: Any, entry: CatalogEntry, make_spec: MakeSpec
) -> None:
    async with attach() as client:
        whole = await driver(client, entry, make_spec("whole", steps=40)).until("denoise")
        undisturbed = await client.execute(whole, window=40)
        await client.release("whole")
        plan = await driver(client, entry, make_spec("told", steps=40)).until("denoise")
        await client.dispatch(plan, batch_id="w", window=40)
        await client.write(yield_batch=worker_pb2.YieldBatch(batch_id="w"))
        executed = await client.next(BatchExecuted)
        assert executed.yielded
        assert len(executed.results) < 40
        [plan] = _plans(executed)
        assert plan.units[0].step_range.start == len(executed.results)
        rest = await client.execute(plan, window=40)
        digests = [result.state_digest for result in (*executed.results, *rest.results)]
        assert digests == [result.state_digest for result in undisturbed.results]
        await client.release("told")


@pytest.mark.row("LOOP-14")
async def test_a_release_ends_the_window_at_the_next_boundary(
    attach: Attach, driver: Any, entry: CatalogEntry, make_spec: MakeSpec
) -> None:
    async with attach() as client:
        going = await driver(client, entry, make_spec("going", steps=400)).until("denoise")
        staying = await driver(client, entry, make_spec("staying", steps=400)).until("denoise")
        before = await driver(client, entry, make_spec("before", steps=2)).until("denoise")
        await client.dispatch(before)
        await client.dispatch(going, staying, window=400)
        # What stood before the window is done, so the window runs.
        await client.next(BatchExecuted)
        await client.release("going")
        executed = await client.next(BatchExecuted)
        of_going = [r for r in executed.results if r.loop.request_id == "going"]
        of_staying = [r for r in executed.results if r.loop.request_id == "staying"]
        assert of_going[-1].error is not None
        assert of_going[-1].error.reason == "LOOP_RELEASED"
        assert len(of_going) <= len(of_staying) < 400
        health = await client.stub.Health(worker_pb2.HealthRequest(), timeout=60)
        assert health.loops == 2
        await client.release("staying")
        await client.release("before")
