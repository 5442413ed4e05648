"""What decisions become: commands for workers, events for requests."""

from collections.abc import Mapping
from typing import Final

from fastvideo.requests.events import (
    RequestCancelled,
    RequestCompleted,
    RequestFailed,
    RequestLogged,
    RequestProgressed,
    RequestQueued,
    RequestStarted,
)
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling import commands
from fastvideo.scheduling.commands import ExecuteBatch, PrepareLoop, ReleaseLoops, SnapshotLoops
from fastvideo.scheduling.events import (
    AssignLoop,
    CancelLoop,
    CancelRequest,
    CancelStream,
    CompleteRequest,
    Decision,
    DispatchBatch,
    FailRequest,
    PreemptRequest,
    QueueRequest,
    ReleaseRequest,
    ReportProgress,
    RestartRequest,
    SnapshotRequest,
    StartRequest,
    YieldBatch,
)

SET_ASIDE: Final = "set aside"
"""How the reason of a restart begins that is none: the request gave its place away."""

OUTRANKS: Final = "has a higher priority"
"""How the reason of a preemption ends that names another request, which may be another tenant's."""

WorkerCommand = (
    PrepareLoop
    | ExecuteBatch
    | ReleaseLoops
    | SnapshotLoops
    | commands.YieldBatch
    | commands.CancelStream
)
"""What goes to a worker."""

RequestEvent = (
    RequestQueued
    | RequestStarted
    | RequestProgressed
    | RequestLogged
    | RequestCancelled
    | RequestFailed
    | RequestCompleted
)
"""What a request's stream says of a decision."""

TERMINAL = (CancelRequest, CompleteRequest, FailRequest)
"""Decisions that end a request."""


def prepare_loop(
    decision: AssignLoop, spec: RequestSpec, inputs: Mapping[str, str], traceparent: str = ""
) -> PrepareLoop:
    """The command of an AssignLoop; `inputs` are `SchedulerCore.loop_inputs`."""
    return PrepareLoop(
        loop=decision.loop,
        loop_id=decision.loop_id,
        model_instance_id=decision.model_instance_id,
        request=spec,
        # A snapshot holds all that its loop still needs.
        inputs=inputs if decision.restore is None else {},
        traceparent=traceparent,
        restore=decision.restore,
    )


def execute_batch(decision: DispatchBatch, traceparent: str = "") -> ExecuteBatch:
    """The command of a DispatchBatch."""
    return ExecuteBatch(
        batch_id=decision.batch_id,
        kind=decision.kind,
        unit_ids=decision.unit_ids,
        predicted_seconds=decision.predicted_seconds,
        window=decision.window,
        traceparent=traceparent,
    )


def release_loops(decision: ReleaseRequest) -> ReleaseLoops:
    """The command of a ReleaseRequest."""
    return ReleaseLoops(
        request_id=decision.request_id,
        attempt=decision.attempt,
        node_ids=decision.node_ids,
        forget=decision.forget,
    )


def worker_command(decision: Decision) -> tuple[str, WorkerCommand] | None:
    """The worker and the command of a decision that says all of it itself.

    None for AssignLoop and DispatchBatch, whose commands hold more, and for what no worker does.
    """
    match decision:
        case ReleaseRequest():
            return decision.worker_id, release_loops(decision)
        case SnapshotRequest() | PreemptRequest():
            return decision.worker_id, SnapshotLoops(
                request_id=decision.request_id,
                attempt=decision.attempt,
                release=isinstance(decision, PreemptRequest),
            )
        case YieldBatch():
            return decision.worker_id, commands.YieldBatch(batch_id=decision.batch_id)
        case CancelLoop(loop=loop) if decision.worker_id:
            # The request's other loops and values stay.
            return decision.worker_id, ReleaseLoops(
                request_id=loop.request_id, attempt=loop.attempt, node_ids=(loop.node_id,)
            )
        case CancelStream():
            return decision.worker_id, commands.CancelStream(
                request_id=decision.request_id, attempt=decision.attempt, name=decision.name
            )
        case _:
            return None


def request_event(decision: Decision) -> tuple[str, RequestEvent] | None:
    """The request's id and the event of its stream, for a decision that a user can see."""
    match decision:
        case QueueRequest():
            return decision.request_id, RequestQueued(
                position=decision.position, reason=decision.reason
            )
        case StartRequest():
            return decision.request_id, RequestStarted(attempt=decision.attempt)
        case ReportProgress():
            return decision.request_id, RequestProgressed(
                fraction=decision.fraction,
                node_id=decision.node_id,
                step=decision.step,
                steps=decision.steps,
            )
        case RestartRequest():
            aside = decision.reason.startswith(SET_ASIDE)
            return decision.request_id, RequestLogged(
                level="info" if aside else "warning",
                message=f"{'waits to go on' if aside else 'begins again'}: {decision.reason}",
                attempt=decision.attempt,
            )
        case PreemptRequest(reason=reason):
            told = f"another request {OUTRANKS}" if reason.endswith(OUTRANKS) else reason
            return decision.request_id, RequestLogged(
                level="info", message=f"is set aside: {told}", attempt=decision.attempt
            )
        case CancelLoop(loop=loop):
            return loop.request_id, RequestLogged(
                level="info",
                message=f"loop {loop.node_id} is cancelled: {decision.reason}",
                attempt=loop.attempt,
            )
        case CancelStream():
            return decision.request_id, RequestLogged(
                level="info",
                message=f"stream {decision.name} is cancelled: {decision.reason}",
                attempt=decision.attempt,
            )
        case CancelRequest():
            return decision.request_id, RequestCancelled(
                reason=decision.reason,
                boundary=decision.boundary,
                artifact_ids=decision.artifact_ids,
                metrics=decision.metrics,
            )
        case FailRequest():
            return decision.request_id, RequestFailed(
                error=decision.error, metrics=decision.metrics
            )
        case CompleteRequest():
            return decision.request_id, RequestCompleted(
                artifact_ids=decision.artifact_ids,
                latents_digest=decision.latents_digest,
                scores=decision.scores,
                metrics=decision.metrics,
            )
        case _:
            return None
