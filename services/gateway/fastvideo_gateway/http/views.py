"""What the answers under /api and /health are made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from fastvideo.artifacts.types import ArtifactRecord
from fastvideo.explain.lanes import Lane
from fastvideo.explain.types import Explanation
from fastvideo.requests.types import RequestState
from fastvideo_gateway.http.leaves import ChangedLeaf
from fastvideo_gateway.http.rows import EventRow, RequestRow


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """Why a call was refused."""

    reason: str
    message: str
    # What of the call; empty when it is about no part of it.
    field: str
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer of an error."""

    error: ErrorRecord


@dataclass(frozen=True, slots=True)
class Alive:
    """The process answers."""

    # Of the program.
    version: str
    status: Literal["live"] = "live"


@dataclass(frozen=True, slots=True)
class Ready:
    """Whether the event log answers, and which models a worker serves."""

    status: Literal["ready", "not ready"]
    # Of the program.
    version: str
    models: Mapping[str, bool]
    # "shared" while quotas are kept for all gateways together, "local" for this one alone.
    quotas: str


@dataclass(frozen=True, slots=True)
class RequestList:
    """A page of requests; an empty cursor says that there are no more."""

    requests: tuple[RequestRow, ...]
    next_cursor: str


@dataclass(frozen=True, slots=True)
class RequestView:
    """A request, its line, and whether that is all the log knows of it by now."""

    request: RequestRow
    state: RequestState
    fresh: bool


@dataclass(frozen=True, slots=True)
class ExplanationView:
    """Where the time went, and the same as lanes of a picture."""

    explanation: Explanation
    lanes: tuple[Lane, ...]
    next_cursor: str


@dataclass(frozen=True, slots=True)
class EventList:
    """A page of a request's events, and how many it has."""

    events: tuple[EventRow, ...]
    stream_version: int


@dataclass(frozen=True, slots=True)
class EventView:
    """One event: its line, and all of it with the fields of its message."""

    row: EventRow
    event: Any


@dataclass(frozen=True, slots=True)
class PastView:
    """The state after an event, and what that event changed."""

    version: int
    partition: int
    offset: int
    recorded_at: datetime
    type: str
    name: str
    event: Any
    state: Any
    differences: tuple[ChangedLeaf, ...]


@dataclass(frozen=True, slots=True)
class PlaceView:
    """The last version before a moment."""

    version: int


@dataclass(frozen=True, slots=True)
class LogPage:
    """A page of the log; complete when nothing is behind it."""

    events: tuple[EventRow, ...]
    next_cursor: str
    complete: bool


@dataclass(frozen=True, slots=True)
class ArtifactView:
    """What is known of a file."""

    artifact: ArtifactRecord


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model, and whether a worker serves it."""

    model_id: str
    ready: bool


@dataclass(frozen=True, slots=True)
class ModelRows:
    """Every model of the catalog."""

    models: tuple[ModelRow, ...]
