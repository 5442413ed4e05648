"""How many replays a gateway takes up."""

import asyncio
from typing import Any, cast

import pytest

from fastvideo.errors import NotFound, ResourceExhausted
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.records import StoredEvent
from fastvideo_gateway.replaying import READ_AT_ONCE_MAX, Replayer, ReplayParts
from tests.plugins.waiting import eventually


class SlowLog(MemoryEventStore):
    """Answers when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.goes = asyncio.Event()
        self.waiting = 0

    async def read_stream(
        self, stream_id: str, after_version: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        self.waiting += 1
        await self.goes.wait()
        return await super().read_stream(stream_id, after_version, limit)


async def test_no_more_runs_are_read_at_a_time_than_there_are_places() -> None:
    log, nobody = SlowLog(), cast(Any, None)
    replayer = Replayer(
        ReplayParts(
            log=log, served=nobody, workers=nobody, behaviors=nobody, catalog=nobody, shard="0"
        )
    )
    reading = [asyncio.create_task(replayer.logged_run("req_1")) for _ in range(READ_AT_ONCE_MAX)]

    async def all_wait() -> bool:
        return log.waiting == READ_AT_ONCE_MAX

    await eventually(all_wait)
    with pytest.raises(ResourceExhausted, match="there are 4 runs that are read"):
        await replayer.logged_run("req_1")
    log.goes.set()
    ends = await asyncio.gather(*reading, return_exceptions=True)
    assert all(isinstance(end, NotFound) for end in ends)
    with pytest.raises(NotFound):
        await replayer.logged_run("req_1")
