"""Measured peaks: what a unit of a shape really takes, in place of what its kernel expects.

A kernel's own figure is a bound from the sizes of its tensors; it holds until the shape has run.
The first runs of each shape are measured, and from then on plans declare what was measured, so
that reservations follow reality.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from fastvideo.loops.contract import StepContext
from fastvideo.memory.peak import measured_peak
from fastvideo.memory.pools import MemoryTag
from fastvideo.scheduling.work import WorkPlan, WorkUnit

T = TypeVar("T")

# A first run may do work that is done once a shape, such as a probe; the second does not.
_RUNS: Final = 2
# Steps of a shape differ a little, such as frames at a video's beginning and within.
_MARGIN: Final = 1.1
_SHAPES_MAX: Final = 1024

ShapeKey = tuple[str, str, str]
"""Model instance, phase and shape."""


class PeakBook:
    """Activation peaks by shape and units a batch; safe to use from any thread."""

    def __init__(self) -> None:
        # Of each shape: units a batch to the peaks of its first runs.
        self._peaks: OrderedDict[ShapeKey, dict[int, list[int]]] = OrderedDict()
        self._lock = threading.Lock()

    def run(
        self, units: Sequence[WorkUnit], context: StepContext, work: Callable[[], T]
    ) -> tuple[T, int]:
        """What the work gives, and its peak in bytes; 0 when it was not measured.

        Only units on the device are measured, in the first runs of their shape; a run without
        a forward, such as one that found all in a cache, tells nothing.
        """
        key, count = _key(units[0]), len(units)
        if not units[0].resources.compute or not self._is_wanted(key, count):
            return work(), 0
        before = context.forwards
        result, peak = measured_peak(work)
        if peak and context.forwards > before:
            self._note(key, count, peak)
        return result, peak

    def unit_bytes(self, unit: WorkUnit) -> int | None:
        """What was measured of a unit's shape, with a margin; None before that."""
        with self._lock:
            sizes = self._peaks.get(_key(unit))
            if not sizes:
                return None
            shares = [max(peaks[1:] or peaks) / count for count, peaks in sizes.items()]
        return int(max(shares) * _MARGIN)

    def declare(self, plan: WorkPlan) -> WorkPlan:
        """The plan with measured activations where a unit's shape was measured."""
        return replace(plan, units=tuple(self._declared(unit) for unit in plan.units))

    def forget(self, model_instance_id: str) -> None:
        """Drop what was measured of a model that is gone."""
        with self._lock:
            for key in [key for key in self._peaks if key[0] == model_instance_id]:
                del self._peaks[key]

    def _declared(self, unit: WorkUnit) -> WorkUnit:
        declared = unit.resources.memory_bytes
        if not unit.resources.compute or MemoryTag.ACTIVATIONS not in declared:
            return unit
        measured = self.unit_bytes(unit)
        if measured is None or measured == declared[MemoryTag.ACTIVATIONS]:
            return unit
        memory = {**declared, MemoryTag.ACTIVATIONS.value: measured}
        return replace(unit, resources=replace(unit.resources, memory_bytes=memory))

    def _is_wanted(self, key: ShapeKey, count: int) -> bool:
        """Whether to measure: batches of 1, 2, 4, ... units, since it slows a run down."""
        with self._lock:
            sizes = self._peaks.get(key, {})
            return len(sizes.get(count, ())) < _RUNS and (not sizes or count & (count - 1) == 0)

    def _note(self, key: ShapeKey, count: int, peak: int) -> None:
        with self._lock:
            self._peaks.setdefault(key, {}).setdefault(count, []).append(peak)
            self._peaks.move_to_end(key)
            while len(self._peaks) > _SHAPES_MAX:
                self._peaks.popitem(last=False)


def _key(unit: WorkUnit) -> ShapeKey:
    return (unit.model_instance_id, unit.cost_phase, unit.cost_shape)
