"""Requests as data: what is asked, what was resolved, what became of it.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from fastvideo.artifacts.types import ArtifactRecord


class RequestKind(StrEnum):
    """What a request asks for."""

    GENERATION = "generation"
    SCORING = "scoring"
    ENCODING = "encoding"
    TRAINING_SAMPLE = "training_sample"
    CONVERSION = "conversion"


class RequestStatus(StrEnum):
    """Where a request stands."""

    ACCEPTED = "accepted"
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSegment:
    """Whose words a stretch of a text is."""

    # "context" or "prompt" for what was remembered, "own" for the request's own.
    role: str = ""
    # The request or the push that it came with; empty for the request's own.
    source_id: str = ""
    # Characters of the text, from start to before stop.
    start: int = 0
    stop: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """Text that conditions a request; role is "prompt" or "negative_prompt"."""

    role: str = ""
    text: str = ""
    # What a session joined to it, and the user's own words, in order; empty when the text is the
    # user's own throughout.
    segments: tuple[TextSegment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePart:
    """A stored image that conditions a request."""

    role: str = ""
    artifact_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoPart:
    """A stored video that conditions a request."""

    role: str = ""
    artifact_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioPart:
    """Stored audio that conditions a request."""

    role: str = ""
    artifact_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionPart:
    """Actions that condition a request, one value a step and axis."""

    role: str = ""
    values: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentPart:
    """Stored latents that a request starts from, scores or decodes."""

    role: str = ""
    artifact_id: str = ""


InputPart = TextPart | ImagePart | VideoPart | AudioPart | ActionPart | LatentPart
"""One typed input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOverrides:
    """Sampling parameters as a client gives them; what is left out takes the card's default."""

    width: int | None = None
    height: int | None = None
    num_frames: int | None = None
    fps: int | None = None
    steps: int | None = None
    guidance_scale: float | None = None
    flow_shift: float | None = None
    seed: int | None = None
    # A sampler that the card offers; "flow_sde" samples and records log-probabilities.
    sampler: str | None = None
    # Noise that a stochastic sampler adds, relative to the schedule's own.
    noise_level: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling parameters as they will be used."""

    # Pixels.
    width: int = 0
    height: int = 0
    num_frames: int = 0
    # Frames per second of the encoded video.
    fps: int = 0
    # Denoising steps.
    steps: int = 0
    guidance_scale: float = 0.0
    flow_shift: float = 0.0
    seed: int = 0
    # Empty is the card's own.
    sampler: str = ""
    # 0 for a sampler without noise.
    noise_level: float = 0.0


class Capture(StrEnum):
    """What a request records beside its artifacts."""

    BEHAVIOR = "behavior"


class TraceLevel(StrEnum):
    """How closely a request is traced."""

    # Lifecycle, decisions and one event a batch.
    SUMMARY = "summary"
    # Also every component's and layer's time and digest, step by step.
    DETAIL = "detail"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSpec:
    """What to hand out."""

    video: bool = False
    # A contact sheet of the frames, as PNG.
    sheet: bool = False
    # The final latents, as safetensors.
    latents: bool = False
    # A coarse video, every fourth frame, stored before the video itself is encoded.
    preview: bool = False
    # None records nothing.
    capture: Capture | None = None
    # None is SUMMARY.
    trace: TraceLevel | None = None
    # The first frame, as PNG of the request's size.
    image: bool = False
    # How long what was made is kept once the request has ended. None takes the default, which is
    # also the longest; in an accepted request it is for ever.
    ttl_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSpec:
    """A request as it was accepted: every value resolved, nothing left to default."""

    request_id: str = ""
    kind: RequestKind
    model_id: str = ""
    # Content digest of the card that the request was validated against.
    card_digest: str = ""
    program_id: str = ""
    inputs: tuple[InputPart, ...] = ()
    sampling: SamplingParams
    outputs: OutputSpec
    tenant_id: str = ""
    session_id: str = ""
    # Larger goes first; 0 is the default.
    priority: int = 0
    deadline: datetime | None = None
    # Names of the fields that took the card's default.
    defaulted: tuple[str, ...] = ()
    # The only weights that may serve it, as ModelState.weights_version; empty means any.
    required_weights_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorDetail:
    """A typed error as the log and the API carry it."""

    # Stable upper-case reason, such as "PROMPT_TOO_LONG".
    reason: str = ""
    message: str = ""
    # The field or resource that is at fault, if one is.
    subject: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMetrics:
    """Figures of a finished request."""

    # From accepted to terminal, seconds.
    total_seconds: float = 0.0
    # From accepted to the first unit started, seconds.
    queue_seconds: float = 0.0
    # Sum of measured device-seconds, this request's share of its batches.
    device_seconds: float = 0.0
    units: int = 0
    attempts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestState:
    """What the log says of a request, folded."""

    spec: RequestSpec
    status: RequestStatus
    # From 0 to 1.
    progress: float = 0.0
    last_sequence: int = 0
    cancel_requested: bool = False
    artifacts: tuple[ArtifactRecord, ...] = ()
    # SHA-256 of the final latents' float32 bytes, hexadecimal.
    latents_digest: str = ""
    error: ErrorDetail | None = None
    metrics: RequestMetrics | None = None
    queue_reason: str = ""
    accepted_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    # When what it made goes; None until it has ended, and when it stays.
    expires_at: datetime | None = None
    # The same, once that has passed.
    expired_at: datetime | None = None
    # When it was deleted; a user is not told of such a request.
    deleted_at: datetime | None = None
