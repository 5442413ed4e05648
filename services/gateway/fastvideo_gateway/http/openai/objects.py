"""Requests and models as OpenAI's objects."""

from datetime import datetime
from typing import Any, Final

from fastvideo.requests.inputs import NEGATIVE_PROMPT, PROMPT
from fastvideo.requests.types import RequestState, RequestStatus, TextPart
from fastvideo_gateway.models import ModelStatus

_STATUSES: Final = {
    RequestStatus.ACCEPTED: "queued",
    RequestStatus.QUEUED: "queued",
    RequestStatus.RUNNING: "in_progress",
    RequestStatus.COMPLETED: "completed",
    RequestStatus.FAILED: "failed",
    RequestStatus.CANCELLED: "cancelled",
}
# Cards carry no date; clients want a number.
_CREATED: Final = 0


def video_object(state: RequestState) -> dict[str, Any]:
    """A request as the object `video`; all but the first lines are beside OpenAI's own fields."""
    spec, sampling = state.spec, state.spec.sampling
    completed = state.status is RequestStatus.COMPLETED
    return {
        "id": spec.request_id,
        "object": "video",
        "model": spec.model_id,
        "status": _STATUSES[state.status],
        "progress": 100 if completed else min(99, int(100 * state.progress)),
        "created_at": _unix(state.accepted_at),
        "completed_at": _unix(state.ended_at) if completed else None,
        # Nothing expires yet.
        "expires_at": None,
        "prompt": _text(state, PROMPT),
        "size": f"{sampling.width}x{sampling.height}",
        "seconds": f"{sampling.num_frames / sampling.fps:g}" if sampling.fps else "0",
        "error": _error(state),
        "remixed_from_video_id": None,
        "negative_prompt": _text(state, NEGATIVE_PROMPT),
        "num_inference_steps": sampling.steps,
        "guidance_scale": sampling.guidance_scale,
        "flow_shift": sampling.flow_shift,
        "seed": sampling.seed,
        "fps": sampling.fps,
        "num_frames": sampling.num_frames,
        "latents_digest": state.latents_digest,
        "queue_reason": state.queue_reason,
    }


def model_object(status: ModelStatus) -> dict[str, Any]:
    """A model as the object `model`, with what it can do."""
    card = status.entry.card
    return {
        "id": card.model_id,
        "object": "model",
        "created": _CREATED,
        "owned_by": card.family,
        "description": card.description,
        "capabilities": list(card.capabilities.capabilities),
        "programs": sorted(status.entry.programs),
        "ready": status.ready,
        "unavailable_reason": status.entry.unavailable_reason,
    }


def _error(state: RequestState) -> dict[str, Any] | None:
    if state.error is None:
        return None
    return {"code": state.error.reason.lower(), "message": state.error.message}


def _text(state: RequestState, role: str) -> str | None:
    texts = (p.text for p in state.spec.inputs if isinstance(p, TextPart) and p.role == role)
    return next(texts, None)


def _unix(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp())
