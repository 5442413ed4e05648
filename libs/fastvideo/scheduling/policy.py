"""The knobs of scheduling, with their defaults."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import accumulate
from types import MappingProxyType
from typing import Any, Final

from fastvideo.errors import InvalidField
from fastvideo.scheduling.admission import (
    CACHE,
    CAPTURE,
    COMPUTE,
    IO,
    MEMORY,
    RESIDENT,
    ROLE,
    SECONDS,
    STAGING,
    STREAM,
    TRANSFER,
)
from fastvideo.scheduling.work import UnitKind

DEFAULT_BUDGET: Final[Mapping[str, float]] = MappingProxyType(
    {CACHE: 65_536, TRANSFER: 1 << 30, STREAM: 1_024, STAGING: 4 << 30}
)
"""What a worker is taken to have of the resources that it does not announce."""

_RESOURCES: Final = frozenset(
    {COMPUTE, SECONDS, IO, RESIDENT, CACHE, TRANSFER, CAPTURE, STREAM, STAGING}
)
# Resources of which there are several, by what follows.
_FAMILIES: Final = (MEMORY, ROLE)
# Thirty years: what is added to a moment is a moment.
_NUMBER_MAX: Final = 1e9
# Of resources, which are bytes too.
_AMOUNT_MAX: Final = 1e18

# Knobs that may be 0, which means without.
_MAY_BE_ZERO: Final = frozenset(
    {
        "fresh_wait_seconds_max",
        "affinity_seconds_max",
        "affinity_keys_max",
        "progress_step_min",
        "snapshot_overhead_max",
        "snapshot_seconds_min",
        "snapshot_seconds_guess",
        "preemptions_max",
        "residency_seconds_min",
        "drain_seconds_max",
        "queue_news_seconds_min",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SloClass:
    """How requests of a priority are treated.

    A request belongs to the class with the greatest `priority_min` that its priority reaches.
    """

    priority_min: int = 0
    # Aimed at from acceptance to the end. It orders like a deadline and fails nothing; 0 is none.
    target_seconds: float = 0.0
    # Places of every worker that requests of lower classes leave free.
    reserved_places: int = 0
    # The pool of workers, by their role, and the mesh, by the hash of its parallel plan, that
    # the class is bound to; empty is any.
    pool: str = ""
    mesh: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingPolicy:
    """Bounds and preferences of one shard; times in seconds.

    Raises InvalidField, naming the knob, for a value that makes no sense.
    """

    # Requests that hold state on one worker at a time; more wait in the queue.
    resident_requests_max: int = 32
    # Budget of one worker by resource name (see `admission`), in place of the default; of what
    # the worker announces itself, such as memory, the smaller counts.
    worker_budget: Mapping[str, float] = field(default_factory=dict)
    # The same for workers of a role, before `worker_budget`.
    role_budgets: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    # Requests that live in the shard, waiting or running; more fail at once.
    live_requests_max: int = 100_000
    # Workers that may be lost under a request that runs there and gets no further in between;
    # those that ran together share a loss, and one that gets on is not suspected any more.
    attempts_max: int = 5
    # Units that share a forward, whatever their loops allow.
    batch_units_max: int = 64
    # A new request's unit goes behind running loops for no longer than this.
    fresh_wait_seconds_max: float = 0.05
    # A unit that waited this long goes before the others in every second batch, whatever its
    # priority.
    starving_wait_seconds_max: float = 5.0
    # A request that waited this long for a place gets every second one that is its kind and
    # becomes free, whatever its priority and its tenant's share.
    queue_wait_seconds_max: float = 60.0
    # Units that one dispatch may pass over because their resources are taken.
    deferrals_max: int = 8
    # Tenant to its share of device-seconds relative to others'; 1 for one that is not named.
    tenant_weights: Mapping[str, float] = field(default_factory=dict)
    # Kind of unit to its share of a worker's device-seconds relative to others'. Empty does not
    # tell kinds apart; those that are not named share 1 between them.
    kind_shares: Mapping[UnitKind, float] = field(default_factory=dict)
    # Classes of requests, by name.
    slo_classes: Mapping[str, SloClass] = field(default_factory=dict)
    # Steps of a loop that run without asking again while nobody waits, and how long they may
    # take together; 1 asks after every step.
    window_steps_max: int = 16
    window_seconds_max: float = 0.25
    # Predicted seconds that a request may wait longer on a worker that has what it needs cached
    # than on the one with the least work.
    affinity_seconds_max: float = 0.5
    # What is remembered of one worker's caches.
    affinity_keys_max: int = 1_024
    # A waiting request is told of its new place at most this often, the first so many of a line.
    queue_news_seconds_min: float = 1.0
    queue_news_requests_max: int = 100
    # Share of device-seconds that saving running loops may take; 0 saves none on its own. And
    # the least time between two snapshots of a request, and what one is taken to cost before
    # any was measured.
    snapshot_overhead_max: float = 0.02
    snapshot_seconds_min: float = 2.0
    snapshot_seconds_guess: float = 0.04
    # How often a request may be set aside for those of a higher class, and how long it has a
    # place at least before.
    preemptions_max: int = 3
    residency_seconds_min: float = 1.0
    # Predicted seconds that a request may still run on a worker that drains.
    drain_seconds_max: float = 2.0
    # Progress is told when it rose by at least this much, and at the end of a node.
    progress_step_min: float = 0.01
    # Newest measurements that a prediction is made of.
    cost_samples_max: int = 7

    def __post_init__(self) -> None:
        """Check every value."""
        for knob in fields(self):
            _check(knob.name, getattr(self, knob.name))
        for name, budget in (("worker_budget", self.worker_budget), *_named(self.role_budgets)):
            _check_resources(name, budget)
        reserved = sum(known.reserved_places for known in self.slo_classes.values())
        if reserved >= self.resident_requests_max:
            raise InvalidField(
                "slo_classes",
                f"{reserved} reserved_places in all",
                f"fewer than resident_requests_max, {self.resident_requests_max}, "
                "so that the others have a place too",
            )

    def slo_class(self, priority: int) -> SloClass | None:
        """The class of requests with that priority."""
        reached = [c for c in self.slo_classes.values() if c.priority_min <= priority]
        return max(reached, key=lambda known: known.priority_min, default=None)

    def level(self, priority: int) -> int:
        """That of its class; requests of a higher one may take its place."""
        if not self.slo_classes:
            return priority
        known = self.slo_class(priority)
        return known.priority_min if known is not None else min(0, priority)

    def class_level(self, priority: int) -> int | None:
        """The same where there are classes of service; None where there are none."""
        return self.level(priority) if self.slo_classes else None

    def kept_from(self, priority: int) -> tuple[tuple[int, int], ...]:
        """What a request of that priority leaves to higher classes, the highest of them first.

        The level of each, and the places of every worker kept for it and those above it.
        """
        above = sorted(
            (known for known in self.slo_classes.values() if known.priority_min > priority),
            key=lambda known: -known.priority_min,
        )
        places = accumulate(known.reserved_places for known in above)
        return tuple((known.priority_min, kept) for known, kept in zip(above, places, strict=True))


def _check(name: str, value: Any) -> None:
    """Raise InvalidField for a number, or a number inside of a mapping, that is too small."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(inner, SloClass):
                _check(f"{name}.{key}", inner)
            elif not (0 <= inner.target_seconds <= _NUMBER_MAX and inner.reserved_places >= 0):
                allowed = f"no value below 0 or above {_NUMBER_MAX:g}"
                raise InvalidField(f"{name}.{key}", inner, allowed)
        return
    knob = name.partition(".")[0]
    is_amount = knob.endswith(("_budget", "_budgets"))
    may_be_zero = is_amount or knob in _MAY_BE_ZERO
    if value < 0 or (value == 0 and not may_be_zero):
        raise InvalidField(name, value, "0 or more" if may_be_zero else "more than 0")
    most = _AMOUNT_MAX if is_amount else _NUMBER_MAX
    if not math.isfinite(value) or value > most:
        raise InvalidField(name, value, f"a number up to {most:g}")


def _named(budgets: Mapping[str, Mapping[str, float]]) -> Iterator[tuple[str, Mapping[str, float]]]:
    return ((f"role_budgets.{role}", budget) for role, budget in budgets.items())


def _check_resources(name: str, budget: Mapping[str, float]) -> None:
    """Raise InvalidField for a resource that nothing counts, so that no bound is a word."""
    for resource in budget:
        named = any(resource.startswith(one) and resource != one for one in _FAMILIES)
        if resource not in _RESOURCES and not named:
            known = ", ".join([*sorted(_RESOURCES), *(f"{one}NAME" for one in _FAMILIES)])
            raise InvalidField(f"{name}.{resource}", resource, known)
