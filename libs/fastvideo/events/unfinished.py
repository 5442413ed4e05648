"""Which of a tenant's requests are under way, by what the log says."""

from collections.abc import Mapping
from typing import Final

from fastvideo.api.events.v1 import events_pb2
from fastvideo.events.catalog import TERMINAL
from fastvideo.events.store import EventLog
from fastvideo.requests.events import RequestAccepted
from fastvideo.requests.state import STREAM_PREFIX

EVENTS_PER_READ: Final = 1_000


async def unfinished_requests(
    log: EventLog, tenant_id: str, marks: Mapping[int, int]
) -> tuple[str, ...]:
    """Ids of the tenant's requests that were accepted and have not ended, oldest first.

    `marks` are the low-water marks of the scheduler, by partition: below them every request has
    ended.
    """
    found: dict[str, None] = {}
    for partition in range(log.partition_count):
        offset = marks.get(partition, 0)
        while events := await log.read_partition(partition, offset, EVENTS_PER_READ):
            offset = events[-1].offset
            for stored in events:
                request_id = stored.stream_id.removeprefix(STREAM_PREFIX)
                if stored.type == RequestAccepted.__name__:
                    metadata = events_pb2.EventMetadata.FromString(stored.metadata)
                    if metadata.tenant_id == tenant_id:
                        found[request_id] = None
                elif stored.type in TERMINAL:
                    found.pop(request_id, None)
    return tuple(found)
