"""Clients of the doors, in a process of their own, so that they take no time of who measures.

    echo '{"action": "read", "door": ...}' | python door_clients.py

`read` asks again and again on some connections for some seconds, and prints what it got.
`queue` posts videos one after another, asks for the last of them and for the list a few times,
and prints the seconds that each took.
`watch` opens streams, prints a line once each has its first event, and then a line for each
round: the moments (CLOCK_MONOTONIC) at which each stream had its next event.
"""

import asyncio
import base64
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import grpc

# An event that is not delivered ends the benchmark.
ROUND_S_MAX = 50.0
OPENING_AT_ONCE = 32
STREAMS_PER_CHANNEL = 250
_OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)
_ID = b"\nid: "


@dataclass(frozen=True)
class Door:
    """What is asked, and where: a path over HTTP, or a method with its message over gRPC."""

    kind: str
    address: str
    # One for each client; each is a path, or a message in base64.
    asked: Sequence[str]
    method: str = ""


# -- reads -------------------------------------------------------------------------------


async def read(door: Door, clients: int, seconds: float) -> dict[str, object]:
    """Closed loops: each client asks again once it has its answer."""
    latencies: list[float] = []
    async with AsyncExitStack() as stack:
        asks = [await _asker(stack, door, number) for number in range(clients)]
        for ask in asks:
            await ask()
        end = time.monotonic() + seconds

        async def loop(ask: Callable[[], Awaitable[None]]) -> None:
            while (begun := time.monotonic()) < end:
                await ask()
                latencies.append(time.monotonic() - begun)

        begun = time.monotonic()
        await asyncio.gather(*map(loop, asks))
        taken = time.monotonic() - begun
    return {"seconds": taken, "latencies": latencies}


async def _asker(stack: AsyncExitStack, door: Door, number: int) -> Callable[[], Awaitable[None]]:
    asked = door.asked[number % len(door.asked)]
    if door.kind == "http":
        host, _, port = door.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        stack.callback(writer.close)
        head = f"GET {asked} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()

        async def ask() -> None:
            writer.write(head)
            answer = await reader.readuntil(b"\r\n\r\n")
            if not answer.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(answer.decode())
            await reader.readexactly(_length_of(answer))

        return ask
    channel = await stack.enter_async_context(
        grpc.aio.insecure_channel(door.address, options=_OWN_CONNECTION)
    )
    call: Any = channel.unary_unary(door.method)
    message = base64.b64decode(asked)

    async def ask_grpc() -> None:
        await call(message)

    return ask_grpc


def _length_of(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    raise RuntimeError(f"no length: {head!r}")


async def queue(address: str, body: str, count: int, samples: int) -> dict[str, list[float]]:
    """Seconds of each post, of the last `samples` ones' reads and of as many lists."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))

    async def call(head: str, body: str = "") -> tuple[float, bytes]:
        begun = time.monotonic()
        head += " HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        told = await reader.readexactly(_length_of(answer))
        if not answer.startswith(b"HTTP/1.1 2"):
            raise RuntimeError((answer + told).decode())
        return time.monotonic() - begun, told

    posted = [await call("POST /v1/videos", body) for _ in range(count)]
    newest = json.loads(posted[-1][1])["id"]
    got = [await call(f"GET /v1/videos/{newest}") for _ in range(samples)]
    listed = [await call("GET /v1/videos?limit=20") for _ in range(samples)]
    writer.close()
    calls = {"post": posted[-samples:], "get": got, "list": listed}
    return {name: [seconds for seconds, _ in taken] for name, taken in calls.items()}


# -- watches -----------------------------------------------------------------------------


class Rounds:
    """When each of the streams had its next event."""

    def __init__(self, streams: int) -> None:
        self._streams = streams
        self._moments: list[float] = []
        self._complete = asyncio.Event()

    def got(self, count: int) -> None:
        """A stream has had so many events."""
        self._moments += [time.monotonic()] * count
        if len(self._moments) >= self._streams:
            self._complete.set()

    async def next(self) -> list[float]:
        """The moments of a round, once each stream has had its event."""
        async with asyncio.timeout(ROUND_S_MAX):
            await self._complete.wait()
        moments, self._moments = self._moments, []
        self._complete.clear()
        return moments


class _SseStream(asyncio.Protocol):
    """Counts the events of one stream."""

    def __init__(self, path: str, got: Callable[[int], None]) -> None:
        self._path = path
        self._got = got
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(f"GET {self._path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        if not self._rest and not data.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(data.decode())
        joined = self._rest + data
        self._rest = joined[-len(_ID) + 1 :]
        if found := joined.count(_ID):
            self._got(found)


async def watch(door: Door, streams: int) -> None:
    """Open the streams and tell of each round, until the process is ended."""
    rounds = Rounds(streams)
    async with AsyncExitStack() as stack:
        if door.kind == "http":
            await _open_sse(stack, door, streams, rounds.got)
        else:
            await _open_grpc(stack, door, streams, rounds.got)
        while True:
            sys.stdout.write(json.dumps(await rounds.next()) + "\n")
            sys.stdout.flush()


async def _open_sse(
    stack: AsyncExitStack, door: Door, streams: int, got: Callable[[int], None]
) -> None:
    host, _, port = door.address.rpartition(":")
    loop, opening = asyncio.get_running_loop(), asyncio.Semaphore(OPENING_AT_ONCE)

    async def one(path: str) -> None:
        first = asyncio.Event()

        def counted(count: int) -> None:
            first.set()
            got(count)

        async with opening:
            made, _ = await loop.create_connection(
                lambda: _SseStream(path, counted), host, int(port)
            )
            stack.callback(made.close)
            await first.wait()

    await asyncio.gather(*(one(door.asked[n % len(door.asked)]) for n in range(streams)))


async def _open_grpc(
    stack: AsyncExitStack, door: Door, streams: int, got: Callable[[int], None]
) -> None:
    calls: list[Any] = []
    for _ in range(-(-streams // STREAMS_PER_CHANNEL)):
        channel = await stack.enter_async_context(
            grpc.aio.insecure_channel(door.address, options=_OWN_CONNECTION)
        )
        calls.append(channel.unary_stream(door.method))

    async def follow(number: int) -> None:
        message = base64.b64decode(door.asked[number % len(door.asked)])
        async for _ in calls[number % len(calls)](message):
            got(1)

    for number in range(streams):
        following = asyncio.create_task(follow(number))
        stack.callback(following.cancel)


async def main(asked: dict[str, Any]) -> None:
    """Do what the argument says."""
    door = Door(**asked.pop("door"))
    match asked.pop("action"):
        case "watch":
            await watch(door, **asked)
        case "queue":
            sys.stdout.write(json.dumps(await queue(door.address, **asked)) + "\n")
        case _:
            sys.stdout.write(json.dumps(await read(door, **asked)) + "\n")


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.stdin.readline())))
