"""Waiting in tests: for a condition, until a deadline."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any


async def eventually(
    condition: Callable[[], Awaitable[bool]], timeout_s: float = 60.0, every_s: float = 0.01
) -> None:
    """Return as soon as the condition holds; fail when it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not await condition():
        assert time.monotonic() < deadline, f"not so after {timeout_s} s"
        await asyncio.sleep(every_s)


@contextlib.asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run endless work beside the body; its own failure fails the test."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        results = await asyncio.gather(task, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
