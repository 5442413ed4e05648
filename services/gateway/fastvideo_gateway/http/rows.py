"""What lists show of a request and of an event; everything else is asked for one by one."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fastvideo.artifacts.types import ArtifactKind
from fastvideo.events.catalog import NAMES
from fastvideo.events.reading.entries import FoundEvent, UnreadableEvent, entry_of
from fastvideo.events.records import StoredEvent
from fastvideo.events.types import EventPayload
from fastvideo.requests.types import RequestState
from fastvideo.scheduling.events import BatchExecuted, DispatchBatch, SchedulerDecided
from fastvideo.sessions.conditioning import own_prompt
from fastvideo_gateway.http.wording import words_of

PROMPT_CHARACTERS_MAX: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """One line of the list of requests."""

    request_id: str
    status: str
    progress: float
    model_id: str
    program_id: str
    session_id: str
    # Its beginning; empty when the request has none.
    prompt: str
    accepted_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    total_seconds: float | None
    queue_reason: str
    # Reason and message of what it failed with; empty when it has not.
    error: str
    # Number of its events.
    version: int
    # A stored video or image, the final one before its preview; empty when there is none.
    media_id: str
    media_type: str
    # When what it made goes; None until it has ended, and when it stays.
    expires_at: datetime | None = None
    # The same, once that has passed.
    expired_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """One line of a list of events."""

    event_id: str
    stream_id: str
    version: int
    partition: int
    offset: int
    type: str
    name: str
    recorded_at: datetime | None
    text: str
    # Of a batch: its id, as on the timeline.
    batch_id: str = ""
    # Its bytes were changed, or a newer program wrote it.
    unreadable: bool = False


def request_row(state: RequestState) -> RequestRow:
    """The line of a request."""
    spec = state.spec
    stored = [
        one
        for one in state.artifacts
        if one.completed_at is not None and one.deleted_at is None and state.expired_at is None
    ]
    kinds = (ArtifactKind.VIDEO, ArtifactKind.IMAGE)
    shown = [one for one in stored if one.kind in kinds]
    # Previews are stored before what they preview.
    shown.sort(key=lambda one: (one.kind is ArtifactKind.VIDEO, "preview" not in one.name))
    media = shown[-1] if shown else None
    return RequestRow(
        request_id=spec.request_id,
        status=state.status.value,
        progress=state.progress,
        model_id=spec.model_id,
        program_id=spec.program_id,
        session_id=spec.session_id,
        prompt=own_prompt(spec)[:PROMPT_CHARACTERS_MAX],
        accepted_at=state.accepted_at,
        started_at=state.started_at,
        ended_at=state.ended_at,
        total_seconds=None if state.metrics is None else state.metrics.total_seconds,
        queue_reason=state.queue_reason,
        error="" if state.error is None else f"{state.error.reason}: {state.error.message}",
        version=state.last_sequence,
        media_id="" if media is None else media.artifact_id,
        media_type="" if media is None else media.content_type,
        expires_at=state.expires_at,
        expired_at=state.expired_at,
    )


def event_row(found: FoundEvent, about: str = "") -> EventRow:
    """The line of an event in a list about a request, or about everything.

    One that a newer program wrote, or a damaged one, says so.
    """
    entry = entry_of(found)
    payload = None if isinstance(entry, UnreadableEvent) else entry.payload
    return EventRow(
        event_id=entry.event_id,
        stream_id=entry.stream_id,
        version=entry.stream_version,
        partition=entry.partition,
        offset=entry.offset,
        type=entry.type,
        name=NAMES.get(entry.type, entry.type),
        # Of a damaged one not even that is to be believed.
        recorded_at=found.recorded_at if isinstance(found, StoredEvent) else None,
        text=entry.reason if isinstance(entry, UnreadableEvent) else words_of(entry.payload, about),
        batch_id="" if payload is None else _batch_of(payload),
        unreadable=payload is None,
    )


def _batch_of(payload: EventPayload) -> str:
    if isinstance(payload, BatchExecuted):
        return payload.batch_id
    if isinstance(payload, SchedulerDecided):
        batches = (one.batch_id for one in payload.decisions if isinstance(one, DispatchBatch))
        return next(batches, "")
    return ""
