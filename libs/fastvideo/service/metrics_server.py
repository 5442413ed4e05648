"""uvicorn for scrapers: one request a connection, few connections, no signals of the process."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from fastvideo.rpc.tls import ServerTls

if TYPE_CHECKING:
    from uvicorn._types import ASGIApplication

CONNECTIONS_MAX: Final = 32
HEAD_S_MAX: Final = 5.0
"""From the connection to the end of a request's head."""


def serving(
    application: "ASGIApplication", *, stop_s: int, tls: ServerTls | None = None
) -> uvicorn.Server:
    """A server of the application; answers are to close their connections."""
    return _Server(
        uvicorn.Config(
            application,
            http=_OneRequest,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_graceful_shutdown=stop_s,
            ssl_context_factory=None if tls is None else lambda *_: tls.context(),
        )
    )


class _Server(uvicorn.Server):
    """Leaves the process's signals to the service."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _OneRequest(H11Protocol):
    """Gives a connection a time to ask."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(HEAD_S_MAX, self._close_unasked)

    def _close_unasked(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()
