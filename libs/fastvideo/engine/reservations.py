"""What units and loops hold in the pools: by owner, role and request."""

import threading
from collections.abc import Iterable
from typing import Any

from fastvideo.cache.recorded import record
from fastvideo.engine.footprint import resident_bytes
from fastvideo.engine.live import Claim, LiveLoop
from fastvideo.engine.values import Scope, scope_name
from fastvideo.errors import ContractViolation
from fastvideo.loops.contract import StepContext
from fastvideo.memory.pools import MemoryPools, MemoryTag
from fastvideo.memory.pressure import Evictions
from fastvideo.scheduling.work import WorkUnit


class Reservations:
    """Takes what units declare before they run and gives it back when they have."""

    def __init__(self, pools: MemoryPools) -> None:
        self._pools = pools
        # What was evicted for an attempt between its units, to be told by the next.
        self._untold: dict[Scope, Evictions] = {}
        self._lock = threading.Lock()

    def tell(self, scope: Scope, evicted: Evictions) -> None:
        """Let the attempt's next unit tell what was evicted for it; from any thread."""
        if evicted:
            with self._lock:
                self._untold[scope] = (*self._untold.get(scope, ()), *evicted)

    def forget(self, scope: Scope) -> None:
        """The attempt is gone, and its next unit with it."""
        with self._lock:
            self._untold.pop(scope, None)

    def admit(self, unit: WorkUnit, context: StepContext) -> None:
        """Take the memory that a unit declares; what is evicted for it shows in its result.

        Raises OutOfMemory.
        """
        with self._lock:
            untold = self._untold.pop((unit.loop.request_id, unit.loop.attempt), ())
        record(context, unit.unit_id, untold)
        for tag, size in unit.resources.memory_bytes.items():
            evicted = self._pools.resize(
                MemoryTag(tag), _unit_owner(unit.unit_id), size, role=role_of(unit)
            )
            record(context, unit.unit_id, evicted)

    def stage(self, unit: WorkUnit, size_bytes: int) -> None:
        """Count what a unit has staged, in place of what it declared. Raises OutOfMemory."""
        owner = _unit_owner(unit.unit_id)
        self._pools.resize(MemoryTag.STAGING, owner, size_bytes, role=role_of(unit))

    def check(self, units: Iterable[WorkUnit]) -> None:
        """Raise ContractViolation unless all that the units declare is reserved."""
        for unit in units:
            for tag, size in unit.resources.memory_bytes.items():
                held = self._pools.held_bytes(MemoryTag(tag), _unit_owner(unit.unit_id))
                if held < size:
                    raise ContractViolation(
                        f"{unit.unit_id} runs with {held} of {size} bytes of {tag} reserved",
                        reason="UNRESERVED_UNIT",
                        subject=unit.unit_id,
                    )

    def release(self, claims: Iterable[Claim]) -> None:
        """Give back what units took."""
        for claim in claims:
            self._pools.release(_unit_owner(claim.unit_id))

    def count_state(
        self, loop: LiveLoop, state: Any, context: StepContext | None = None, unit_id: str = ""
    ) -> None:
        """Account for a loop's state; what is evicted for it shows in the unit's result.

        Raises OutOfMemory.
        """
        evicted = self._pools.resize(
            MemoryTag.ACTIVATIONS,
            loop.owner,
            resident_bytes(state, excluding=loop.given),
            role=loop.role,
            scope=scope_name((loop.ref.request_id, loop.ref.attempt)),
        )
        if context is not None:
            record(context, unit_id, evicted)


def role_of(unit: WorkUnit) -> str:
    """The role whose memory a unit takes: the one that its plan names, or else its loop."""
    return unit.placement_hint.role or unit.loop_id


def _unit_owner(unit_id: str) -> str:
    return f"unit:{unit_id}"
