"""Where counters begin."""

import asyncio

from fastvideo.events.projections.projector import Projector
from fastvideo_gateway.index_memory import MemoryIndex
from fastvideo_gateway.quotas.following import under_way_in
from tests.plugins.waiting import running
from tests.unit.gateway.test_watching import ACCEPTED, DONE, CountingLog


async def test_what_ended_while_the_rows_were_behind_is_not_under_way() -> None:
    log, index = CountingLog(), MemoryIndex()
    projector = Projector(log, index, log.wakeups)
    await log.write(ACCEPTED)
    await index.apply(await log.read_partition(0))
    await log.write(DONE)
    assert len(await index.under_way(10)) == 1
    reading = asyncio.ensure_future(under_way_in(index, projector, log)(10))
    async with asyncio.timeout(30), running(projector.run()):
        assert await reading == ()
