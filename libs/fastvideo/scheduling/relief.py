"""Requests that have waited for a place for too long: every second place is theirs.

Priority, deadlines and shares order who waits for a place. A crowd of a higher class would keep
others waiting for as long as it lasts; so once a request has waited for W =
`queue_wait_seconds_max`, it waits for at most twice as many places as there are requests that
came before it, and keeps its place.
"""

from collections.abc import Collection, Iterable
from datetime import datetime

from fastvideo.scheduling.lines import PlaceKind
from fastvideo.scheduling.state import LiveRequest, SchedulerState


def overdue(
    state: SchedulerState, models: Iterable[str], now: datetime, tried: Collection[str]
) -> LiveRequest | None:
    """Who of these models' lines has waited longest and for too long, if it is their turn."""
    found: LiveRequest | None = None
    for model_id in models:
        for kind in state.lines.by_model.get(model_id, ()):
            request = _oldest(state, kind)
            if (
                request is not None
                and request.request_id not in tried
                and not _just_relieved(state, kind)
                and waited_too_long(state, request, now)
                and (found is None or request.accepted_at < found.accepted_at)
            ):
                found = request
    return found


def note_relief(state: SchedulerState, request: LiveRequest, now: datetime) -> None:
    """A request gets a place: note whether it was one that had waited for too long."""
    lines, kind = state.lines, request.place_kind
    is_oldest = _oldest(state, kind) is request
    for other in _just_relieved(state, kind):
        del lines.relieved[other]
    if is_oldest and waited_too_long(state, request, now):
        lines.relieved[kind] = None


def _oldest(state: SchedulerState, kind: PlaceKind) -> LiveRequest | None:
    """Who has waited longest for the places that a kind waits for, whatever its own kind."""
    found: LiveRequest | None = None
    for other in state.lines.by_model.get(kind.model_id, ()):
        request = state.requests.get(state.lines.longest(other))
        if request is None or other.bound_to != kind.bound_to:
            continue
        if found is None or request.accepted_at < found.accepted_at:
            found = request
    return found


def _just_relieved(state: SchedulerState, kind: PlaceKind) -> list[PlaceKind]:
    """Kinds that had the latest turn at the places which this one waits for, too."""
    return [other for other in state.lines.relieved if other.bound_to == kind.bound_to]


def waited_too_long(state: SchedulerState, request: LiveRequest, now: datetime) -> bool:
    """Whether a request that gets a place at that moment has waited too long for it."""
    waited = (now - request.accepted_at).total_seconds()
    return waited >= state.policy.queue_wait_seconds_max
