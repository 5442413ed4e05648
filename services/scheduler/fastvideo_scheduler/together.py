"""Works of a term that run together and end together."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def first_to_end(*works: Coroutine[Any, Any, None]) -> None:
    """Run all until one ends, end the others, and raise what it raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
