"""A TCP proxy between a client and a server, for what networks do."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Proxy:
    """Forwards to `127.0.0.1:port` until it is told to fail. Make it with `proxy_to`.

    While `holds` nothing is forwarded in either direction and nothing is closed: a connection
    half open. While `swallows_answers` the server hears everything and the client nothing.
    """

    def __init__(self, port: int) -> None:
        self.port = 0
        self._target = port
        self._flows = asyncio.Event()
        self._flows.set()
        self._answers = asyncio.Event()
        self._answers.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        # Bytes that servers sent while answers were swallowed.
        self.swallowed_bytes = 0

    def hold(self) -> None:
        """Forward nothing more, and close nothing."""
        self._flows.clear()

    def swallow_answers(self) -> None:
        """Forward nothing more to clients."""
        self._answers.clear()

    def cut(self) -> None:
        """Close every connection at once."""
        for writer in self._writers:
            writer.transport.abort()

    def heal(self) -> None:
        """Forward again. What was held back before is lost with its connection."""
        self.cut()
        self._flows.set()
        self._answers.set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client."""
        try:
            upstream_reader, upstream = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, upstream}
        for work in (
            self._copy(reader, upstream, answers=False),
            self._copy(upstream_reader, writer, answers=True),
        ):
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _copy(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                await self._flows.wait()
                if answers and not self._answers.is_set():
                    self.swallowed_bytes += len(data)
                    continue
                target.write(data)
                await target.drain()
        target.transport.abort()
        self._writers.discard(target)

    async def stop(self) -> None:
        """Close everything."""
        self.cut()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def proxy_to(port: int) -> AsyncIterator[Proxy]:
    """A proxy to a port of loopback; its own is `port`."""
    proxy = Proxy(port)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.stop()
