"""A look into a cache by a unit: held to the unit's plan, reported in its result, and noted."""

from dataclasses import replace
from typing import Final, Literal

from fastvideo.cache.evictable import CacheEntry, EvictableStore
from fastvideo.errors import ContractViolation
from fastvideo.loops.contract import StepContext
from fastvideo.memory.pressure import Evictions
from fastvideo.model.caching import CacheClass, CacheKey, CacheLookup, CacheOutcome
from fastvideo.scheduling.traces import CacheAccess
from fastvideo.scheduling.work import CachePlan, WorkUnit

WORKER_TIER: Final = "worker"
"""The worker's own memory."""


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


def record_look(
    context: StepContext,
    unit: WorkUnit,
    key: CacheKey,
    lookup: CacheLookup,
    tier: str = WORKER_TIER,
) -> None:
    """Report a hit or a miss in the unit's result, and note it with its key and its tier."""
    record(context, unit.unit_id, (replace(lookup, value_digest=""),))
    _note(context, unit, key, lookup, tier)


def record_kept(
    context: StepContext,
    unit: WorkUnit,
    key: CacheKey,
    kept: CacheLookup,
    tier: str = WORKER_TIER,
) -> None:
    """Note what the unit has kept; its result tells of looks alone."""
    _note(context, unit, key, kept, tier)


def look(store: EvictableStore, digest: str, entry: CacheEntry | None) -> CacheLookup:
    """A hit on an entry, or a miss."""
    if entry is None:
        return store.lookup(digest, CacheOutcome.MISS, 0)
    hit = store.lookup(digest, CacheOutcome.HIT, entry.size_bytes)
    return replace(hit, value_digest=entry.value_digest)


def kept(cache_class: CacheClass, digest: str, size_bytes: int, value: str) -> CacheLookup:
    """What was kept under a key, by the digests of both."""
    return CacheLookup(
        cache_class=cache_class,
        key_digest=digest,
        outcome=CacheOutcome.KEPT,
        size_bytes=size_bytes,
        value_digest=value,
    )


def _note(
    context: StepContext, unit: WorkUnit, key: CacheKey, lookup: CacheLookup, tier: str
) -> None:
    context.accesses.append(
        CacheAccess(
            unit_id=unit.unit_id,
            request_id=unit.loop.request_id,
            lookup=lookup,
            key=key,
            tier=tier,
        )
    )
