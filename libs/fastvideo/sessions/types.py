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


class SessionConditioning(StrEnum):
    """What joins the prompts of a session's requests."""

    # Nothing: each prompt stands alone, whatever is remembered.
    INDEPENDENT = "independent"
    # The texts that were pushed.
    PUSHED = "pushed"
    # The texts that were pushed and the prompts of earlier requests.
    MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBinding:
    """A model that a session is bound to."""

    model_id: str = ""
    card_digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptMemoryEntry:
    """One remembered prompt."""

    # Empty when the prompt was pushed.
    request_id: str = ""
    prompt: str = ""
    at: datetime
    # The push that it came with, if it was pushed.
    push_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedText:
    """A text that was given to a session."""

    push_id: str = ""
    # "context" stands before all prompts; "prompt" is remembered as one.
    role: str = ""
    text: str = ""
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
    # None is INDEPENDENT.
    conditioning: SessionConditioning | None = None
    # Oldest first, bounded by prompt_memory_limit.
    context_texts: tuple[PushedText, ...] = ()
