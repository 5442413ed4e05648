"""The peer of the gateway's doors: a program that answers the same bytes and does nothing else.

    python bare_doors.py HTTP_PORT GRPC_PORT ANSWER_BYTES

`GET /echo` and `/bare/Echo` answer at once; `GET /stream` and `/bare/Stream` send one event when
they begin and one more to all streams at each `POST /tell`.
"""

import asyncio
import sys
from collections.abc import AsyncIterator

import grpc
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route


class Bare:
    """Answers of a fixed size."""

    def __init__(self, answer_bytes: int) -> None:
        self._answer = b"x" * answer_bytes
        self._json = b'{"a":"' + b"x" * max(answer_bytes - 8, 0) + b'"}'
        self._event = b"id: 1\nevent: e\ndata: " + self._json + b"\n\n"
        self._streams: set[asyncio.Queue[object]] = set()

    async def _told(self) -> AsyncIterator[object]:
        queue: asyncio.Queue[object] = asyncio.Queue()
        self._streams.add(queue)
        try:
            yield None
            while True:
                yield await queue.get()
        finally:
            self._streams.discard(queue)

    def http_app(self) -> Starlette:
        """The HTTP door."""

        async def echo(_: Request) -> Response:
            return Response(self._json, media_type="application/json")

        async def events() -> AsyncIterator[bytes]:
            async for _ in self._told():
                yield self._event

        async def stream(_: Request) -> Response:
            return StreamingResponse(events(), media_type="text/event-stream")

        async def tell(_: Request) -> Response:
            for queue in self._streams:
                queue.put_nowait(None)
            return Response(b"")

        return Starlette(
            routes=[
                Route("/echo", echo),
                Route("/stream", stream),
                Route("/tell", tell, methods=["POST"]),
            ]
        )

    def grpc_handler(self) -> grpc.GenericRpcHandler:
        """The gRPC door."""

        async def echo(_: bytes, context: object) -> bytes:
            return self._answer

        async def stream(_: bytes, context: object) -> AsyncIterator[bytes]:
            async for __ in self._told():
                yield self._answer

        return grpc.method_handlers_generic_handler(
            "bare",
            {
                "Echo": grpc.unary_unary_rpc_method_handler(echo),
                "Stream": grpc.unary_stream_rpc_method_handler(stream),
            },
        )


async def serve(http_port: int, grpc_port: int, answer_bytes: int) -> None:
    """Serve both until the process is ended."""
    bare = Bare(answer_bytes)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([bare.grpc_handler()])
    server.add_insecure_port(f"127.0.0.1:{grpc_port}")
    await server.start()
    config = uvicorn.Config(
        bare.http_app(),
        port=http_port,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    await uvicorn.Server(config).serve()
    await server.stop(0)


if __name__ == "__main__":
    asyncio.run(serve(*map(int, sys.argv[1:4])))
