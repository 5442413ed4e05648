"""Many requests leave nothing behind once they have ended."""

import asyncio
import gc
import tracemalloc

from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.events.tailed import TailLimits
from fastvideo.requests.events import RequestCancelled
from fastvideo.requests.state import stream_of
from fastvideo.requests.types import RequestMetrics
from fastvideo.rpc.identity import DEFAULT_TENANT
from tests.integration.gateway.worlds import World
from tests.plugins.waiting import eventually

# By then the tail of the log, two events a request, is as large as it gets.
WARM_UP = TailLimits().events_max // 2
REQUESTS = 500
# A kilobyte of each would be 0.5 MB. That a minute has had it, quotas keep.
KEPT_BYTES_MAX = 375_000


async def test_requests_leave_no_memory_behind(world: World) -> None:
    async def run_many(count: int) -> None:
        for _ in range(count // 50):
            ids = await asyncio.gather(*(world.submit() for _ in range(50)))
            await asyncio.gather(
                *(world.append(stream_of(one), ended, tenant_id=DEFAULT_TENANT) for one in ids)
            )

    async def little_is_kept() -> bool:
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before < KEPT_BYTES_MAX

    ended = RequestCancelled(metrics=RequestMetrics())
    tracemalloc.start()
    try:
        await run_many(WARM_UP)
        # Those who follow the log have come as far.
        await world.stub.ListRequests(gateway_pb2.ListRequestsRequest(page_size=1))
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        await run_many(REQUESTS)
        # Those who follow the log learn of the ends a little later.
        await eventually(little_is_kept, every_s=0.5)
    finally:
        tracemalloc.stop()
    page = await world.stub.ListRequests(gateway_pb2.ListRequestsRequest(page_size=200))
    assert len(page.states) == 200
