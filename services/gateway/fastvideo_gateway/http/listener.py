"""uvicorn inside the gateway's own event loop: bounded, and stopped with the gateway."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, cast

import uvicorn
from starlette.types import ASGIApp

from fastvideo.errors import Unavailable
from fastvideo.rpc.tls import ServerTls
from fastvideo.service.run import end_task
from fastvideo_gateway.http.connections import (
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    BoundedProtocol,
    Places,
)

KEEP_ALIVE_S: Final = 15
UNREAD_MS_MAX: Final = 60_000
# What still answers then is cut off.
STOP_S: Final = 3


class _Server(uvicorn.Server):
    """Leaves the process's signals to the service, and says when it serves."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.serving = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.serving.set()


class HttpListener:
    """Serves an application on one address.

    `closing` is set first when it stops, so that streams without an end can end themselves. With
    `tls` it speaks nothing else.
    """

    def __init__(
        self, listen: str, app: ASGIApp, closing: asyncio.Event, tls: ServerTls | None = None
    ) -> None:
        self._host, _, port = listen.rpartition(":")
        self._port = int(port)
        self._closing = closing
        self._server = _Server(
            uvicorn.Config(
                app,
                http=cast(type[asyncio.Protocol], partial(BoundedProtocol, places=Places())),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=CONNECTIONS_MAX,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=STOP_S,
                h11_max_incomplete_event_size=HEAD_BYTES_MAX,
                ssl_context_factory=None if tls is None else lambda *_: tls.context(),
            )
        )
        self._task: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """ "host:port" with the port in use."""
        return f"{self._host}:{self._port}"

    async def start(self) -> None:
        """Bind and serve. Raises Unavailable when the address cannot be bound."""
        host = self._host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listening = socket.create_server((host, self._port), family=family)
        except OSError as error:
            raise Unavailable(f"cannot listen on {self.address}", subject=self.address) from error
        # Taken over by its connections. Without it the body of an answer waits for the caller to
        # acknowledge the head, which takes 40 ms; asyncio sees to it only for sockets of its own.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # A peer that is gone, or never reads, does not hold what is left to send for ever.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MS_MAX)
        self._port = listening.getsockname()[1]
        self._task = asyncio.create_task(self._server.serve(sockets=[listening]), name="http")
        await self._server.serving.wait()

    async def stop(self) -> None:
        """Take no more connections, let answers end, and cut off those that do not."""
        self._closing.set()
        if self._task is None:
            return
        self._server.should_exit = True
        done, _ = await asyncio.wait({self._task}, timeout=2 * STOP_S)
        if not done:
            await end_task(self._task)
