"""A service's process: configure, serve until a signal, end with a message when it cannot."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, TypeVar

from fastvideo.errors import FastVideoError
from fastvideo.rpc.tls import TlsConfig
from fastvideo.service import collector
from fastvideo.service.environment import Environment
from fastvideo.service.metrics_listener import measured
from fastvideo.telemetry import logging, providers
from fastvideo.telemetry.config import TelemetryConfig

_LOG: Final = logging.get_logger(__name__)


class ServiceConfig(Protocol):
    """What every service's configuration has."""

    @property
    def service_id(self) -> str:
        """Names this process among its kind."""
        ...

    @property
    def log_level(self) -> str:
        """Such as "INFO"."""
        ...

    @property
    def telemetry(self) -> TelemetryConfig:
        """Where traces and metrics go."""
        ...

    @property
    def tls(self) -> TlsConfig:
        """What it serves with, and dials others with."""
        ...


class Running(Protocol):
    """A service that serves."""

    @property
    def address(self) -> str:
        """ "host:port" of its gRPC server."""
        ...

    @property
    def task(self) -> asyncio.Task[None] | None:
        """Work whose end is the service's end; None when there is none."""
        ...


C = TypeVar("C", bound=ServiceConfig)


def run_service(
    name: str,
    load_config: Callable[[Environment], C],
    serving: Callable[[C], AbstractAsyncContextManager[Running]],
) -> None:
    """Serve until SIGTERM or SIGINT. Exits with one line when serving is impossible."""
    try:
        config = load_config(Environment(os.environ))
    except FastVideoError as error:
        sys.exit(f"{name}: {error.message}")
    logging.configure(name, level=config.log_level)
    telemetry = providers.configure(
        name,
        config.telemetry,
        attributes={"service.instance.id": config.service_id},
        scraped=True,
    )
    try:
        asyncio.run(_serve(name, config, serving(config)))
    except FastVideoError as error:
        sys.exit(f"{name}: {error.message}")
    finally:
        telemetry.shutdown()


async def stop_asked() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set from now on."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    return asked


async def end_task(task: asyncio.Task[None]) -> None:
    """Cancel a service's work and wait until it has ended, however it does."""
    task.cancel()
    await asyncio.wait({task})


async def _serve(
    name: str, config: ServiceConfig, service: AbstractAsyncContextManager[Running]
) -> None:
    asked = await stop_asked()
    async with measured(name, config.telemetry, config.tls.server), service as running:
        collector.set_apart()
        _LOG.info("serving", address=running.address)
        stop = asyncio.create_task(asked.wait())
        await asyncio.wait({stop, running.task or stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if running.task is not None and running.task.done():
            await running.task
