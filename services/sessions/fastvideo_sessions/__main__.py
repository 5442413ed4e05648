"""python -m fastvideo_sessions: serve until SIGTERM or SIGINT."""

import asyncio
import os
import signal
import sys
from typing import Final

from fastvideo.errors import FastVideoError
from fastvideo.telemetry import logging, tracing
from fastvideo.telemetry.logging import get_logger
from fastvideo_sessions.app import running_sessions
from fastvideo_sessions.config import Config, load_config

_LOG: Final = get_logger(__name__)


async def _serve(config: Config) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with running_sessions(config) as sessions:
        _LOG.info("serving", address=sessions.address)
        stop = asyncio.create_task(stopped.wait())
        await asyncio.wait({stop, sessions.task}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if sessions.task.done():
            await sessions.task


def main() -> None:
    """Configure, serve, and end with a message when serving is impossible."""
    try:
        config = load_config(os.environ)
    except FastVideoError as error:
        sys.exit(f"sessions: {error.message}")
    logging.configure("sessions", level=config.log_level)
    telemetry = tracing.configure(
        "sessions", config.otlp_endpoint, attributes={"service.instance.id": config.service_id}
    )
    try:
        asyncio.run(_serve(config))
    except FastVideoError as error:
        sys.exit(f"sessions: {error.message}")
    finally:
        telemetry.shutdown()


if __name__ == "__main__":
    main()
