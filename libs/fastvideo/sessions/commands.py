"""What may be asked of a session."""

from dataclasses import dataclass
from datetime import datetime

from fastvideo.sessions.types import ModelBinding, PushedText, SessionConditioning


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSession:
    """Open a session."""

    session_id: str
    tenant_id: str
    user_id: str = ""
    model_bindings: tuple[ModelBinding, ...] = ()
    # Seconds.
    inactivity_timeout_s: int
    prompt_memory_limit: int
    conditioning: SessionConditioning | None = None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginRequest:
    """A request that names the session was accepted."""

    request_id: str
    # The user's own words, without what the session joined to them.
    prompt: str
    # When the request was accepted.
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRequest:
    """A request of the session ended."""

    request_id: str
    artifact_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetRequest:
    """A request of the session was deleted."""

    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PushText:
    """Somebody gives the session a text."""

    pushed: PushedText


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseSession:
    """Somebody closes the session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckInactivity:
    """Time has passed: `at` is now."""

    at: datetime


SessionCommand = (
    CreateSession
    | BeginRequest
    | EndRequest
    | ForgetRequest
    | PushText
    | CloseSession
    | CheckInactivity
)
"""One thing asked of a session."""
