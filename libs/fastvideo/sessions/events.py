"""What happens to a session.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from dataclasses import dataclass

from fastvideo.requests.sealing import SealedContent
from fastvideo.sessions.types import PromptMemoryEntry, PushedText, SessionState


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCreated:
    """session.created: with its bindings."""

    state: SessionState
    sealed: SealedContent | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionUpdated:
    """session.updated: a prompt was remembered, or a request began, ended or was forgotten."""

    session_id: str = ""
    # The prompt that was remembered, if one was.
    remembered: PromptMemoryEntry | None = None
    # A request that began or ended in the session.
    request_id: str = ""
    change: str = ""
    artifact_refs: tuple[str, ...] = ()
    sealed: SealedContent | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionClosed:
    """session.closed: on close or time-out."""

    session_id: str = ""
    # "closed" or "inactive".
    reason: str = ""
    # What the session remembered is let go; the log alone has it.
    memory_released: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTextPushed:
    """session.text_pushed: a text conditions the session's later requests."""

    session_id: str = ""
    pushed: PushedText
    sealed: SealedContent | None = None
