"""Callers who leave in the middle, who do not listen, and who speak something else."""

import asyncio
import contextlib
import gc
import http.client
import json
import os
import resource
import struct
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import grpc
import psutil
import pytest

from fastvideo.api.artifacts.v1 import artifacts_pb2, artifacts_pb2_grpc
from fastvideo.api.common.v1 import artifact_pb2
from fastvideo.rpc.channel import MESSAGE_BYTES_MAX, open_channel
from fastvideo.rpc.errors import from_rpc_error
from fastvideo_gateway.http.openapi.table import OPERATIONS
from tests.fuzz import hostile
from tests.fuzz.places import Place
from tests.plugins.http import call
from tests.plugins.waiting import eventually

ROUNDS = 2
HEAD = "Host: localhost\r\nContent-Type: application/json\r\n"
BODY = json.dumps({"prompt": "a red three", "kind": "state"}).encode()
SUBMIT = "/fastvideo.gateway.v1.GatewayService/SubmitRequest"


async def open_http(place: Place) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = place.world.gateway.http_address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def lives(place: Place) -> None:
    assert (await call(place.world.gateway.http_address, "/health/live")).status == 200


def asked(name: str, video_id: str) -> bytes:
    method, _, path = name.partition(" ")
    for parameter in ("video_id", "request_id"):
        path = path.replace(f"{{{parameter}}}", video_id)
    path = path.replace("{version:int}", "1").replace("{partition:int}", "0")
    path = path.replace("{offset:int}", "1").replace("{artifact_id}", "art_1")
    path = path.replace("{model_id:path}", "moving-digits")
    body = BODY if method == "POST" else b""
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\n{HEAD}{length}\r\n".encode() + body


async def leave(place: Place, data: bytes, reads: int) -> None:
    """Send that much, read that much, and break the connection off."""
    reader, writer = await open_http(place)
    writer.write(data)
    with contextlib.suppress(ConnectionError):
        await writer.drain()
        if reads:
            async with asyncio.timeout(30):
                await reader.read(reads)
    writer.transport.abort()


def files_of(process: psutil.Process, dsn: str) -> int:
    """Its open files; of connections to the database, pools open as many as they need."""
    port = urlsplit(dsn).port
    others = [one for one in process.net_connections("tcp") if one.raddr and one.raddr.port == port]
    return process.num_fds() - len(others)


async def test_callers_who_leave_in_the_middle_of_any_route_leave_nothing(
    working_place: Place, postgres_dsn: str
) -> None:
    place, this = working_place, psutil.Process()
    video_id = await place.world.submit()

    async def round_of_all() -> None:
        for name in OPERATIONS:
            whole = asked(name, video_id)
            cut = len(whole) - len(BODY) // 2 if whole.endswith(BODY) else len(whole) - 2
            # In the head, in the body or before its end, at the end, and in the answer.
            for sent, reads in ((20, 0), (cut, 0), (len(whole), 0), (len(whole), 1)):
                await leave(place, whole[:sent], reads)

    await round_of_all()
    await asyncio.sleep(0)
    tasks, files = len(asyncio.all_tasks()), files_of(this, postgres_dsn)
    for _ in range(ROUNDS):
        await round_of_all()

    async def as_before() -> bool:
        gc.collect()
        return len(asyncio.all_tasks()) <= tasks and files_of(this, postgres_dsn) <= files

    await eventually(as_before, timeout_s=60, every_s=0.1)
    await lives(place)


@pytest.mark.slow
async def test_two_thousand_connections_that_say_nothing_are_let_go(place: Place) -> None:
    this = psutil.Process()
    await lives(place)
    files = this.num_fds()
    # Each is open on both sides here.
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(2_000, (soft - files - 200) // 2)
    opened = [await open_http(place) for _ in range(count)]

    async def answers() -> bool:
        try:
            await lives(place)
        except (OSError, http.client.HTTPException):
            return False
        return True

    # All come from one address, which may not have so many: those that say nothing go first.
    await eventually(answers, timeout_s=60, every_s=0.1)
    for _, writer in opened:
        writer.transport.abort()

    async def as_before() -> bool:
        return this.num_fds() <= files + 10

    await eventually(as_before, timeout_s=60, every_s=0.1)
    await lives(place)


@pytest.mark.slow
async def test_a_caller_who_asks_on_and_on_and_never_reads_costs_little(place: Place) -> None:
    """A hundred documents of 100 kB each, asked for at once on each of twenty connections."""
    this = psutil.Process()
    await lives(place)
    before = this.memory_info().rss
    ask = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100
    opened = [await open_http(place) for _ in range(20)]
    for reader, writer in opened:
        # Neither does this side take more than a little.
        reader._limit = 1_024  # type: ignore[attr-defined]
        writer.write(ask)
    for _ in range(10):
        await lives(place)
    # All of the answers would be 200 MB.
    assert this.memory_info().rss - before < 100 * 2**20
    for _, writer in opened:
        writer.transport.abort()
    await lives(place)


async def test_whoever_speaks_something_else_is_not_heard(place: Place) -> None:
    """HTTP/1, TLS and noise on gRPC's port; HTTP/2 and TLS on HTTP's."""
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(505)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)
    plain = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    gateway = place.world.gateway
    for address in (gateway.http_address, gateway.address, place.artifacts, place.sessions):
        host, _, port = address.rpartition(":")
        for said in (hello, preface, plain, os.urandom(5_000), b"\0" * 10_000):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(said)
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(0.2):
                    await reader.read(100)
            writer.transport.abort()
    await lives(place)
    assert await place.world.submit()


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream)
    return head + payload


def field(name: str, value: str) -> bytes:
    """A header as HPACK writes one that is in no table."""
    return b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()


async def test_streams_that_are_reset_at_once_and_floods_of_frames_are_survived(
    place: Place,
) -> None:
    head = b"".join(
        field(*pair)
        for pair in (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", SUBMIT),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        )
    )
    cancel = struct.pack(">I", 8)
    more = frame(9, 0, 1, field("a", "b" * 100))
    floods: tuple[Callable[[int], bytes], ...] = (
        # A call that is taken back at once.
        lambda i: frame(1, 4, 2 * i + 1, head) + frame(3, 0, 2 * i + 1, cancel),
        # Pings, settings, empty data, and a head that does not end.
        lambda i: frame(6, 0, 0, struct.pack(">Q", i)),
        lambda i: frame(4, 0, 0, b""),
        lambda i: frame(0, 0, 1, b""),
        lambda i: more if i else frame(1, 0, 1, head),
    )
    host, _, port = place.world.gateway.address.rpartition(":")
    for flood in floods:
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
        with contextlib.suppress(ConnectionError):
            for start in range(0, 10_000, 500):
                writer.write(b"".join(flood(i) for i in range(start, start + 500)))
                await writer.drain()
        writer.transport.abort()
        assert await place.world.submit()
    await lives(place)


@pytest.mark.slow
async def test_a_message_that_swells_when_it_is_unpacked_is_refused_small(place: Place) -> None:
    """Two hundred megabytes of zeros are two hundred kilobytes on the wire."""
    this = psutil.Process()
    bomb = b"\x0a" + b"\x80\x80\x80\x64" + bytes(200 * 2**20)
    before = this.memory_info().rss
    options = [("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(place.world.gateway.address, options=options) as channel:
        make: Any = channel.unary_unary(SUBMIT)
        for _ in range(3):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await make(bomb, compression=grpc.Compression.Gzip, timeout=60)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    # The caller's own bytes are in this process, too.
    assert this.memory_info().rss - before < 2 * len(bomb) + 4 * MESSAGE_BYTES_MAX
    assert await place.world.submit()


async def test_latents_whose_header_is_a_pit_are_refused_by_name(place: Place) -> None:
    pit = b"[" * 100_000
    header = artifacts_pb2.PutArtifactHeader(kind=artifact_pb2.ARTIFACT_KIND_LATENT)
    sent = (
        artifacts_pb2.PutArtifactRequest(header=header),
        artifacts_pb2.PutArtifactRequest(chunk=len(pit).to_bytes(8, "little") + pit),
    )
    async with open_channel(place.world.gateway.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await artifacts_pb2_grpc.ArtifactServiceStub(channel).PutArtifact(iter(sent))
    error = from_rpc_error(caught.value)
    assert (error.reason, error.subject) == ("INVALID_LATENTS", "chunk")


async def test_any_text_is_kept_as_it_is_or_refused_by_name(place: Place) -> None:
    address = place.world.gateway.http_address
    headers = {"Content-Type": "application/json"}

    async def create(**fields: Any) -> Any:
        body = json.dumps(fields).encode()
        return await call(address, "/v1/videos", method="POST", headers=headers, body=body)

    kept = 0
    for text in hostile.TEXTS:
        answer = await create(prompt=text)
        if answer.status == 400:
            assert answer.error["param"] == "prompt", text
            continue
        kept += 1
        found = await call(address, f"/v1/videos/{answer.json['id']}")
        assert found.json["prompt"] == answer.json["prompt"] == text
        named = await create(prompt="a red three", model=text)
        assert (named.status, named.error["param"]) in ((404, "model"), (400, "model"))
    assert kept > 10
