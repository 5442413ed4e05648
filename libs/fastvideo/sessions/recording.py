"""What happens to a session as an event that is ready to be appended."""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from fastvideo.clock import milliseconds
from fastvideo.events.catalog import new_event
from fastvideo.events.records import NewEvent
from fastvideo.events.types import EventMetadata
from fastvideo.ids import new_id
from fastvideo.sessions.types import SessionState
from fastvideo.telemetry.tracing import current_traceparent
from fastvideo.version import program_version

if TYPE_CHECKING:
    from fastvideo.sessions.state import SessionEvent


@dataclass(frozen=True, slots=True)
class Cause:
    """What led to a session's event, when something did."""

    request_id: str = ""
    program_id: str = ""
    model_id: str = ""
    event_id: str = ""


def session_event(
    state: SessionState,
    payload: "SessionEvent",
    at: datetime,
    cause: Cause | None = None,
    event_id: str = "",
) -> NewEvent:
    """An event of a session, decided at a moment; its id is made when none is given."""
    cause = cause or Cause()
    metadata = EventMetadata(
        tenant_id=state.tenant_id,
        session_id=state.session_id,
        request_id=cause.request_id,
        program_id=cause.program_id,
        model_id=cause.model_id,
        causation_id=cause.event_id,
        traceparent=current_traceparent(),
        versions={"fastvideo": program_version()},
        occurred_at=at,
    )
    return new_event(event_id or new_id("evt", milliseconds(at)), payload, metadata)
