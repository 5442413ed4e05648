"""What a replay tells while it runs, from any thread to whoever reads, in bounded memory."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any, Final

from fastvideo.replay.tally import COMPARISONS_MAX
from fastvideo.replay.types import Comparison, ReplayProgress, ReplayReport, ReplayRequest

Told = ReplayProgress | Comparison | ReplayReport
"""What a replay tells: the report is the last."""

WAITING_MAX: Final = 1_000
"""Comparisons that a slow reader has not read; of more, the report says how many there were."""


class Board:
    """Keeps the newest progress, the comparisons that differ, and some of the others."""

    def __init__(self, request: ReplayRequest) -> None:
        self._loop = asyncio.get_running_loop()
        self._equal_left = request.comparisons_max or COMPARISONS_MAX
        self._comparisons: deque[Comparison] = deque()
        self._progress: ReplayProgress | None = None
        self._has_compared = False
        self._arrived = asyncio.Event()

    @property
    def has_compared(self) -> bool:
        """Whether a comparison was told."""
        return self._has_compared

    def tell(self, message: ReplayProgress | Comparison) -> None:
        """Tell it, from any thread."""
        if isinstance(message, Comparison):
            self._has_compared = True
            if message.equal:
                if self._equal_left <= 0:
                    return
                self._equal_left -= 1
            if len(self._comparisons) < WAITING_MAX:
                self._comparisons.append(message)
        else:
            self._progress = message
        self._loop.call_soon_threadsafe(self._arrived.set)

    async def messages(
        self, task: "asyncio.Task[Any]"
    ) -> AsyncGenerator[ReplayProgress | Comparison, None]:
        """What is told until the task ends."""
        task.add_done_callback(lambda _: self._arrived.set())
        while True:
            self._arrived.clear()
            ended = task.done()
            while self._comparisons:
                yield self._comparisons.popleft()
            progress, self._progress = self._progress, None
            if progress is not None:
                yield progress
            if ended:
                return
            await self._arrived.wait()
