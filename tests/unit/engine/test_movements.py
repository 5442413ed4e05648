"""Random windows, yields, snapshots, moves and losses: every request ends with its own bits."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.commands import (
    ExecuteBatch,
    PrepareLoop,
    ReleaseLoops,
    SnapshotLoops,
)
from fastvideo.scheduling.events import LoopPrepared
from fastvideo.scheduling.work import LoopSnapshot, StepResult, UnitKind, WorkPlan

World = Any
MakeRequest = Callable[..., RequestSpec]
MakeCommand = Callable[..., PrepareLoop]

WORKERS = 2
REQUESTS = 6


@dataclass
class Running:
    """A request on its way: where it is, what it plans, and what is saved of it."""

    request: RequestSpec
    expected: list[str]
    worker: int
    plan: WorkPlan
    attempt: int = 1
    saved: LoopSnapshot | None = None
    ended: StepResult | None = None


class Fleet:
    """A few executors that share a store, and a scheduler that does as it likes."""

    def __init__(
        self, seed: int, make_world: type[World], make_request: Any, make_command: Any
    ) -> None:
        self._random = random.Random(seed)
        self._make_world = make_world
        self._make_command = make_command
        self._worlds = [make_world()]
        self._worlds += [make_world(shelf=self._worlds[0].shelf) for _ in range(WORKERS - 1)]
        self._running = [self._begin(make_request, place) for place in range(REQUESTS)]
        self._batches = 0

    def run(self) -> None:
        """Until every request has ended with the bits of an undisturbed run."""
        for _ in range(1_000):
            if not self._left():
                break
            self._random.choices((self._window, self._save, self._move, self._lose), (10, 3, 2, 1))[
                0
            ]()
        for each in self._running:
            assert each.ended is not None
            world = self._worlds[each.worker]
            world.executor.release(
                ReleaseLoops(request_id=each.request.request_id, attempt=each.attempt)
            )
        for world in self._worlds:
            assert world.executor.loops == 0
            assert world.pools.in_use_bytes() == world.start_bytes

    def _begin(self, make_request: Any, place: int) -> Running:
        request = make_request(f"r{place}", steps=self._random.randint(1, 12), seed=place)
        undisturbed = self._make_world()
        plan = undisturbed.prepare(request)
        expected = []
        while plan is not None:
            [result] = _run(undisturbed, "alone", [plan], 1)
            expected.append(result.state_digest)
            plan = result.next_plan
        worker = self._random.randrange(WORKERS)
        return Running(request, expected, worker, self._worlds[worker].prepare(request))

    def _left(self) -> list[Running]:
        return [each for each in self._running if each.ended is None]

    def _window(self) -> None:
        """Some requests of one worker run on, told to yield at a random step or not."""
        worker = self._random.choice(self._left()).worker
        here = [each for each in self._left() if each.worker == worker]
        chosen = self._random.sample(here, self._random.randint(1, min(4, len(here))))
        self._batches += 1
        batch_id = f"b{self._batches}"
        world, steps = self._worlds[worker], iter(range(100))
        told = self._random.choice((None, self._random.randrange(6)))

        def during_step() -> None:
            if next(steps) == told:
                world.executor.yield_batch(batch_id)
                # It is saved in the middle of its window, too.
                self._snapshot(self._random.choice(chosen), release=False)

        world.kernel.during_step = during_step
        results = _run(world, batch_id, [each.plan for each in chosen], self._random.randint(1, 9))
        world.kernel.during_step = lambda: None
        for each in chosen:
            own = [r for r in results if r.loop.request_id == each.request.request_id]
            for result in own:
                assert result.error is None, result.error
                assert result.state_digest == each.expected[result.state_version - 1]
            if own[-1].next_plan is None:
                each.ended = own[-1]
            else:
                each.plan = own[-1].next_plan

    def _save(self) -> None:
        self._snapshot(self._random.choice(self._left()), release=False)

    def _move(self) -> None:
        """Set aside here, gone on with anywhere."""
        each = self._random.choice(self._left())
        self._snapshot(each, release=True)
        self._restore(each)

    def _lose(self) -> None:
        """A worker is lost: its requests go on elsewhere from what was saved last."""
        lost = self._random.randrange(WORKERS)
        self._worlds[lost].executor.start_over(1.0)
        for each in [each for each in self._left() if each.worker == lost]:
            self._restore(each)

    def _snapshot(self, each: Running, *, release: bool) -> None:
        event = self._worlds[each.worker].executor.snapshot(
            SnapshotLoops(request_id=each.request.request_id, attempt=each.attempt, release=release)
        )
        assert event.error is None, event.error
        [each.saved] = event.snapshots

    def _restore(self, each: Running) -> None:
        each.attempt += 1
        each.worker = self._random.randrange(WORKERS)
        executor = self._worlds[each.worker].executor
        command = self._make_command(each.request, attempt=each.attempt)
        saved = None
        if each.saved is not None:
            command = replace(command, restore=each.saved)
            saved = executor.fetch(each.saved)
        event = executor.prepare(command, saved)
        assert isinstance(event, LoopPrepared), event
        each.plan = event.plan


def _run(world: World, batch_id: str, plans: list[WorkPlan], steps: int) -> list[StepResult]:
    executed = world.executor.execute(
        ExecuteBatch(
            batch_id=batch_id,
            kind=UnitKind.DIFFUSION_STEP,
            unit_ids=tuple(unit.unit_id for plan in plans for unit in plan.units),
            window=steps,
        )
    )
    return list(executed.results)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_done_with_them_requests_end_with_the_bits_of_undisturbed_runs(
    seed: int, make_world: type[World], make_request: MakeRequest, make_command: MakeCommand
) -> None:
    Fleet(seed, make_world, make_request, make_command).run()
