"""An explanation as data: where a request's time went.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from fastvideo.model.caching import CacheLookup
from fastvideo.requests.types import ErrorDetail, RequestMetrics, RequestStatus
from fastvideo.scheduling.work import StepRange, UnitKind


class WaitCause(StrEnum):
    """Why nothing of a request ran."""

    # No worker had a place for the request.
    PLACE = "place"
    # Something that the unit declares was not free.
    RESOURCE = "resource"
    # Other batches had the worker.
    BATCH = "batch"
    # It was preempted and had not gone on.
    PREEMPTION = "preemption"
    # Its worker or the scheduler was lost.
    LOSS = "loss"
    # A worker made a loop's state.
    PREPARATION = "preparation"
    # Decisions, commands and reports were on their way.
    DELIVERY = "delivery"


class UnitOutcome(StrEnum):
    """What became of a unit."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    # It was not run, or its result was not taken.
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedWait:
    """A span of time in which something waited for one cause."""

    cause: WaitCause
    begun_at: datetime
    seconds: float = 0.0
    # What the scheduler said, where it said something.
    reason: str = ""
    # The place in the queue when the wait began; 0 when there was no queue.
    position: int = 0
    # Batches that had the worker meanwhile, at most 16 of them, and how many they were.
    batch_ids: tuple[str, ...] = ()
    batches: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedBatch:
    """One batch on a worker, the request's own or one that it waited behind."""

    batch_id: str = ""
    worker_id: str = ""
    kind: UnitKind
    # The requests of the same tenant in it, and how many there were of others.
    request_ids: tuple[str, ...] = ()
    requests_of_others: int = 0
    # Units of its first step, and the steps that it ran.
    units: int = 0
    steps: int = 0
    # Steps that were granted.
    window: int = 0
    dispatched_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    predicted_seconds: float = 0.0
    measured_seconds: float = 0.0
    forwards: int = 0
    # Why it was told to stop before its window was over; empty when it was not.
    yield_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedUnit:
    """One unit: when it was ready, what it waited for, with whom it ran and how long."""

    unit_id: str = ""
    node_id: str = ""
    attempt: int = 0
    loop_id: str = ""
    kind: UnitKind
    step_range: StepRange
    worker_id: str = ""
    outcome: UnitOutcome
    # The plan that offered it was taken in; in a window, the step before it ended.
    ready_at: datetime | None = None
    dispatched_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    # From ready to started, without gaps.
    waits: tuple[ExplainedWait, ...] = ()
    waited_seconds: float = 0.0
    batch_id: str = ""
    # Units of its step of the batch, this one included.
    batch_size: int = 0
    # The other requests of the same tenant in that step, and how many there were of others.
    shared_with: tuple[str, ...] = ()
    shared_with_others: int = 0
    # Which step of its batch's window, from 1.
    window_position: int = 0
    # Of the batched step that it ran in.
    predicted_seconds: float = 0.0
    measured_seconds: float = 0.0
    # Its share of those; 0 for a unit off the compute slot.
    device_seconds: float = 0.0
    cache_lookups: tuple[CacheLookup, ...] = ()
    error: ErrorDetail | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMate:
    """How many units of a stage another request shared."""

    request_id: str = ""
    units: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedStage:
    """One loop of one placement, its units summed up; seconds are of batched steps."""

    node_id: str = ""
    attempt: int = 0
    loop_id: str = ""
    kind: UnitKind | None = None
    worker_id: str = ""
    assigned_at: datetime
    prepared_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    preparation_seconds: float = 0.0
    # Where a snapshot put it, such as "7/20"; empty when it began anew.
    restored_from: str = ""
    # Units that ran, and steps that the loop has.
    units: int = 0
    steps: int = 0
    seconds_min: float = 0.0
    seconds_median: float = 0.0
    seconds_max: float = 0.0
    predicted_seconds: float = 0.0
    measured_seconds: float = 0.0
    device_seconds: float = 0.0
    # From ready to started over all units, and by cause.
    waited_seconds: float = 0.0
    waited_by_cause: Mapping[str, float] = field(default_factory=dict)
    batch_size_min: int = 0
    batch_size_mean: float = 0.0
    batch_size_max: int = 0
    # The requests of the same tenant that shared most units, at most 16.
    mates: tuple[StageMate, ...] = ()
    # How many requests shared a unit, of all tenants.
    mate_count: int = 0
    # Batches that it ran in.
    batches: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedAttempt:
    """From a placement on a worker to its end."""

    attempt: int = 0
    worker_id: str = ""
    model_instance_id: str = ""
    begun_at: datetime
    ended_at: datetime | None = None
    # Why it ended, such as "completed" or "worker w1 was lost: silent"; empty while it runs.
    end: str = ""
    # Where it went on, such as "denoise 7/20"; empty when it began anew.
    resumed_from: str = ""
    units: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedMark:
    """A moment worth a mark, such as a preemption."""

    at: datetime
    name: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedTotals:
    """Where the time went; the parts add up to the whole."""

    # From accepted to ended, or to now.
    total_seconds: float = 0.0
    # Some unit of it had the compute slot.
    device_busy_seconds: float = 0.0
    # None had, and some unit off the compute slot ran.
    io_seconds: float = 0.0
    # Neither, by cause.
    waited_by_cause: Mapping[str, float] = field(default_factory=dict)
    # Its share of the batches that it ran in.
    device_seconds: float = 0.0
    # Over all batched steps that it ran in.
    predicted_seconds: float = 0.0
    measured_seconds: float = 0.0
    # Median of |predicted - measured| / measured over its units.
    prediction_error: float = 0.0
    units: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a request took the time that it took."""

    request_id: str = ""
    status: RequestStatus
    model_id: str = ""
    program_id: str = ""
    tenant_id: str = ""
    session_id: str = ""
    priority: int = 0
    deadline: datetime | None = None
    accepted_at: datetime
    queued_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    # The moment up to which this explains.
    explained_at: datetime
    # All of it in one sentence.
    headline: str = ""
    totals: ExplainedTotals
    # What the log says of an ended request.
    metrics: RequestMetrics | None = None
    error: ErrorDetail | None = None
    attempts: tuple[ExplainedAttempt, ...] = ()
    stages: tuple[ExplainedStage, ...] = ()
    marks: tuple[ExplainedMark, ...] = ()
    # Waits outside of any unit.
    waits: tuple[ExplainedWait, ...] = ()
    # What it waits for at explained_at; absent when it runs or has ended.
    waiting: ExplainedWait | None = None
    # A page of the units, in the order in which they became ready.
    units: tuple[ExplainedUnit, ...] = ()
    unit_count: int = 0
    # Every batch that this page names.
    batches: tuple[ExplainedBatch, ...] = ()
    # Events of the scheduler that were read.
    events_read: int = 0
    # What is left out, and why; empty when nothing is.
    left_out: str = ""
