"""The folds of the log by stream, up to given offsets, whatever lives in the stream."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from fastvideo.artifacts import state as artifact_state
from fastvideo.errors import CorruptLog
from fastvideo.events.catalog import event_of
from fastvideo.events.records import StoredEvent
from fastvideo.events.seeking import pages_after
from fastvideo.events.store import EventLog
from fastvideo.events.types import Event
from fastvideo.requests import state as request_state
from fastvideo.sessions import state as session_state

REQUEST: Final = "request"
SESSION: Final = "session"
ARTIFACT: Final = "artifact"


class Evolve(Protocol):
    """A step of a fold."""

    def __call__(self, state: Any, event: Event) -> Any:
        """The state after one more event of its stream."""
        ...


@dataclass(frozen=True, slots=True)
class Fold:
    """How one kind of stream is folded."""

    kind: str
    prefix: str
    evolve: Evolve


def _evolve_artifact(state: Any, event: Event) -> Any:
    payload = event.payload
    if not isinstance(payload, artifact_state.ArtifactEvent):
        raise CorruptLog(f"{event.type} in {event.stream_id}", subject=event.stream_id)
    return artifact_state.evolve(state, payload)


FOLDS: Final = (
    Fold(REQUEST, request_state.STREAM_PREFIX, request_state.evolve),
    Fold(SESSION, session_state.STREAM_PREFIX, session_state.evolve),
    Fold(ARTIFACT, artifact_state.stream_of(""), _evolve_artifact),
)


@dataclass(frozen=True, slots=True)
class Folded:
    """A stream's state at some place."""

    state: Any
    # The stream's last event that is in it.
    version: int
    event_id: str
    traceparent: str


async def find_fold(log: EventLog, subject_id: str) -> Fold | None:
    """How what bears an id is folded; None when the log has nothing of that id."""
    for fold in FOLDS:
        if await log.read_stream(fold.prefix + subject_id, 0, 1):
            return fold
    return None


async def fold_stream(
    log: EventLog,
    fold: Fold,
    subject_id: str,
    *,
    until: Mapping[int, int],
    version_max: int | None = None,
) -> Folded | None:
    """The state up to offsets and a version; None when there was nothing yet.

    Raises CorruptLog when the stream does not fold.
    """
    found: Folded | None = None
    async for page in pages_after(log, fold.prefix + subject_id, 0):
        for stored in page:
            if _is_later(stored, until) or (
                version_max is not None and stored.stream_version > version_max
            ):
                return found
            event = event_of(stored)
            found = Folded(
                state=fold.evolve(None if found is None else found.state, event),
                version=stored.stream_version,
                event_id=stored.event_id,
                traceparent=found.traceparent if found else event.metadata.traceparent,
            )
    return found


def _is_later(stored: StoredEvent, until: Mapping[int, int]) -> bool:
    offset = until.get(stored.partition)
    return offset is not None and stored.offset > offset
