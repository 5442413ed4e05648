"""python -m fastvideo_artifacts: serve until SIGTERM or SIGINT."""

import asyncio
import os
import signal
import sys
from typing import Final

from fastvideo.errors import FastVideoError
from fastvideo.telemetry import logging, tracing
from fastvideo.telemetry.logging import get_logger
from fastvideo_artifacts.app import running_artifacts
from fastvideo_artifacts.config import Config, load_config

_LOG: Final = get_logger(__name__)


async def _serve(config: Config) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with running_artifacts(config) as server:
        _LOG.info("serving", address=server.address)
        await stopped.wait()


def main() -> None:
    """Configure, serve, and end with a message when serving is impossible."""
    try:
        config = load_config(os.environ)
    except FastVideoError as error:
        sys.exit(f"artifacts: {error.message}")
    logging.configure("artifacts", level=config.log_level)
    telemetry = tracing.configure(
        "artifacts", config.otlp_endpoint, attributes={"service.instance.id": config.service_id}
    )
    try:
        asyncio.run(_serve(config))
    except FastVideoError as error:
        sys.exit(f"artifacts: {error.message}")
    finally:
        telemetry.shutdown()


if __name__ == "__main__":
    main()
