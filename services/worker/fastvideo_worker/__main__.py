"""Composition root of the worker: configuration, telemetry, run until told to stop."""

import asyncio
import os
import sys
from typing import Final

from fastvideo.errors import FastVideoError
from fastvideo.service import collector
from fastvideo.service.environment import Environment
from fastvideo.service.metrics_listener import measured
from fastvideo.service.run import stop_asked
from fastvideo.telemetry import logging, providers
from fastvideo_worker.config import Config, load_config
from fastvideo_worker.worker import Worker

_LOG: Final = logging.get_logger(__name__)


def main() -> int:
    """Run a worker; 0 after a drain, 1 when it could not start."""
    try:
        config = load_config(Environment(os.environ))
    except FastVideoError as error:
        print(f"fastvideo worker: {error.message}", file=sys.stderr)  # noqa: T201
        return 1
    logging.configure(config.service_id, level=config.log_level)
    telemetry = providers.configure(
        "worker",
        config.telemetry,
        attributes={"service.instance.id": config.service_id},
        scraped=True,
    )
    # Before there are models: these come and go.
    collector.set_apart()
    try:
        code = asyncio.run(_measured(config))
    finally:
        telemetry.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    # A step that outlasted the grace must not hold the exit back.
    os._exit(code)


async def _measured(config: Config) -> int:
    try:
        async with measured("worker", config.telemetry, config.tls.server):
            return await _run(config)
    except FastVideoError as error:
        _LOG.error("worker cannot be measured", reason=error.reason, error=error.message)
        return 1


async def _run(config: Config) -> int:
    told = await stop_asked()
    worker = Worker(config)
    starting = asyncio.ensure_future(worker.start())
    stopping = asyncio.ensure_future(told.wait())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            return 0
        starting.result()
        await stopping
        await worker.drain()
    except FastVideoError as error:
        _LOG.error("worker cannot start", reason=error.reason, error=error.message)
        return 1
    finally:
        starting.cancel()
        stopping.cancel()
        await worker.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
