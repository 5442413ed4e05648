"""The knobs of scheduling, with their defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from fastvideo.scheduling.admission import CACHE, STAGING, STREAM, TRANSFER

DEFAULT_BUDGET: Final[Mapping[str, int]] = MappingProxyType(
    {CACHE: 65_536, TRANSFER: 1 << 30, STREAM: 1_024, STAGING: 4 << 30}
)
"""What a worker is taken to have of the resources that it does not announce."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingPolicy:
    """Bounds and preferences of one shard; times in seconds."""

    # Requests that hold state on one worker at a time; more wait in the queue.
    resident_requests_max: int = 32
    # Budget of one worker, by resource name (see `admission`), beside what it announces.
    worker_budget: Mapping[str, int] = field(default_factory=lambda: DEFAULT_BUDGET)
    # Requests that live in the shard, waiting or running; more fail at once.
    live_requests_max: int = 100_000
    # Tries of a request before the loss of its worker fails it.
    attempts_max: int = 3
    # A new request's unit goes behind running loops for no longer than this.
    fresh_wait_seconds_max: float = 0.05
    # A unit that waited this long goes before everything, whatever its priority.
    starving_wait_seconds_max: float = 5.0
    # Units that one dispatch may pass over because their resources are taken.
    deferrals_max: int = 8
    # Progress is told when it rose by at least this much, and at the end of a node.
    progress_step_min: float = 0.01
    # Weight of the newest measurement in a cost, 0 to 1.
    cost_smoothing: float = 0.3
