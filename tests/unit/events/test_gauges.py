"""How far followers are, looked up again and again."""

from collections.abc import Mapping

import pytest

from fastvideo.errors import Unavailable
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.reading import gauges
from fastvideo.events.reading.gauges import LagGauges
from tests.plugins.waiting import eventually, running


@pytest.mark.parametrize("error", [Unavailable("away"), RuntimeError("no such grant")])
async def test_a_look_that_fails_ends_nothing(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gauges, "LOOK_EVERY_S", 0.001)
    looks = 0

    async def read() -> Mapping[str, Mapping[int, int]]:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise error
        return {}

    async def looked_again() -> bool:
        return looks > 2

    async with running(LagGauges(MemoryEventStore(), read).run()) as task:
        await eventually(looked_again, timeout_s=30.0)
        assert not task.done()
