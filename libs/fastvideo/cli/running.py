"""Runs a command's coroutine: signals cancel it, and its trace is sent before the end."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from fastvideo.cli.config import CliConfig, load_config
from fastvideo.local.folder import DataFolder, default_data_folder
from fastvideo.telemetry import providers
from fastvideo.telemetry.config import TelemetryConfig

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T], *, traced: bool = True) -> T:
    """The result of the coroutine. Ctrl-C and SIGTERM cancel it, then raise KeyboardInterrupt.

    What only looks at traces is not `traced` itself.
    """
    untraced = TelemetryConfig(trace_sample=0.0)
    telemetry = providers.configure("fastvideo-cli", _telemetry() if traced else untraced)
    try:
        return asyncio.run(_until_terminated(work))
    finally:
        telemetry.shutdown()


def _telemetry() -> TelemetryConfig:
    """Where this command's trace goes: to whom the environment names, and to the local stack."""
    config = load_config(os.environ)
    folder = local_trace_folder(config)
    return TelemetryConfig(
        otlp_endpoint=config.otlp_endpoint,
        trace_sample=config.trace_sample,
        trace_folder=folder if config.otlp_endpoint is None and folder.is_dir() else None,
    )


def local_trace_folder(config: CliConfig, data: Path | None = None) -> Path:
    """Where the services of the local stack keep their spans; `data` is its folder."""
    if config.trace_folder:
        return Path(config.trace_folder)
    return DataFolder(data or default_data_folder(os.environ)).traces


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
