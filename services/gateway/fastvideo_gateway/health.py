"""Whether the gateway can take requests, and a small HTTP listener that says so.

    GET /health/live    200 while the process answers
    GET /health/ready   200 while the event log answers, else 503; lists the models with a worker

The answers are kept in memory and cost no look-up: they come at once, whatever the workers do.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from fastvideo.errors import Unavailable
from fastvideo.events.store import EventLog
from fastvideo.telemetry.logging import get_logger
from fastvideo_gateway.models import ModelDirectory

_LOG: Final = get_logger(__name__)

CHECK_EVERY_S: Final = 1.0
CHECK_TIMEOUT_S: Final = 3.0
HEADER_BYTES_MAX: Final = 8 * 1024
REQUEST_TIMEOUT_S: Final = 5.0

OnReadiness = Callable[[bool], Awaitable[None]]


@dataclass(slots=True)
class Readiness:
    """What the last check found."""

    ready: bool = False
    # Model id to whether a worker serves it.
    models: Mapping[str, bool] = field(default_factory=dict)


async def keep_checking(
    readiness: Readiness, log: EventLog, models: ModelDirectory, on_change: OnReadiness
) -> None:
    """Check the log and the models for ever, and tell of each change; ends by cancellation."""
    while True:
        ready = await _check(readiness, log, models)
        if ready != readiness.ready:
            _LOG.info("readiness changed", ready=ready)
            readiness.ready = ready
            await on_change(ready)
        await asyncio.sleep(CHECK_EVERY_S)


async def _check(readiness: Readiness, log: EventLog, models: ModelDirectory) -> bool:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            await log.heads()
            statuses = await models.list()
    except (Unavailable, TimeoutError) as error:
        _LOG.warning("the event log does not answer", error=str(error))
        return False
    readiness.models = {status.entry.card.model_id: status.ready for status in statuses}
    return True


class HealthListener:
    """HTTP/1.1 for probes: two paths, no bodies, one request a connection."""

    def __init__(self, listen: str, readiness: Readiness) -> None:
        self._host, _, port = listen.rpartition(":")
        self._port = int(port)
        self._readiness = readiness
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """ "host:port" with the port in use."""
        return f"{self._host}:{self._port}"

    async def start(self) -> None:
        """Bind and serve. Raises Unavailable when the address cannot be bound."""
        try:
            self._server = await asyncio.start_server(
                self._answer, self._host, self._port, limit=HEADER_BYTES_MAX
            )
        except OSError as error:
            raise Unavailable(f"cannot listen on {self.address}", subject=self.address) from error
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Take no more connections."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._response(head.split(b"\r\n", 1)[0].decode("latin-1")))
                await writer.drain()
        except asyncio.LimitOverrunError:
            writer.write(_response("431 Request Header Fields Too Large", {"status": "too large"}))
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            pass  # Whoever asked is gone or too slow; there is nobody to tell.
        finally:
            writer.close()

    def _response(self, request_line: str) -> bytes:
        parts = request_line.split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            return _response("400 Bad Request", {"status": "bad request"})
        method, path = parts[0], parts[1].partition("?")[0]
        if path not in ("/health/live", "/health/ready"):
            return _response("404 Not Found", {"status": "not found"})
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", {"status": "method not allowed"})
        body = method == "GET"
        if path == "/health/live":
            return _response("200 OK", {"status": "live"}, body)
        record = {
            "status": "ready" if self._readiness.ready else "not ready",
            "models": dict(self._readiness.models),
        }
        line = "200 OK" if self._readiness.ready else "503 Service Unavailable"
        return _response(line, record, body)


def _response(line: str, record: Mapping[str, object], with_body: bool = True) -> bytes:
    body = json.dumps(record).encode()
    head = (
        f"HTTP/1.1 {line}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")
