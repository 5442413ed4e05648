"""Whose place goes to a request of a higher class that finds none.

Only a request of a strictly lower level is set aside, the one that came last, after it has had its
place for a while, and not more than a few times: so nobody is thrown about, and two requests never
take turns at each other's cost.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from fastvideo.scheduling.effects import OUTRANKS
from fastvideo.scheduling.events import PreemptRequest
from fastvideo.scheduling.relief import waited_too_long
from fastvideo.scheduling.state import LiveRequest, Saving, SchedulerState
from fastvideo.scheduling.wishes import wish_of


def make_room(
    state: SchedulerState, request: LiveRequest, ahead: int, now: datetime
) -> Iterator[PreemptRequest]:
    """Have a request set aside for one that waits, with `ahead` others before it."""
    if len(state.setting_aside) > ahead:
        # A place is on its way.
        return
    for victim in _victims(state, request):
        if now >= _may_go_at(state, victim):
            yield PreemptRequest(
                request_id=victim.request_id,
                attempt=victim.attempt,
                worker_id=victim.worker_id,
                reason=f"{request.request_id} {OUTRANKS}",
            )
            return


def room_due(state: SchedulerState) -> datetime | None:
    """When somebody who waits may have a place that another has now."""
    if state.setting_aside:
        return None
    moments = []
    for *_, line in state.lines.of(state.lines.by_model):
        victim = next(_victims(state, state.requests[line[0].request_id]), None)
        if victim is not None:
            moments.append(_may_go_at(state, victim))
    return min(moments, default=None)


def look_for_room(state: SchedulerState, now: datetime) -> None:
    """Time passed: whoever has had its place for long enough may have to give it away."""
    due = room_due(state)
    if due is not None and due <= now:
        state.touched_models.update(dict.fromkeys(state.lines.by_model))


def _victims(state: SchedulerState, request: LiveRequest) -> Iterator[LiveRequest]:
    """Requests whose place would do, those of the lowest level first, the newest of it first."""
    policy = state.policy
    level = policy.level(request.spec.priority)
    lower = sorted(placed for placed in state.placed if placed < level)
    if not lower or policy.preemptions_max == 0:
        return
    wish = wish_of(state, request)
    for placed in lower:
        for request_id in reversed(state.placed[placed]):
            victim = state.requests[request_id]
            if (
                not victim.unsavable
                and victim.saving is Saving.NOT
                and victim.ending is None
                and not victim.lost_reason
                and victim.preemptions < policy.preemptions_max
                and not waited_too_long(state, victim, victim.placed_at or victim.accepted_at)
                and state.placement.could_host(victim.worker_id, request.spec, wish)
            ):
                yield victim


def _may_go_at(state: SchedulerState, victim: LiveRequest) -> datetime:
    placed_at = victim.placed_at or victim.accepted_at
    return placed_at + timedelta(seconds=state.policy.residency_seconds_min)
