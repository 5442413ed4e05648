"""What waiting requests are told: that they wait and why, and later how their place changes.

A request is told at once that it waits. After that each line is told at most once in
`queue_news_seconds_min`, the first `queue_news_requests_max` of it, and only who has another
place or another reason than it was told.
"""

from collections.abc import Iterator
from datetime import datetime
from math import inf

from fastvideo.scheduling.events import QueueRequest
from fastvideo.scheduling.lines import LineKey
from fastvideo.scheduling.state import LiveRequest, SchedulerState
from fastvideo.scheduling.wishes import need_key, wish_of

Reasons = dict[tuple[LineKey, str], str]


def queue_news(state: SchedulerState, now: datetime) -> Iterator[QueueRequest]:
    """All that is to be told now."""
    lines, policy = state.lines, state.policy
    reasons: Reasons = {}
    for request_id in list(lines.untold):
        request = state.requests[request_id]
        reason = _reason(state, request, reasons)
        if reason:
            position = lines.position(request.line, request.rank, request_id)
            yield QueueRequest(request_id=request_id, position=position, reason=reason)
    moment = now.timestamp()
    for key in list(lines.stale):
        if lines.told_at.get(key, -inf) + policy.queue_news_seconds_min > moment:
            continue
        del lines.stale[key]
        told = [entry.request_id for entry in lines.line(key)[: policy.queue_news_requests_max]]
        for position, request_id in enumerate(told, start=1):
            request = state.requests[request_id]
            reason = _reason(state, request, reasons)
            if reason and (position, reason) != (request.queued_position, request.queued_reason):
                yield QueueRequest(request_id=request_id, position=position, reason=reason)


def _reason(state: SchedulerState, request: LiveRequest, reasons: Reasons) -> str:
    """Why a request waits for a place; empty when it does not. Alike requests are asked once."""
    alike = (request.line, need_key(request.spec))
    if alike not in reasons:
        reasons[alike] = state.placement.why_not(request.spec, wish_of(state, request))
    return reasons[alike]
