"""uvicorn inside the gateway's own event loop: bounded, and stopped with the gateway."""

import asyncio
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from fastvideo.errors import Unavailable
from fastvideo.service import end_task

HEAD_BYTES_MAX: Final = 16 * 1024
# From the connection, or from the first byte of a later request, to the end of the head.
HEAD_TIMEOUT_S: Final = 5.0
KEEP_ALIVE_S: Final = 15
# Room for every stream there may be, and for those who only ask.
CONNECTIONS_MAX: Final = 2_048
# What still answers then is cut off.
STOP_S: Final = 3


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 that gives a head a time, and says what is wrong with one that is none."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        if self._head_timer is None and not self._is_answering():
            self._expect_head()
        super().data_received(data)
        if self._is_answering():
            self._forget_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Called while a RemoteProtocolError is handled, which knows the status: 400 or 431."""
        error = sys.exc_info()[1]
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        body = b'{"error":{"reason":"BAD_REQUEST","message":"not an HTTP request","field":""}}'
        headers = [("content-type", "application/json"), ("connection", "close")]
        for event in (
            h11.Response(status_code=status, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._head_is_late)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.close()


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

    `closing` is set first when it stops, so that streams without an end can end themselves.
    """

    def __init__(self, listen: str, app: ASGIApp, closing: asyncio.Event) -> None:
        self._host, _, port = listen.rpartition(":")
        self._port = int(port)
        self._closing = closing
        self._server = _Server(
            uvicorn.Config(
                app,
                http=BoundedProtocol,
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
