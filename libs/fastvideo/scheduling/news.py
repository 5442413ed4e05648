"""What waiting requests are told: that they wait and why, and later how their place changes.

A request is told at once that it waits, with how many came before it. After that an order is told
at most once in `queue_news_seconds_min`: the first `queue_news_requests_max` learn where they
stand by priority, deadline and their tenants' shares, if that or the reason is another than before.
"""

from collections.abc import Iterator
from datetime import datetime
from heapq import heapify, heappop, heappush
from math import inf

from fastvideo.scheduling.cost import price_request
from fastvideo.scheduling.events import QueueRequest
from fastvideo.scheduling.lines import PlaceKind, front
from fastvideo.scheduling.queueing import tenant_bill
from fastvideo.scheduling.state import LiveRequest, SchedulerState
from fastvideo.scheduling.wishes import need_key, wish_of

Reasons = dict[tuple[PlaceKind, str], str]


def queue_news(state: SchedulerState, now: datetime) -> Iterator[QueueRequest]:
    """All that is to be told now."""
    lines, policy = state.lines, state.policy
    reasons: Reasons = {}
    for request_id in list(lines.untold):
        request = state.requests[request_id]
        reason = _reason(state, request, reasons)
        if reason:
            position = 1 + lines.before(request.place_kind, request.rank, request_id)
            yield QueueRequest(request_id=request_id, position=position, reason=reason)
    moment = now.timestamp()
    for kind in list(lines.stale):
        if lines.told_at.get(kind, -inf) + policy.queue_news_seconds_min > moment:
            continue
        del lines.stale[kind]
        for position, request_id in enumerate(list(_order(state, kind)), start=1):
            request = state.requests[request_id]
            reason = _reason(state, request, reasons)
            if reason and (position, reason) != (request.queued_position, request.queued_reason):
                yield QueueRequest(request_id=request_id, position=position, reason=reason)


def _order(state: SchedulerState, kind: PlaceKind) -> Iterator[str]:
    """The order in which requests would have their places if nothing else happened."""
    lines = state.lines.lines(kind)
    ahead: dict[tuple[int, str], float] = {}
    heap = [
        (front(line[0].rank, tenant_id, state.shares), tenant_id, 0)
        for tenant_id, line in lines.items()
    ]
    heapify(heap)
    for _ in range(state.policy.queue_news_requests_max):
        if not heap:
            return
        _, tenant_id, index = heappop(heap)
        line = lines[tenant_id]
        yield line[index].request_id
        if index + 1 == len(line):
            continue
        request = state.requests[line[index].request_id]
        flow = (request.rank.negative_priority, tenant_id)
        bill = tenant_bill(state, request, price_request(state.costs, request.spec))
        ahead[flow] = ahead.get(flow, 0.0) + bill.seconds / bill.weight
        thrown_back, priority, deadline, tag, arrival = front(
            line[index + 1].rank, tenant_id, state.shares
        )
        tag += ahead.get((priority, tenant_id), 0.0)
        heappush(heap, ((thrown_back, priority, deadline, tag, arrival), tenant_id, index + 1))


def _reason(state: SchedulerState, request: LiveRequest, reasons: Reasons) -> str:
    """Why a request waits for a place; empty when it does not. Alike requests are asked once."""
    alike = (request.place_kind, need_key(request.spec))
    if alike not in reasons:
        reasons[alike] = state.placement.why_not(request.spec, wish_of(state, request))
    return reasons[alike]
