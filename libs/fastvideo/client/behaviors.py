"""Records of behaviour, page by page, newest first."""

from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Final

from fastvideo import wire
from fastvideo.api.events.v1 import log_pb2
from fastvideo.client.calls import Calls
from fastvideo.client.submission import carrying
from fastvideo.scheduling.traces import BehaviorRecorded

if TYPE_CHECKING:
    from fastvideo.api.events.v1.log_pb2_grpc import EventLogServiceAsyncStub

PAGE_SIZE: Final = 200


async def behaviors(
    stub: "EventLogServiceAsyncStub",
    where: Mapping[str, str],
    limit: int | None,
    calls: Calls,
) -> AsyncGenerator[BehaviorRecorded, None]:
    """At most `limit` records of which every condition holds."""
    token, left = "", limit
    while left is None or left > 0:
        size = PAGE_SIZE if left is None else min(left, PAGE_SIZE)
        with carrying("where", where):
            request = log_pb2.ListBehaviorsRequest(where=where, page_size=size, page_token=token)
        answer = await calls(stub.ListBehaviors, request)
        for message in answer.behaviors:
            yield wire.from_proto(BehaviorRecorded, message)
        left = None if left is None else left - len(answer.behaviors)
        token = answer.next_page_token
        if not token:
            return
