"""`EventLogService.ListBehaviors`."""

from fastvideo import wire
from fastvideo.api.events.v1 import log_pb2
from fastvideo_gateway.behaviors import BehaviorLister


async def list_behaviors(
    lister: BehaviorLister, request: log_pb2.ListBehaviorsRequest
) -> log_pb2.ListBehaviorsResponse:
    """One page of records. Raises InvalidField for a condition, size or token that cannot be."""
    page = await lister.page(
        dict(request.where), page_size=request.page_size, token=request.page_token
    )
    return log_pb2.ListBehaviorsResponse(
        behaviors=[wire.to_proto(behavior) for behavior in page.behaviors],
        next_page_token=page.next_page_token,
    )
