"""The listener of a service for those who scrape its metrics, and what every service tells."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from fastvideo.errors import Unavailable
from fastvideo.rpc.tls import ServerTls
from fastvideo.telemetry import metrics
from fastvideo.telemetry.config import TelemetryConfig
from fastvideo.telemetry.exposition import Scraper, scraper_of_process
from fastvideo.telemetry.instruments import BUILD, SERVICE, VERSION
from fastvideo.version import program_version

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope

PATH: Final = "/metrics"
STOP_S: Final = 1


@asynccontextmanager
async def measured(
    name: str, config: TelemetryConfig, tls: ServerTls | None = None
) -> AsyncIterator[str]:
    """Be scraped inside the block where the configuration says; gives the address, or nothing.

    With `tls` scrapers are let in as all other callers of the service. Raises Unavailable when the
    address cannot be bound.
    """
    labels = {SERVICE: name, VERSION: program_version()}
    metrics.observe(BUILD, lambda: [(1, labels)])
    scraper = scraper_of_process()
    if not config.metrics_listen or scraper is None:
        yield ""
        return
    async with _listening(config.metrics_listen, scraper, tls) as address:
        yield address


@asynccontextmanager
async def _listening(listen: str, scraper: Scraper, tls: ServerTls | None) -> AsyncIterator[str]:
    # A process that is not scraped does without it.
    from fastvideo.service.metrics_server import serving

    host, _, port = listen.rpartition(":")
    bare = host.strip("[]")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    try:
        listening = socket.create_server((bare, int(port)), family=family)
    except OSError as error:
        raise Unavailable(f"cannot listen on {listen}", subject=listen) from error
    server = serving(_Application(scraper), stop_s=STOP_S, tls=tls)
    task = asyncio.create_task(server.serve(sockets=[listening]), name="metrics")
    try:
        yield f"{host}:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        done, _ = await asyncio.wait({task}, timeout=2 * STOP_S)
        if not done:
            task.cancel()
            await asyncio.wait({task})


class _Application:
    """GET /metrics, and nothing else."""

    def __init__(self, scraper: Scraper) -> None:
        self._scraper = scraper

    async def __call__(
        self, scope: "Scope", receive: "ASGIReceiveCallable", send: "ASGISendCallable"
    ) -> None:
        if scope["type"] != "http":
            return
        status, body, content_type = 404, b"metrics are at /metrics\n", "text/plain"
        if scope["path"] == PATH and scope["method"] in ("GET", "HEAD"):
            accept = next((value for key, value in scope["headers"] if key == b"accept"), b"")
            # Beside the event loop, which has to answer for its gauges meanwhile.
            answer = await asyncio.to_thread(self._scraper.scrape, accept.decode("latin-1"))
            status, body, content_type = 200, answer.body, answer.content_type
        headers = [
            (b"content-type", content_type.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": headers,
                "trailers": False,
            }
        )
        await send({"type": "http.response.body", "body": body, "more_body": False})
