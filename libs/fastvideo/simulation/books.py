"""What the checker writes down: workers with what is reserved on them, requests with their units.

Everything here follows from inputs and decisions alone. Nothing is asked of the core, and no
sum of the core's is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.events import WorkerAttached
from fastvideo.scheduling.work import LoopRef, LoopSnapshot, WorkUnit

ROUNDING: Final = 1e-4
"""Seconds are sums of floats; everything else is whole."""

Amounts = dict[str, float]
"""Resource name to amount."""


@dataclass(slots=True)
class Batch:
    """A batch in flight."""

    units: tuple[WorkUnit, ...]
    amounts: Amounts
    window: int
    since_us: int


@dataclass(slots=True)
class WorkerBook:
    """An attached worker."""

    attached: WorkerAttached
    budget: Mapping[str, float]
    reserved: Amounts = field(default_factory=dict)
    batches: dict[str, Batch] = field(default_factory=dict)
    residents: dict[str, None] = field(default_factory=dict)
    draining: bool = False
    # Its stream is broken; nothing is given to it.
    detached: bool = False
    # Batches that it runs and that nobody here gave.
    strays: set[str] = field(default_factory=set)
    # The number of its last report.
    reported: int = 0
    # Time in which nothing could be given to it, for waits.
    outage_us: int = 0
    outage_since_us: int | None = None
    # The longest batch that it has run, in microseconds.
    longest_us: int = 0

    @property
    def places(self) -> int:
        """Requests that it may hold at a time."""
        return int(self.budget["resident_requests"])

    def take(self, amounts: Mapping[str, float]) -> str:
        """Reserve; gives the resource whose budget is passed, or nothing."""
        passed = ""
        for resource, amount in amounts.items():
            total = self.reserved.get(resource, 0) + amount
            self.reserved[resource] = total
            limit = self.budget.get(resource)
            if limit is not None and total > limit + ROUNDING:
                passed = f"{resource}: {total} of {limit}"
        return passed

    def give_back(self, amounts: Mapping[str, float]) -> None:
        """Give back what was reserved."""
        for resource, amount in amounts.items():
            left = self.reserved[resource] - amount
            if left > ROUNDING:
                self.reserved[resource] = left
            else:
                del self.reserved[resource]

    def let_go(self, node: "NodeBook") -> None:
        """Give back what a loop kept."""
        if node.kept_blocks:
            self.give_back({"cache_blocks": node.kept_blocks})
            node.kept_blocks = 0

    def outage(self, now_us: int) -> int:
        """Microseconds until now in which nothing could be given to it."""
        open_us = 0 if self.outage_since_us is None else now_us - self.outage_since_us
        return self.outage_us + open_us


@dataclass(slots=True)
class Offer:
    """A unit that could run, since when, and how long its worker had been out by then."""

    unit: WorkUnit
    since_us: int
    outage_us: int


@dataclass(slots=True)
class NodeBook:
    """One loop of the current attempt."""

    ref: LoopRef
    # Steps that a snapshot brought; None while it is not prepared.
    base: int | None = None
    offers: dict[str, Offer] = field(default_factory=dict)
    # Unit to the batch that it is in.
    in_flight: dict[str, str] = field(default_factory=dict)
    # Steps of this attempt whose results count.
    accepted: set[int] = field(default_factory=set)
    ended: bool = False
    restored: bool = False
    # Cache blocks that it keeps until it ends.
    kept_blocks: int = 0

    @property
    def version(self) -> int:
        """The state's version as far as it is known; -1 before it is prepared."""
        return -1 if self.base is None else self.base + len(self.accepted)


@dataclass(slots=True)
class RequestBook:
    """A request that was submitted."""

    spec: RequestSpec
    submitted_us: int
    accepted_at: datetime | None = None
    attempt: int = 1
    worker_id: str = ""
    nodes: dict[str, NodeBook] = field(default_factory=dict)
    started: bool = False
    lost: bool = False
    losses: int = 0
    cancel_asked: bool = False
    # What was saved last of each node, and nodes of earlier attempts that need not run again.
    snapshots: dict[str, LoopSnapshot] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    # It gives its place away at the next boundary.
    set_aside: bool = False
    # Reasons with which it may fail.
    faults: set[str] = field(default_factory=set)
    units: int = 0
    progress: float = 0.0
    ended_as: str = ""

    def node(self, ref: LoopRef) -> NodeBook | None:
        """The current attempt's loop that is meant."""
        if ref.attempt != self.attempt:
            return None
        return self.nodes.get(ref.node_id)

    @property
    def in_flight(self) -> int:
        """Units that run."""
        return sum(len(node.in_flight) for node in self.nodes.values())
