"""Requests and models as OpenAI's objects."""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from fastvideo.deployment.servables import Servable
from fastvideo.program.specs import ProgramKind
from fastvideo.requests.inputs import NEGATIVE_PROMPT, PROMPT
from fastvideo.requests.lifetimes import EXPIRED
from fastvideo.requests.types import RequestState, RequestStatus, TextPart
from fastvideo.sessions.conditioning import own_words
from fastvideo_gateway.models import ModelStatus

VideoStatus: TypeAlias = Literal[
    "queued", "in_progress", "completed", "failed", "cancelled", "expired"
]

_STATUSES: Final[Mapping[RequestStatus, VideoStatus]] = MappingProxyType(
    {
        RequestStatus.ACCEPTED: "queued",
        RequestStatus.QUEUED: "queued",
        RequestStatus.RUNNING: "in_progress",
        RequestStatus.COMPLETED: "completed",
        RequestStatus.FAILED: "failed",
        RequestStatus.CANCELLED: "cancelled",
    }
)
# Cards carry no date; clients want a number.
_CREATED: Final = 0


class Told(BaseModel):
    """What an answer is made of."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class VideoFailure(Told):
    """Why there is no video."""

    code: str
    message: str


class Video(Told):
    """A request for a video; what is behind `remixed_from_video_id` is beside OpenAI's fields."""

    id: str
    object: Literal["video"] = "video"
    model: str
    status: VideoStatus
    progress: Annotated[int, Field(ge=0, le=100)]
    """Percent; 100 only once it is completed."""
    created_at: int
    """Unix seconds, as all times here."""
    completed_at: int | None
    expires_at: int | None
    """When its files go, or went, away; null until it has ended, and when they stay."""
    prompt: str | None
    size: str
    """WIDTHxHEIGHT in pixels, as it is made."""
    seconds: str
    """Its length, as a decimal number."""
    error: VideoFailure | None
    remixed_from_video_id: None = None
    negative_prompt: str | None
    num_inference_steps: int
    guidance_scale: float
    flow_shift: float
    seed: int
    fps: int
    num_frames: int
    session_id: str | None
    latents_digest: str
    """SHA-256 of the final latents; empty until there are some."""
    queue_reason: str
    """What it waits for, in words; empty when it does not wait."""


class VideoList(Told):
    """A page of videos."""

    object: Literal["list"] = "list"
    data: tuple[Video, ...]
    first_id: str | None
    last_id: str | None
    has_more: bool


class VideoDeleted(Told):
    """A video that is gone."""

    id: str
    object: Literal["video.deleted"] = "video.deleted"
    deleted: Literal[True] = True


class Image(Told):
    """One image; how it comes is as `response_format` asked."""

    id: str
    """The request that made it."""
    seed: int
    url: str | None = None
    b64_json: str | None = None


class ImageList(Told):
    """The images that were asked for, each of a seed of its own."""

    created: int
    data: tuple[Image, ...]


class Model(Told):
    """A model, or a program or workflow of one, with what it can do."""

    id: str
    """What a request names as its model."""
    object: Literal["model"] = "model"
    kind: Literal["model", "program", "workflow"]
    root: str
    """The model that serves it; its own id when it is one."""
    created: int = _CREATED
    """Cards carry no date: 0."""
    owned_by: str
    description: str
    capabilities: tuple[str, ...]
    programs: tuple[str, ...]
    ready: bool
    """Whether a worker serves it now."""
    unavailable_reason: str
    """Why nobody can ask for it; empty when one can."""


class ModelList(Told):
    """The models that can be asked for."""

    object: Literal["list"] = "list"
    data: tuple[Model, ...]


class Failure(Told):
    """Why a call was refused."""

    message: str
    type: str
    param: str | None
    """What of the call; null when it is about no part of it."""
    code: str


class Failed(Told):
    """The answer of an error."""

    error: Failure


def video_object(state: RequestState) -> Video:
    """A request as the object `video`."""
    spec, sampling = state.spec, state.spec.sampling
    completed = state.status is RequestStatus.COMPLETED
    return Video(
        id=spec.request_id,
        model=spec.model_id,
        status="expired" if completed and state.expired_at else _STATUSES[state.status],
        progress=100 if completed else min(99, int(100 * state.progress)),
        created_at=int(state.accepted_at.timestamp()),
        completed_at=_unix(state.ended_at) if completed else None,
        expires_at=_unix(state.expires_at),
        prompt=_text(state, PROMPT),
        size=f"{sampling.width}x{sampling.height}",
        seconds=f"{sampling.num_frames / sampling.fps:g}" if sampling.fps else "0",
        error=_error(state),
        negative_prompt=_text(state, NEGATIVE_PROMPT),
        num_inference_steps=sampling.steps,
        guidance_scale=sampling.guidance_scale,
        flow_shift=sampling.flow_shift,
        seed=sampling.seed,
        fps=sampling.fps,
        num_frames=sampling.num_frames,
        session_id=spec.session_id or None,
        latents_digest=state.latents_digest,
        queue_reason=state.queue_reason,
    )


def model_object(status: ModelStatus) -> Model:
    """A model as the object `model`."""
    card = status.entry.card
    return Model(
        id=card.model_id,
        kind="model",
        root=card.model_id,
        owned_by=card.family,
        description=card.description,
        capabilities=tuple(card.capabilities.capabilities),
        programs=tuple(sorted(status.entry.programs)),
        ready=status.ready,
        unavailable_reason=status.entry.unavailable_reason,
    )


def servable_object(status: ModelStatus, servable: Servable) -> Model:
    """A program or workflow of a model as an object `model` of its own."""
    card, program = servable.entry.card, servable.program
    return Model(
        id=servable.servable_id,
        kind="workflow" if program.kind is ProgramKind.WORKFLOW else "program",
        root=card.model_id,
        owned_by=card.family,
        description=f"{program.program_id} of {card.model_id}",
        capabilities=(program.capability,),
        programs=(program.program_id,),
        ready=status.ready,
        unavailable_reason=servable.entry.unavailable_reason,
    )


def _error(state: RequestState) -> VideoFailure | None:
    if state.error is not None:
        return VideoFailure(code=state.error.reason.lower(), message=state.error.message)
    if state.status is RequestStatus.COMPLETED and state.expired_at is not None:
        message = f"its files expired at {state.expired_at:%Y-%m-%d %H:%M:%S} UTC"
        return VideoFailure(code=EXPIRED.lower(), message=message)
    return None


def _text(state: RequestState, role: str) -> str | None:
    """As the user wrote it, without what a session joined to it."""
    parts = (p for p in state.spec.inputs if isinstance(p, TextPart) and p.role == role)
    return next(map(own_words, parts), None)


def _unix(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp())
