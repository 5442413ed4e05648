"""The loops that live on a worker: their states, their planned units, who runs right now."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from fastvideo.engine.footprint import Storages
from fastvideo.engine.values import Scope
from fastvideo.errors import (
    AlreadyExists,
    Cancelled,
    ContractViolation,
    DeadlineExceeded,
    FailedPrecondition,
    FastVideoError,
    NotFound,
    ResourceExhausted,
)
from fastvideo.loops.contract import PlanContext, StateBase
from fastvideo.scheduling.events import ResidentLoop
from fastvideo.scheduling.work import LoopRef, LoopResult, LoopSnapshot, WorkPlan, WorkUnit

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
    # Nothing of it is run, since it is to be moved.
    held: bool = False
    released: bool = False
    # It goes when what runs has ended, whether or not that is a boundary.
    forced: bool = False
    # Windows with it end at the next boundary.
    pausing: bool = False
    # Set with its last state, before it is freed.
    ended: bool = False
    # The newest state before which it may be stopped, and so may be gone on from.
    boundary_state: StateBase | None = None
    # The newest snapshot of it.
    saved: LoopSnapshot | None = None

    @property
    def scope(self) -> Scope:
        """The attempt that it is of."""
        return (self.ref.request_id, self.ref.attempt)

    @property
    def at_boundary(self) -> bool:
        """Whether a cancellation may land now: nothing runs, and no unit must follow."""
        return not self.busy and may_stop_before(self.units.values())

    @property
    def owner(self) -> str:
        """Its name in the memory pools."""
        return f"loop:{self.ref.request_id}/{self.ref.node_id}/{self.ref.attempt}"


@dataclass(slots=True, kw_only=True, eq=False)
class EndedLoop:
    """A loop that is gone; what it left is kept under its node's name."""

    loop_id: str
    model_instance_id: str
    state_version: int
    steps: int
    result: LoopResult
    # The snapshot of what it left.
    saved: LoopSnapshot | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """What an attempt has at one moment: each loop at its last boundary, or ended."""

    # With the states that they had: they may run on.
    loops: tuple[tuple[LiveLoop, StateBase], ...]
    ended: tuple[EndedLoop, ...]


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
        self._closed: OrderedDict[Scope | LoopRef, None] = OrderedDict()
        self._ended: dict[Scope, dict[str, EndedLoop]] = {}
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

    def check_open(self, wanted: Scope | LoopRef) -> None:
        """Raise Cancelled when a request's attempt, or one loop of it, was released."""
        with self._changed:
            if wanted in self._closed:
                name = wanted.request_id if isinstance(wanted, LoopRef) else wanted[0]
                raise Cancelled(f"{name} was released", reason="LOOP_RELEASED")

    def check_room(self, ref: LoopRef) -> None:
        """Raise ResourceExhausted when no loop fits, AlreadyExists when this one lives.

        Raises Cancelled when its attempt was released already.
        """
        with self._changed:
            self.check_open((ref.request_id, ref.attempt))
            self.check_open(ref)
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
            loop.boundary_state = loop.state
            self._loops[loop.ref] = loop

    def move(self, loop: LiveLoop, state: StateBase, units: Iterable[WorkUnit]) -> None:
        """Give a loop its next state and the units that it plans, both at once."""
        with self._changed:
            self._set_units(loop, tuple(units))
            loop.state = state
            if may_stop_before(loop.units.values()):
                loop.boundary_state = state

    def end(self, loop: LiveLoop, state: StateBase, steps: int, result: LoopResult) -> None:
        """Give a loop its last state; what it left is on the worker already."""
        with self._changed:
            loop.state, loop.ended = state, True
            ended = EndedLoop(
                loop_id=loop.loop_id,
                model_instance_id=loop.model_instance_id,
                state_version=state.version,
                steps=steps,
                result=result,
            )
            self._ended.setdefault(loop.scope, {})[loop.ref.node_id] = ended

    def add_ended(self, ref: LoopRef, ended: EndedLoop) -> None:
        """Take in a loop that has ended elsewhere. Raises as `check_room` does."""
        with self._changed:
            self.check_room(ref)
            self._ended.setdefault((ref.request_id, ref.attempt), {})[ref.node_id] = ended

    def drop_ended(self, scope: Scope, node_id: str | None = None) -> None:
        """Forget the loops of an attempt that have ended, or one of them."""
        with self._changed:
            if node_id is None:
                self._ended.pop(scope, None)
            else:
                self._ended.get(scope, {}).pop(node_id, None)

    def boundary(self, scope: Scope) -> Boundary:
        """What an attempt has now, as of the last boundary of each of its loops."""
        with self._changed:
            loops = [loop for loop in self._of(scope) if not (loop.ended or loop.released)]
            return Boundary(
                loops=tuple((loop, loop.boundary_state or loop.state) for loop in loops),
                ended=tuple(self._ended.get(scope, {}).values()),
            )

    def pause(self, scope: Scope, *, pausing: bool = True) -> None:
        """End windows with an attempt's loops at their next boundary, until told otherwise."""
        with self._changed:
            for loop in self._of(scope):
                loop.pausing = pausing

    def hold(self, scope: Scope, timeout_s: float) -> tuple[LiveLoop, ...]:
        """Wait until no loop of an attempt runs and let none run until `let_go`.

        Raises DeadlineExceeded when one does not reach its boundary within the time.
        """
        with self._changed:
            self.pause(scope)
            at_rest = self._changed.wait_for(
                lambda: not any(loop.busy or loop.held for loop in self._of(scope)), timeout_s
            )
            held = self._of(scope)
            for loop in held:
                loop.pausing = False
            if not at_rest:
                raise DeadlineExceeded(
                    f"a step of {scope[0]} did not end within {timeout_s:g} s", subject=scope[0]
                )
            for loop in held:
                loop.held = True
            return held

    def let_go(self, held: Iterable[LiveLoop]) -> None:
        """Let held loops run again."""
        with self._changed:
            for loop in held:
                loop.held = False
            self._changed.notify_all()

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
        """The boundary: the loops run no longer; ended and released ones are freed.

        A released one whose next units are no boundary runs on to where they are.
        """
        ended = set(ended)
        with self._changed:
            for loop in set(loops):
                loop.busy = False
                if loop in ended or (loop.released and (loop.forced or loop.at_boundary)):
                    self._free(loop)
            self._changed.notify_all()

    def close(self, released: Scope | LoopRef, *, again: bool = False) -> None:
        """Take no more loops of this request's attempt, or not this one, unless they come again."""
        with self._changed:
            if again:
                self._closed.pop(released, None)
                return
            self._closed[released] = None
            while len(self._closed) > _CLOSED_SCOPES_MAX:
                self._closed.popitem(last=False)

    def forget(self) -> None:
        """Begin anew: attempts that were released may come again."""
        with self._changed:
            self._closed.clear()
            self._ended.clear()

    def scopes_of(self, unit_ids: Iterable[str]) -> set[Scope]:
        """The attempts that planned units are of."""
        with self._changed:
            return {
                self._by_unit[unit_id].scope for unit_id in unit_ids if unit_id in self._by_unit
            }

    def release(
        self, wanted: Callable[[LiveLoop], bool], *, forced: bool = False
    ) -> tuple[LoopRef, ...]:
        """Free the loops that are wanted gone, each at its next boundary or now if it is there.

        `forced` is for when nobody is left to run them on: then one that does not run goes
        wherever it stands.
        """
        with self._changed:
            going = [loop for loop in self._loops.values() if wanted(loop)]
            for loop in going:
                loop.released, loop.forced = True, loop.forced or forced
                if loop.at_boundary or (forced and not loop.busy):
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

    def _of(self, scope: Scope) -> tuple[LiveLoop, ...]:
        return tuple(loop for loop in self._loops.values() if loop.scope == scope)

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
        if loop.busy or loop.held:
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
        if loop.busy:
            raise ContractViolation(
                f"{loop.ref.request_id}/{loop.ref.node_id} was to be freed while it runs",
                reason="NOT_AT_BOUNDARY",
                subject=loop.ref.node_id,
            )
        if self._loops.pop(loop.ref, None) is None:
            return
        for unit_id in loop.units:
            del self._by_unit[unit_id]
            self._freed_units[unit_id] = loop.ref
        while len(self._freed_units) > _FREED_UNITS_MAX:
            self._freed_units.popitem(last=False)
        self._on_freed(loop)


def may_stop_before(units: Iterable[WorkUnit]) -> bool:
    """Whether a loop may be stopped before these units, which it plans next."""
    return all(unit.cancel_boundary for unit in units)
