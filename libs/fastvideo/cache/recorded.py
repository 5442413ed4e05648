"""A look into a cache by a unit: held to the unit's plan, and reported in its result."""

from typing import Literal

from fastvideo.cache.evictable import EvictableStore
from fastvideo.errors import ContractViolation
from fastvideo.loops.contract import StepContext
from fastvideo.memory.pressure import Evictions
from fastvideo.model.caching import CacheLookup, CacheOutcome
from fastvideo.scheduling.work import CachePlan, WorkUnit


def planned_unit(context: StepContext, digest: str, verb: Literal["read", "write"]) -> WorkUnit:
    """The context's unit. Raises ContractViolation when it has not planned to use the key so."""
    unit = context.unit
    plan = CachePlan() if unit is None else unit.cache_plan
    if unit is None or digest not in (plan.reads if verb == "read" else plan.writes):
        raise ContractViolation(
            f"{unit.unit_id if unit else 'no unit'} has not planned to {verb} key {digest}",
            reason="UNPLANNED_CACHE_USE",
            subject=digest,
        )
    return unit


def record(context: StepContext, unit_id: str, lookups: Evictions) -> None:
    """Let the unit's result carry these look-ups."""
    if lookups:
        context.lookups.setdefault(unit_id, []).extend(lookups)


def look(store: EvictableStore, digest: str, size_bytes: int | None) -> CacheLookup:
    """A hit of so many bytes, or a miss."""
    outcome = CacheOutcome.MISS if size_bytes is None else CacheOutcome.HIT
    return store.lookup(digest, outcome, size_bytes or 0)
