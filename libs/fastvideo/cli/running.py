"""Runs a command's coroutine: signals cancel it, and its trace is sent before the end."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fastvideo.cli.config import load_config
from fastvideo.errors import DeadlineExceeded
from fastvideo.telemetry import tracing

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of the coroutine. Ctrl-C and SIGTERM cancel it, then raise KeyboardInterrupt."""
    telemetry = tracing.configure("fastvideo-cli", load_config(os.environ).otlp_endpoint)
    try:
        return asyncio.run(_until_terminated(work))
    finally:
        telemetry.shutdown()


@asynccontextmanager
async def within(timeout_s: float, what: str) -> AsyncIterator[None]:
    """Raise DeadlineExceeded, naming what was waited for, when the block takes longer."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError as error:
        raise DeadlineExceeded(f"{what} took longer than {timeout_s:g} s") from error


async def _until_terminated(work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.ensure_future(work)
    terminated = False

    def on_terminate() -> None:
        nonlocal terminated
        terminated = True
        task.cancel()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, on_terminate)
    try:
        return await task
    except asyncio.CancelledError:
        if terminated:
            raise KeyboardInterrupt from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
