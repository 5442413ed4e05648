"""When a sweeper lists the whole store."""

import asyncio
from datetime import UTC, datetime

import pytest

from fastvideo.events.records import Lease
from fastvideo.service.run import end_task
from fastvideo_artifacts import sweeping
from fastvideo_artifacts.sweeping import Sweeper, Swept

LEASE = Lease("artifact-sweeper", "one", 1, datetime(2026, 1, 1, tzinfo=UTC))


class Rounds(Sweeper):
    """Sweeps nothing, and fails at the first lists."""

    def __init__(self, failing: int) -> None:
        super().__init__(None, LEASE)  # type: ignore[arg-type]
        self._failing = failing
        self.lists = 0
        self.swept = asyncio.Queue[int]()

    async def sweep(self) -> Swept:
        self.swept.put_nowait(self.lists)
        return Swept()

    async def clear(self) -> Swept:
        self.lists += 1
        return Swept(failed=int(self.lists <= self._failing))


async def test_a_list_that_fails_is_made_again_before_its_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweeping, "LIST_AGAIN_S", 0.0)
    sweeper = Rounds(failing=2)
    task = asyncio.create_task(sweeper.run(0.001))
    async with asyncio.timeout(60):
        lists = [await sweeper.swept.get() for _ in range(6)]
    await end_task(task)
    assert lists == [0, 1, 2, 3, 3, 3]
