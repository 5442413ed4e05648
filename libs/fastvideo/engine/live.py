"""The loops that live on a worker: their states, their planned units, who runs right now."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from fastvideo.engine.footprint import Storages
from fastvideo.errors import (
    AlreadyExists,
    Cancelled,
    ContractViolation,
    FailedPrecondition,
    FastVideoError,
    NotFound,
    ResourceExhausted,
)
from fastvideo.loops.contract import PlanContext, StateBase
from fastvideo.scheduling.events import ResidentLoop
from fastvideo.scheduling.work import LoopRef, WorkPlan, WorkUnit

# Units of freed loops are remembered so that a late dispatch learns why they are gone.
_FREED_UNITS_MAX: Final = 4096
# So are released attempts: a command to prepare that was under way must not revive them.
_CLOSED_SCOPES_MAX: Final = 4096


@dataclass(slots=True, kw_only=True, eq=False)
class LiveLoop:
    """One prepared loop; only the thread that claimed it changes its state."""

    ref: LoopRef
    loop_id: str
    model_instance_id: str
    session_id: str
    state: StateBase
    plan_context: PlanContext
    # Storages of what the loop was given; they belong to the values, not to the state.
    given: Storages = field(default_factory=dict)
    # The role whose memory it takes.
    role: str = ""
    units: dict[str, WorkUnit] = field(default_factory=dict)
    busy: bool = False
    released: bool = False

    @property
    def owner(self) -> str:
        """Its name in the memory pools."""
        return f"loop:{self.ref.request_id}/{self.ref.node_id}/{self.ref.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A unit that may run now, or why it may not."""

    unit_id: str
    ref: LoopRef
    loop: LiveLoop | None = None
    unit: WorkUnit | None = None
    error: FastVideoError | None = None


class LoopTable:
    """All live loops; safe to use from any thread. `on_freed` is called for each that goes."""

    def __init__(self, loops_max: int, on_freed: Callable[[LiveLoop], None]) -> None:
        self._loops_max = loops_max
        self._on_freed = on_freed
        self._loops: dict[LoopRef, LiveLoop] = {}
        self._by_unit: dict[str, LiveLoop] = {}
        self._freed_units: OrderedDict[str, LoopRef] = OrderedDict()
        self._closed: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._changed = threading.Condition(threading.RLock())

    def __len__(self) -> int:
        return len(self._loops)

    def find(self, ref: LoopRef) -> LiveLoop | None:
        """The loop, if it lives."""
        return self._loops.get(ref)

    def has_any(self, scope: tuple[str, int]) -> bool:
        """Whether a loop of a request's attempt lives."""
        with self._changed:
            return any((ref.request_id, ref.attempt) == scope for ref in self._loops)

    def check_open(self, scope: tuple[str, int]) -> None:
        """Raise Cancelled when a request's attempt was released."""
        with self._changed:
            if scope in self._closed:
                raise Cancelled(f"{scope[0]} was released", reason="LOOP_RELEASED")

    def check_room(self, ref: LoopRef) -> None:
        """Raise ResourceExhausted when no loop fits, AlreadyExists when this one lives.

        Raises Cancelled when its attempt was released already.
        """
        with self._changed:
            self.check_open((ref.request_id, ref.attempt))
            if ref in self._loops:
                raise AlreadyExists(
                    f"{ref.request_id}/{ref.node_id} is prepared already", subject=ref.node_id
                )
            if len(self._loops) >= self._loops_max:
                raise ResourceExhausted(
                    f"{self._loops_max} loops are live, which is the most",
                    subject="loops",
                    attributes={"loops_max": str(self._loops_max)},
                )

    def add(self, loop: LiveLoop, plan: WorkPlan) -> None:
        """Take in a prepared loop with its first plan. Raises as `check_room` does."""
        with self._changed:
            self.check_room(loop.ref)
            self._set_units(loop, plan.units)
            self._loops[loop.ref] = loop

    def replan(self, loop: LiveLoop, units: Iterable[WorkUnit]) -> None:
        """Put the units of a new state version in place of the old ones."""
        with self._changed:
            self._set_units(loop, tuple(units))

    def claim(self, unit_ids: Sequence[str]) -> list[Claim]:
        """Mark the loops of these units as running; a unit that cannot run says why."""
        with self._changed:
            # Several units of one loop may share a batch, so look first and mark after.
            claims = [self._claim_one(unit_id) for unit_id in unit_ids]
            for claim in claims:
                if claim.loop is not None:
                    claim.loop.busy = True
            return claims

    def finish(self, loops: Iterable[LiveLoop], ended: Iterable[LiveLoop] = ()) -> None:
        """The boundary: the loops run no longer; ended and released ones are freed."""
        ended = set(ended)
        with self._changed:
            for loop in set(loops):
                loop.busy = False
                if loop.released or loop in ended:
                    self._free(loop)
            self._changed.notify_all()

    def close(self, scope: tuple[str, int]) -> None:
        """Take no more loops of this request's attempt."""
        with self._changed:
            self._closed[scope] = None
            while len(self._closed) > _CLOSED_SCOPES_MAX:
                self._closed.popitem(last=False)

    def forget(self) -> None:
        """Begin anew: attempts that were released may come again."""
        with self._changed:
            self._closed.clear()

    def release(self, wanted: Callable[[LiveLoop], bool]) -> tuple[LoopRef, ...]:
        """Free the loops that are wanted gone; one that runs goes at its boundary."""
        with self._changed:
            going = [loop for loop in self._loops.values() if wanted(loop)]
            for loop in going:
                loop.released = True
                if not loop.busy:
                    self._free(loop)
            return tuple(loop.ref for loop in going)

    @property
    def refs(self) -> tuple[LoopRef, ...]:
        """The loops that live."""
        with self._changed:
            return tuple(self._loops)

    @property
    def residents(self) -> tuple[ResidentLoop, ...]:
        """The loops that live and that nobody has released."""
        with self._changed:
            return tuple(
                ResidentLoop(
                    loop=loop.ref,
                    loop_id=loop.loop_id,
                    model_instance_id=loop.model_instance_id,
                    state_version=loop.state.version,
                )
                for loop in self._loops.values()
                if not loop.released
            )

    def wait_gone(self, refs: Iterable[LoopRef], timeout_s: float) -> bool:
        """Whether the loops were all gone within the time."""
        wanted = set(refs)
        with self._changed:
            return self._changed.wait_for(lambda: wanted.isdisjoint(self._loops), timeout_s)

    def _claim_one(self, unit_id: str) -> Claim:
        loop = self._by_unit.get(unit_id)
        if loop is None:
            ref = self._freed_units.get(unit_id)
            if ref is not None:
                gone = Cancelled(f"the loop of {unit_id} was released", reason="LOOP_RELEASED")
                return Claim(unit_id=unit_id, ref=ref, error=gone)
            unknown = NotFound(
                f"{unit_id} is not planned here", reason="UNKNOWN_UNIT", subject=unit_id
            )
            return Claim(unit_id=unit_id, ref=LoopRef(), error=unknown)
        if loop.busy:
            running = FailedPrecondition(
                f"the loop of {unit_id} runs already", reason="LOOP_RUNNING", subject=unit_id
            )
            return Claim(unit_id=unit_id, ref=loop.ref, error=running)
        return Claim(unit_id=unit_id, ref=loop.ref, loop=loop, unit=loop.units[unit_id])

    def _set_units(self, loop: LiveLoop, units: Sequence[WorkUnit]) -> None:
        for unit in units:
            other = self._by_unit.get(unit.unit_id)
            if other is not None and other is not loop:
                raise ContractViolation(
                    f"unit id {unit.unit_id} belongs to another loop", subject=unit.unit_id
                )
        for unit_id in loop.units:
            del self._by_unit[unit_id]
        loop.units = {unit.unit_id: unit for unit in units}
        self._by_unit.update(dict.fromkeys(loop.units, loop))

    def _free(self, loop: LiveLoop) -> None:
        if self._loops.pop(loop.ref, None) is None:
            return
        for unit_id in loop.units:
            del self._by_unit[unit_id]
            self._freed_units[unit_id] = loop.ref
        while len(self._freed_units) > _FREED_UNITS_MAX:
            self._freed_units.popitem(last=False)
        self._on_freed(loop)
