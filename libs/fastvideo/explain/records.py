"""What is remembered of a request while its history is read: batches, units, loops, placements.

Only the fold (`fastvideo.explain.history`, with `course` and `work`) changes these.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from fastvideo.explain.types import WaitCause
from fastvideo.model.caching import CacheLookup
from fastvideo.requests.types import ErrorDetail
from fastvideo.scheduling.work import LoopRef, LoopSnapshot, StepRange, UnitKind

OFF_THE_COMPUTE_SLOT: Final = frozenset(
    {
        UnitKind.ARTIFACT_WRITE,
        UnitKind.CACHE_LOAD,
        UnitKind.CACHE_SAVE,
        UnitKind.TRANSFER_RECV,
        UnitKind.TRANSFER_SEND,
    }
)
"""Kinds of which a foreign batch is known not to have had the compute slot."""

# How long a command is thought to travel when its report was late for another reason.
TRAVEL_S: Final = 0.005


@dataclass(slots=True)
class BatchRecord:
    """A batch on a worker."""

    batch_id: str
    worker_id: str
    kind: UnitKind
    # Each once, in the order of its units.
    request_ids: tuple[str, ...]
    units: int
    window: int = 1
    predicted_seconds: float = 0.0
    dispatched_at: datetime | None = None
    # When the scheduler took its report in.
    reported_at: datetime | None = None
    # What the worker measured: waiting in its queue, and running.
    waited_seconds: float = 0.0
    measured_seconds: float = 0.0
    steps: int = 0
    forwards: int = 0
    yield_reason: str = ""
    # While it was in flight its worker was lost, or the stream to it was gone for a while.
    lost_at: datetime | None = None
    held_up_at: datetime | None = None
    # When its command reached the worker, and when the worker ran it. Of a batch in flight the
    # start is its dispatch; of a lost one nothing is known.
    arrived_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def on_compute(self) -> bool:
        """Whether it had the compute slot."""
        return self.kind not in OFF_THE_COMPUTE_SLOT

    def settle(self, reported_at: datetime) -> None:
        """Place its run between decision and report, when the latter has come.

        The part of the way that the worker does not account for is thought to be half for the
        command and half for the report, unless the report was held up.
        """
        self.reported_at = reported_at
        if self.dispatched_at is None:
            self.started_at = reported_at - timedelta(seconds=self.measured_seconds)
            self.ended_at = reported_at
            return
        whole = (reported_at - self.dispatched_at).total_seconds()
        travel = max(0.0, whole - self.waited_seconds - self.measured_seconds)
        outward = travel / 2 if self.held_up_at is None else min(travel / 2, TRAVEL_S)
        self.arrived_at = self.dispatched_at + timedelta(seconds=outward)
        begun = self.dispatched_at + timedelta(seconds=outward + self.waited_seconds)
        self.started_at = min(begun, reported_at)
        ended = self.started_at + timedelta(seconds=self.measured_seconds)
        self.ended_at = min(ended, reported_at)


@dataclass(slots=True)
class LoopRecord:
    """One loop of one placement."""

    ref: LoopRef
    loop_id: str
    worker_id: str
    assigned_at: datetime
    restored_from: str = ""
    prepared_at: datetime | None = None
    preparation_seconds: float = 0.0
    # Whether its units have the compute slot; None until it offered one.
    compute: bool | None = None
    # It was not prepared, and will not be.
    dropped_at: datetime | None = None


@dataclass(slots=True)
class UnitRecord:
    """One unit of the request."""

    unit_id: str
    loop: LoopRecord
    kind: UnitKind
    step_range: StepRange
    compute: bool
    ready_at: datetime | None
    # When it was not admitted, and why.
    deferrals: list[tuple[datetime, str]] = field(default_factory=list)
    batch: BatchRecord | None = None
    done: bool = False
    window_position: int = 0
    # From the start of its batch to its own, and its step's seconds.
    offset_seconds: float = 0.0
    measured_seconds: float = 0.0
    batch_size: int = 0
    mates: tuple[str, ...] = ()
    lookups: tuple[CacheLookup, ...] = ()
    error: ErrorDetail | None = None
    dropped_at: datetime | None = None

    @property
    def started_at(self) -> datetime | None:
        """When it began to run; None when it has not."""
        begun = None if self.batch is None else self.batch.started_at
        return None if begun is None else begun + timedelta(seconds=self.offset_seconds)

    @property
    def ended_at(self) -> datetime | None:
        """When it had run; None when it has not."""
        if self.batch is None or self.batch.ended_at is None or self.started_at is None:
            return None
        ended = self.started_at + timedelta(seconds=self.measured_seconds)
        return min(ended, self.batch.ended_at)

    @property
    def device_seconds(self) -> float:
        """Its share of the step that it ran in."""
        return self.measured_seconds / self.batch_size if self.done and self.compute else 0.0


@dataclass(slots=True)
class AttemptRecord:
    """From a placement to its end."""

    attempt: int
    worker_id: str
    model_instance_id: str
    begun_at: datetime
    ended_at: datetime | None = None
    end: str = ""
    resumed_from: str = ""
    units: int = 0


@dataclass(slots=True)
class Pause:
    """A time in which the request was on no worker."""

    cause: WaitCause
    begun_at: datetime
    reason: str = ""
    ended_at: datetime | None = None
    # When the scheduler said that it waits, its position, and why.
    told: list[tuple[datetime, int, str]] = field(default_factory=list)


def place_of(snapshot: LoopSnapshot | None) -> tuple[str, bool]:
    """Where a snapshot stands, in words, and whether its loop had ended."""
    if snapshot is None:
        return "", True
    if snapshot.ended:
        return f"{snapshot.loop.node_id} done", True
    return f"{snapshot.loop.node_id} {snapshot.steps_done}/{snapshot.steps}", False
