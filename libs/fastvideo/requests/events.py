"""What happens to a request.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from fastvideo.requests.sealing import SealedContent
from fastvideo.requests.types import ErrorDetail, RequestMetrics, RequestSpec
from fastvideo.scheduling.work import CancelScope


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAccepted:
    """request.accepted: the request is durable and will end."""

    spec: RequestSpec
    # The texts of its inputs, under the tenant's key; in the log the spec has them empty.
    sealed: SealedContent | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestQueued:
    """request.queued: the request waits."""

    # 1 is next.
    position: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStarted:
    """request.started: its first unit was admitted."""

    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestProgressed:
    """request.progress: from 0 to 1, rising."""

    fraction: float = 0.0
    node_id: str = ""
    step: int = 0
    steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCancelRequested:
    """A user asked for cancellation; the scheduler decides where it lands."""

    scope: CancelScope
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCancelled:
    """request.cancelled: terminal."""

    reason: str = ""
    # The boundary where it landed, such as "denoise 7/20".
    boundary: str = ""
    artifact_ids: tuple[str, ...] = ()
    metrics: RequestMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFailed:
    """request.failed: terminal."""

    error: ErrorDetail
    metrics: RequestMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLogged:
    """request.log: something that a user who watches should know."""

    # "info" or "warning".
    level: str = ""
    message: str = ""
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCompleted:
    """request.completed: terminal."""

    artifact_ids: tuple[str, ...] = ()
    # SHA-256 of the final latents' float32 bytes, hexadecimal.
    latents_digest: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)
    metrics: RequestMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDeleted:
    """request.deleted: after its end; users are not told of it any more."""

    # The key of whoever deleted it; empty where there were none.
    deleted_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestExpired:
    """request.expired: its lifetime has passed; what it made is given up."""

    expires_at: datetime
