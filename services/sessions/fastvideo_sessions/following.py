"""What requests do to their sessions: prompts remembered, active requests, artifacts."""

from typing import Final

from fastvideo.events.catalog import TERMINAL
from fastvideo.events.records import AppendCommand
from fastvideo.events.store import EventLog
from fastvideo.events.types import Event
from fastvideo.requests.events import RequestAccepted, RequestDeleted
from fastvideo.requests.reading import read_request
from fastvideo.requests.state import STREAM_PREFIX
from fastvideo.requests.types import RequestSpec
from fastvideo.sessions.commands import BeginRequest, EndRequest, ForgetRequest, SessionCommand
from fastvideo.sessions.conditioning import own_prompt
from fastvideo.sessions.reading import read_session
from fastvideo.sessions.recording import Cause
from fastvideo.sessions.state import begins_at_acceptance, decide
from fastvideo.telemetry.tracing import span_from
from fastvideo_sessions.book import SessionBook

TYPES: Final = TERMINAL | {RequestAccepted.__name__, RequestDeleted.__name__}
"""The events that sessions follow."""


class RequestFollower:
    """Handles requests' events; the consumer sees to it that each has its effect once."""

    def __init__(self, log: EventLog, book: SessionBook) -> None:
        self._log = log
        self._book = book

    async def handle(self, event: Event) -> AppendCommand | None:
        """The append to the session that the event leads to; None when it leads to none.

        The append expects the version that was read. Whoever commits it calls again on Conflict.
        """
        if _is_of_no_session(event):
            return None
        request_id = event.stream_id.removeprefix(STREAM_PREFIX)
        request = await read_request(self._log, request_id)
        if request is None or not request.spec.session_id:
            return None
        artifact_ids = tuple(record.artifact_id for record in request.artifacts)
        with span_from(event.metadata.traceparent, "session.follow_request"):
            return await self._append(event, request.spec, artifact_ids)

    async def _append(
        self, event: Event, spec: RequestSpec, artifact_ids: tuple[str, ...]
    ) -> AppendCommand | None:
        found = await read_session(self._log, spec.session_id)
        if found.state is None:
            return None
        command: SessionCommand = EndRequest(request_id=spec.request_id, artifact_ids=artifact_ids)
        if isinstance(event.payload, RequestDeleted):
            command = ForgetRequest(request_id=spec.request_id)
        elif isinstance(event.payload, RequestAccepted):
            if begins_at_acceptance(found.state):
                return None
            command = BeginRequest(
                request_id=spec.request_id,
                prompt=own_prompt(spec),
                at=event.metadata.occurred_at,
            )
        payloads = decide(found.state, command)
        if not payloads:
            return None
        cause = Cause(spec.request_id, spec.program_id, spec.model_id, event.event_id)
        return self._book.append_of(found, payloads, cause)


def _is_of_no_session(event: Event) -> bool:
    """Whether the event itself says so; one that does not know its request's program says nothing
    of its session either."""
    if isinstance(event.payload, RequestAccepted):
        return not event.payload.spec.session_id
    return bool(event.metadata.program_id) and not event.metadata.session_id
