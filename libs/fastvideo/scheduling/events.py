"""What workers report and what the scheduler decides.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from fastvideo.requests.types import ErrorDetail, RequestMetrics
from fastvideo.scheduling.traces import TraceNote
from fastvideo.scheduling.work import (
    LoopRef,
    LoopSnapshot,
    ModelState,
    StepResult,
    UnitKind,
    WorkPlan,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAttached:
    """A worker's stream is up and its models are warm."""

    worker_id: str = ""
    address: str = ""
    incarnation: str = ""
    instances: tuple[ModelState, ...] = ()
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    compute_slots: int = 0
    io_slots: int = 0
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    # The role that the worker plays; empty is one that runs every loop.
    role: str = ""
    # It can save loops and go on with saved ones.
    snapshots: bool = False
    # Commands to prepare or run that it takes before it has answered others; 0 says nothing.
    credits: int = 0
    # Requests whose memory it has room for at a time; 0 says nothing.
    resident_requests: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDetached:
    """A worker's stream broke; it may come back with its loops."""

    worker_id: str = ""
    incarnation: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLost:
    """A worker's stream ended or fell silent."""

    worker_id: str = ""
    incarnation: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopPrepared:
    """A worker has made a loop's state and plans its first units."""

    worker_id: str = ""
    plan: WorkPlan
    seconds: float = 0.0
    # Rises by one with each report of a worker's incarnation, as in all reports.
    report: int = 0
    # Noted meanwhile; the log keeps each as an event of its own and here none.
    notes: tuple[TraceNote, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFailed:
    """A worker could not make or finish a loop."""

    worker_id: str = ""
    loop: LoopRef
    error: ErrorDetail
    report: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchExecuted:
    """trace.step: one executed batch, with every unit and cache look-up in it.

    A window of several steps has one result for each unit that ran, in order.
    """

    worker_id: str = ""
    batch_id: str = ""
    kind: UnitKind
    results: tuple[StepResult, ...] = ()
    predicted_seconds: float = 0.0
    measured_seconds: float = 0.0
    # How many forwards of the model the batch took.
    forwards: int = 0
    # How long the command waited on the worker.
    waited_seconds: float = 0.0
    # Measured peak of activations; 0 when it was not measured.
    peak_bytes: int = 0
    # It stopped before its window was over because it was told to.
    yielded: bool = False
    report: int = 0
    # Noted meanwhile; the log keeps each as an event of its own and here none.
    notes: tuple[TraceNote, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDraining:
    """A worker takes no new request and will exit."""

    worker_id: str = ""
    reason: str = ""
    report: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidentLoop:
    """A loop that lives on a worker."""

    loop: LoopRef
    loop_id: str = ""
    model_instance_id: str = ""
    state_version: int = 0
    # It is still being made; its LoopPrepared is to come.
    preparing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReattached:
    """A worker went on with its loops under a new stream.

    All that it had reported before came before this.
    """

    worker_id: str = ""
    incarnation: str = ""
    loops: tuple[ResidentLoop, ...] = ()
    # Batches that it has been given and has not reported.
    batch_ids: tuple[str, ...] = ()
    # Attempts of which it keeps values, as "request/attempt".
    scopes: tuple[str, ...] = ()
    report: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSnapshotted:
    """What an attempt had on a worker was saved at a boundary."""

    worker_id: str = ""
    request_id: str = ""
    attempt: int = 0
    # One for each live loop, and for each ended one whose outputs are kept.
    snapshots: tuple[LoopSnapshot, ...] = ()
    seconds: float = 0.0
    # The worker has freed what it saved.
    released: bool = False
    # Set when nothing was saved; then nothing was freed either.
    error: ErrorDetail | None = None
    report: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElected:
    """A scheduler took the shard's lease."""

    scheduler_id: str = ""
    epoch: int = 0
    # It began from live requests alone; what the stream said before is not part of its state.
    anew: bool = False
    # The knobs of its scheduling policy, as canonical JSON; a replay decides under them.
    policy: str = ""
    # Model id to the content digest of the card that it decides with.
    cards: Mapping[str, str] = field(default_factory=dict)
    # Of the program that decides.
    program_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRequest:
    """The request waits."""

    request_id: str = ""
    position: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """Its first unit was admitted."""

    request_id: str = ""
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignLoop:
    """Place a loop on a worker, which then prepares it."""

    loop: LoopRef
    loop_id: str = ""
    worker_id: str = ""
    model_instance_id: str = ""
    # Go on from here rather than from the loop's beginning.
    restore: LoopSnapshot | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchBatch:
    """Reserve what the units declare and run them in one forward."""

    batch_id: str = ""
    worker_id: str = ""
    kind: UnitKind
    unit_ids: tuple[str, ...] = ()
    loops: tuple[LoopRef, ...] = ()
    # Of all the steps that are granted.
    predicted_seconds: float = 0.0
    # Consecutive steps granted; 1 is a single step.
    window: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferLoop:
    """A ready unit was not admitted, and why."""

    loop: LoopRef
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequest:
    """Free everything that a request holds on a worker."""

    request_id: str = ""
    attempt: int = 0
    worker_id: str = ""
    # Only these nodes; none means all.
    node_ids: tuple[str, ...] = ()
    # The scheduler knows of none of it, and the same attempt may come again.
    forget: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequest:
    """End it as cancelled."""

    request_id: str = ""
    reason: str = ""
    boundary: str = ""
    artifact_ids: tuple[str, ...] = ()
    metrics: RequestMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteRequest:
    """End it as completed."""

    request_id: str = ""
    artifact_ids: tuple[str, ...] = ()
    latents_digest: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)
    metrics: RequestMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class FailRequest:
    """End it as failed."""

    request_id: str = ""
    error: ErrorDetail
    metrics: RequestMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportProgress:
    """Tell how far it is."""

    request_id: str = ""
    fraction: float = 0.0
    node_id: str = ""
    step: int = 0
    steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRequest:
    """Begin again on another worker after a loss."""

    request_id: str = ""
    attempt: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class YieldBatch:
    """Stop a window at its next boundary."""

    batch_id: str = ""
    worker_id: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequest:
    """Save what an attempt has on a worker; it goes on."""

    request_id: str = ""
    attempt: int = 0
    worker_id: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptRequest:
    """Save what an attempt has on a worker, free it, and queue the request again."""

    request_id: str = ""
    attempt: int = 0
    worker_id: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelLoop:
    """End one loop of a request; its other branches go on."""

    loop: LoopRef
    worker_id: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelStream:
    """Stop the chunks of one output stream; compute for others goes on."""

    request_id: str = ""
    name: str = ""
    worker_id: str = ""
    reason: str = ""
    attempt: int = 0


Decision = (
    QueueRequest
    | StartRequest
    | AssignLoop
    | DispatchBatch
    | DeferLoop
    | ReleaseRequest
    | CancelRequest
    | CompleteRequest
    | FailRequest
    | ReportProgress
    | RestartRequest
    | YieldBatch
    | SnapshotRequest
    | PreemptRequest
    | CancelLoop
    | CancelStream
)
"""One thing that the scheduler decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerDecided:
    """trace.scheduler: an input, the time that came with it, and what it led to."""

    # Event id of the input, which is itself in the log; empty for a tick.
    input_event_id: str = ""
    at: datetime
    decisions: tuple[Decision, ...] = ()
    epoch: int = 0
