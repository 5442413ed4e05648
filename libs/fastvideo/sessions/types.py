"""Sessions as data.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class SessionStatus(StrEnum):
    """Where a session stands."""

    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBinding:
    """A model that a session is bound to."""

    model_id: str = ""
    card_digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptMemoryEntry:
    """One remembered prompt."""

    request_id: str = ""
    prompt: str = ""
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """A media or text stream of a session."""

    stream_id: str = ""
    last_sequence: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """What the log says of a session, folded."""

    session_id: str = ""
    user_id: str = ""
    tenant_id: str = ""
    status: SessionStatus
    model_bindings: tuple[ModelBinding, ...] = ()
    active_programs: tuple[str, ...] = ()
    # Oldest first, bounded by prompt_memory_limit.
    prompt_memory: tuple[PromptMemoryEntry, ...] = ()
    prompt_memory_limit: int = 0
    input_streams: Mapping[str, StreamState] = field(default_factory=dict)
    output_streams: Mapping[str, StreamState] = field(default_factory=dict)
    artifact_refs: tuple[str, ...] = ()
    cancel_scopes: tuple[str, ...] = ()
    # Seconds without a push or a request after which the session is closed.
    inactivity_timeout_s: int = 0
    created_at: datetime
    last_active_at: datetime
    closed_at: datetime | None = None
    close_reason: str = ""
