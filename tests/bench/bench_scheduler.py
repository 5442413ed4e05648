"""P4: what the scheduler's core costs for a unit, alone, and how that grows with live loops.

Loops denoise in batches on simulated workers, with shares of tenants, windows and all else as it is
by default, and with the service's thresholds of garbage collection; only the CPU time of the core
itself counts.
"""

import gc
import statistics
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from measurement import Measurement

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.events import DispatchBatch
from fastvideo.scheduling.inputs import RequestSubmitted
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.scheduling.work import LoopRef, StepRange, WorkUnit
from fastvideo_scheduler.app import COLLECTOR_THRESHOLDS
from tests.unit.scheduling.world import World, request, units_of

IDS = ("P4",)
CORE_UNITS = 20_000
LOOPS_A_WORKER = 10
TENANTS = 7


def measure() -> list[Measurement]:
    """Units decided a second, with many loops against few."""
    before = gc.get_threshold()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    try:
        return [_core()]
    finally:
        gc.set_threshold(*before)


def _core() -> Measurement:
    small, large = [], []
    for _ in range(3):
        small.append(_core_seconds_per_unit(1_000))
        large.append(_core_seconds_per_unit(10_000))
    few, many = statistics.median(small), statistics.median(large)
    return Measurement(
        id="P4",
        what="core, 10,000 live loops on 1,000 workers, CPU seconds a unit",
        value=many,
        unit="s",
        peer=few,
        peer_name="1,000 loops on 100 workers",
        goal="<= 1.3 x, and >= 20,000 units/s",
        met=many <= 1.3 * few and 1 / many >= 20_000,
        details={"units_per_s_10000": 1 / many, "units_per_s_1000": 1 / few},
    )


class _Units(Sequence[WorkUnit]):
    """The units of a loop, each made when it is asked for."""

    def __init__(self, spec: RequestSpec, loop: LoopRef, instance: str) -> None:
        self._units = units_of(spec, loop, instance)
        self._steps = CORE_UNITS if loop.node_id == "denoise" else len(self._units)

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if self._steps == len(self._units):
            return self._units[index]
        first = self._units[0]
        return replace(
            first,
            unit_id=f"{first.unit_id}/{index}",
            step_range=StepRange(start=index, stop=index + 1, total=self._steps),
        )


def _core_seconds_per_unit(loops: int) -> float:
    """Run denoise loops in batches; only the CPU time of the core itself counts."""
    world = World(
        policy=SchedulingPolicy(resident_requests_max=LOOPS_A_WORKER), plan=cast(Any, _Units)
    )
    workers = [f"w{n}" for n in range(loops // LOOPS_A_WORKER)]
    for worker_id in workers:
        world.attach(worker_id)
    for n in range(loops):
        spec = request(f"r{n}", steps=1, tenant=f"t{n % TENANTS}")
        world.specs[f"r{n}"] = spec
        world.tell(RequestSubmitted(spec=spec))
    for worker_id in workers:
        _reach_denoising(world, worker_id)
    world.history.clear()
    turn, units, seconds = deque(workers), 0, 0.0
    while units < CORE_UNITS:
        worker_id = turn[0]
        turn.rotate(-1)
        report = world.execution(worker_id)
        begun = time.thread_time()
        decisions = world.core.decide(report, world.now)
        seconds += time.thread_time() - begun
        for decision in decisions:
            if isinstance(decision, DispatchBatch):
                units += len(decision.unit_ids)
            world._carry_out(decision)
    return seconds / units


def _reach_denoising(world: World, worker_id: str) -> None:
    worker = world.workers[worker_id]
    while True:
        while worker.preparing:
            world.prepare(worker_id)
        batch = next(iter(worker.batches.values()))
        if batch.kind == "diffusion_step" and len(batch.unit_ids) > 1:
            return
        world.execute(worker_id)
