"""Many requests leave nothing behind once they have ended."""

import asyncio
import gc
import tracemalloc

from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.requests.events import RequestCancelled
from fastvideo.requests.state import stream_of
from fastvideo.requests.types import RequestMetrics
from fastvideo.rpc.identity import DEFAULT_TENANT
from tests.integration.gateway.worlds import World
from tests.plugins.waiting import eventually

# A request of 1 kB kept a thousand times would be 1 MB. That a minute has had it, quotas keep.
KEPT_BYTES_MAX = 750_000


async def test_a_thousand_requests_leave_no_memory_behind(world: World) -> None:
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
    await run_many(100)
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        await run_many(1_000)
        # Those who follow the log learn of the ends a little later.
        await eventually(little_is_kept, timeout_s=30.0, every_s=0.5)
    finally:
        tracemalloc.stop()
    page = await world.stub.ListRequests(gateway_pb2.ListRequestsRequest(page_size=200))
    assert len(page.states) == 200
