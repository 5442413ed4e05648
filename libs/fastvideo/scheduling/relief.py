"""Requests that have waited for a place for too long: every second place is theirs.

Priority, deadlines and shares order who waits for a place. A crowd of a higher class would keep
others waiting for as long as it lasts; so once a request has waited for W =
`queue_wait_seconds_max`, every second place that it could have goes to it or to one that has
waited longer, and it keeps its place.

The turn of one that can have no place now, since those that are free are kept for higher classes
or too small, is that of the next who waits too long; its own stays due at the next place.
"""

from collections.abc import Collection, Iterable
from datetime import datetime
from itertools import islice
from math import inf

from fastvideo.scheduling.lines import PlaceKind
from fastvideo.scheduling.state import LiveRequest, SchedulerState, Worker


def overdue(
    state: SchedulerState, models: Iterable[str], now: datetime, tried: Collection[str]
) -> LiveRequest | None:
    """Who of these models' lines has waited longest and for too long, if it is their turn."""
    found: LiveRequest | None = None
    least = inf
    for model_id in models:
        for kind in state.lines.by_model.get(model_id, ()):
            request = _longest(state, kind, tried)
            if request is not None and _is_due(state, request, now):
                number = state.lines.entered[kind][request.request_id]
                if number < least:
                    found, least = request, number
    return found


def note_relief(state: SchedulerState, request: LiveRequest, worker: Worker, now: datetime) -> None:
    """A request gets a place of a worker: note whether out of turn or in order."""
    lines, kind = state.lines, request.place_kind
    if _is_due(state, request, now):
        lines.relieved[kind] = lines.entered[kind][request.request_id]
        return
    # In order: whoever waits for places of that worker is next.
    models = {instance.model_id for instance in worker.attached.instances}
    for other in [other for other in lines.relieved if other.model_id in models]:
        del lines.relieved[other]


def _longest(state: SchedulerState, kind: PlaceKind, tried: Collection[str]) -> LiveRequest | None:
    """Who has waited longest for a kind of place, those left out that can have none now."""
    waiting = islice(state.lines.entered.get(kind, ()), state.policy.deferrals_max)
    return next((state.requests[name] for name in waiting if name not in tried), None)


def _is_due(state: SchedulerState, request: LiveRequest, now: datetime) -> bool:
    """Whether it has waited too long, and the latest relief was not of one that came before it."""
    lines, own = state.lines, request.place_kind
    number = lines.entered[own][request.request_id]
    return waited_too_long(state, request, now) and not any(
        kind.bound_to == own.bound_to and relieved <= number
        for kind, relieved in lines.relieved.items()
    )


def waited_too_long(state: SchedulerState, request: LiveRequest, now: datetime) -> bool:
    """Whether a request that gets a place at that moment has waited too long for it."""
    waited = (now - request.accepted_at).total_seconds()
    return waited >= state.policy.queue_wait_seconds_max
