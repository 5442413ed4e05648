"""python -m fastvideo_scheduler: lead or stand by until SIGTERM or SIGINT."""

import asyncio
import gc
import os
import signal
import sys
from typing import Final

from fastvideo.errors import FastVideoError
from fastvideo.telemetry import logging, tracing
from fastvideo.telemetry.logging import get_logger
from fastvideo_scheduler.app import running_scheduler
from fastvideo_scheduler.config import Config, load_config

_LOG: Final = get_logger(__name__)


async def _serve(config: Config) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with running_scheduler(config) as scheduler:
        # What is imported lives for ever: no collection, in the middle of a step, needs to see it.
        gc.freeze()
        _LOG.info("serving", address=scheduler.address)
        stop = asyncio.create_task(stopped.wait())
        await asyncio.wait({stop, scheduler.task}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if scheduler.task.done():
            await scheduler.task


def main() -> None:
    """Configure, serve, and end with a message when serving is impossible."""
    try:
        config = load_config(os.environ)
    except FastVideoError as error:
        sys.exit(f"scheduler: {error.message}")
    logging.configure("scheduler", level=config.log_level)
    telemetry = tracing.configure(
        "scheduler", config.otlp_endpoint, attributes={"service.instance.id": config.service_id}
    )
    try:
        asyncio.run(_serve(config))
    except FastVideoError as error:
        sys.exit(f"scheduler: {error.message}")
    finally:
        telemetry.shutdown()


if __name__ == "__main__":
    main()
