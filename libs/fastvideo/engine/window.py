"""A window: a batch that goes on, step after step, with the loops that still share it."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from fastvideo.engine.batches import may_share
from fastvideo.engine.live import Claim, LiveLoop, LoopTable
from fastvideo.engine.stepping import Step, Stepper
from fastvideo.scheduling.commands import ExecuteBatch
from fastvideo.scheduling.traces import CacheAccess, TraceNote
from fastvideo.scheduling.work import StepResult, WorkUnit

# A batch may be told to yield while it waits; of so many that is remembered.
_YIELDS_MAX: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRun:
    """What a window gave: one result for every unit that ran, in order."""

    results: tuple[StepResult, ...]
    forwards: int
    # It stopped before its steps were over because it was told to.
    yielded: bool
    # The activations' measured peak, the most of its steps; 0 when none was measured.
    peak_bytes: int = 0
    notes: tuple[TraceNote, ...] = ()
    accesses: tuple[CacheAccess, ...] = ()


class Windows:
    """Runs batches to the end of their windows.

    Between two steps a window is over at once when it was told to yield or one of its loops
    was released. A loop leaves it that has ended, has failed, or whose next units may not
    share the batch; the others go on.
    """

    def __init__(self, stepper: Stepper, loops: LoopTable, steps_max: int) -> None:
        self._stepper = stepper
        self._loops = loops
        self._steps_max = steps_max
        self._yields: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()

    def yield_batch(self, batch_id: str) -> None:
        """End a window at its next boundary; one that waits runs one step. From any thread."""
        with self._lock:
            self._yields[batch_id] = None
            while len(self._yields) > _YIELDS_MAX:
                self._yields.popitem(last=False)

    def run(self, command: ExecuteBatch, claims: Sequence[Claim]) -> WindowRun:
        """Run claimed units and what follows them; no loop is claimed after that."""
        running = tuple(claims)
        results: list[StepResult] = []
        notes: list[TraceNote] = []
        accesses: list[CacheAccess] = []
        forwards, yielded, peak_bytes = 0, False, 0
        first = next((claim.unit for claim in claims if claim.unit is not None), None)
        left = min(max(1, command.window), self._steps_max)
        try:
            while running:
                step = self._stepper.step(running)
                left -= 1
                forwards += step.forwards
                peak_bytes = max(peak_bytes, step.peak_bytes)
                notes += step.notes
                accesses += step.accesses
                going = _going_on(step, first) if left and first is not None else ()
                if going and self._must_yield(command.batch_id, going):
                    going, yielded = (), True
                results += _results(step, going)
                self._leave(step, going)
                running = going
        finally:
            # Of a step that broke; after an undisturbed window nothing is left.
            self._loops.finish(_loops_of(running))
            with self._lock:
                self._yields.pop(command.batch_id, None)
        return WindowRun(
            results=tuple(results),
            forwards=forwards,
            yielded=yielded,
            peak_bytes=peak_bytes,
            notes=tuple(notes),
            accesses=tuple(accesses),
        )

    def _must_yield(self, batch_id: str, going: Sequence[Claim]) -> bool:
        if any(loop.pausing for loop in _loops_of(going)):
            return True
        with self._lock:
            return batch_id in self._yields

    def _leave(self, step: Step, going: Sequence[Claim]) -> None:
        """The boundary of the loops that do not go on."""
        staying = {id(claim.loop) for claim in going}
        living = [loop for loop in step.loops(ended=False) if id(loop) not in staying]
        ended = step.loops(ended=True)
        self._loops.finish((*living, *ended), ended)


def _going_on(step: Step, first: WorkUnit) -> tuple[Claim, ...]:
    """The next units of the loops that still share the batch; none when it is over."""
    if any(loop.released for loop in _loops_of([unit.claim for unit in step.units])):
        return ()
    going = []
    for stepped in step.units:
        units = stepped.plan.units if stepped.plan is not None else ()
        if len(units) == 1 and may_share(first, units[0]):
            [unit] = units
            going.append(
                Claim(
                    unit_id=unit.unit_id, ref=stepped.claim.ref, loop=stepped.claim.loop, unit=unit
                )
            )
    fits = all(claim.unit is None or len(going) <= claim.unit.max_batch for claim in going)
    return tuple(going) if fits else ()


def _results(step: Step, going: Sequence[Claim]) -> list[StepResult]:
    """The step's results; those of loops that do not go on carry their plans."""
    staying = {id(claim.loop) for claim in going}
    return [
        replace(
            stepped.result,
            measured_seconds=step.seconds,
            next_plan=None if id(stepped.claim.loop) in staying else stepped.plan,
        )
        for stepped in step.units
    ]


def _loops_of(claims: Sequence[Claim]) -> list[LiveLoop]:
    return [claim.loop for claim in claims if claim.loop is not None]
