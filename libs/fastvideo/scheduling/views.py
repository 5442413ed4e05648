"""What the core knows of a live request, for whoever looks at it."""

from collections.abc import Mapping
from dataclasses import dataclass

from fastvideo.scheduling.state import LiveRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestView:
    """A live request as the scheduler has it."""

    request_id: str
    model_id: str
    attempt: int
    # Where it is; empty while it waits for a place.
    worker_id: str
    running: bool
    # From 0 to 1.
    progress: float
    units: int
    device_seconds: float
    # What it was told last of its place in the queue.
    queued_position: int
    queued_reason: str
    # It shall end at its next boundary: cancelled, or failed with this.
    ending: str
    # It is saved, or set aside, at its next boundary.
    saving: str
    # Node to the phase of its loop.
    loops: Mapping[str, str]


def request_view(request: LiveRequest) -> RequestView:
    """The view of a request."""
    ending = request.ending
    return RequestView(
        request_id=request.request_id,
        model_id=request.spec.model_id,
        attempt=request.attempt,
        worker_id=request.worker_id,
        running=request.running,
        progress=request.progress,
        units=request.units,
        device_seconds=request.device_seconds,
        queued_position=request.queued_position,
        queued_reason=request.queued_reason,
        ending="" if ending is None else ending.reason or "cancelled",
        saving=request.saving.value,
        loops={node_id: run.phase.value for node_id, run in request.loops.items()},
    )
