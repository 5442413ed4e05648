"""What the core is told: facts that happened outside of it.

Workers' messages are events of the log and are inputs as they are (`scheduling.events`); the
rest is here.
"""

from dataclasses import dataclass
from datetime import datetime

from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.events import (
    BatchExecuted,
    LeaderElected,
    LoopFailed,
    LoopPrepared,
    RequestSnapshotted,
    WorkerAttached,
    WorkerDetached,
    WorkerDraining,
    WorkerLost,
    WorkerReattached,
)
from fastvideo.scheduling.work import CancelScope


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSubmitted:
    """An accepted request, new or found in the log by a new leader."""

    spec: RequestSpec
    # Its position in the log, for explanations.
    offset: int = 0
    # When it was accepted; None means now.
    accepted_at: datetime | None = None
    # What earlier leaders did with it: tries begun, progress told, first start.
    attempts: int = 0
    progress: float = 0.0
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """A user wants a request, a session's requests, one loop or one output stream to stop."""

    scope: CancelScope
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time passed and nothing else happened."""


SchedulerInput = (
    RequestSubmitted
    | CancelRequested
    | WorkerAttached
    | WorkerDetached
    | WorkerDraining
    | WorkerLost
    | WorkerReattached
    | LoopPrepared
    | LoopFailed
    | BatchExecuted
    | RequestSnapshotted
    | LeaderElected
    | Tick
)
"""One thing that the scheduler learns."""
