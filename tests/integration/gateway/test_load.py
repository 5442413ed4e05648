"""Many submits leave nothing behind."""

import asyncio
import gc
import tracemalloc

from fastvideo.api.gateway.v1 import gateway_pb2
from tests.integration.gateway.worlds import World, submit_message


async def test_a_thousand_submits_leave_no_memory_behind(world: World) -> None:
    async def submit_many(count: int) -> None:
        for _ in range(count // 50):
            await asyncio.gather(*(world.stub.SubmitRequest(submit_message()) for _ in range(50)))

    await submit_many(100)
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        await submit_many(1_000)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A request of 1 kB kept a thousand times would be 1 MB.
    assert after - before < 500_000
    page = await world.stub.ListRequests(gateway_pb2.ListRequestsRequest(page_size=200))
    assert len(page.states) == 200
