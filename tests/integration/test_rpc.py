"""Servers, channels, typed errors and traces over a real socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from fastvideo import errors
from fastvideo.api.artifacts.v1 import artifacts_pb2, artifacts_pb2_grpc
from fastvideo.api.worker.v1 import worker_pb2, worker_pb2_grpc
from fastvideo.rpc.channel import open_channel
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.rpc.server import Server, Service

ARTIFACTS = "fastvideo.artifacts.v1.ArtifactService"
DEADLINE_S = 60.0


class Artifacts(artifacts_pb2_grpc.ArtifactServiceServicer):
    """Fails as the artifact id says, so that each kind of call shows each kind of error."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.unwound = asyncio.Event()
        self.released = asyncio.Event()

    async def StatArtifact(self, request: Any, context: Any) -> Any:
        await self._act(request.artifact_id)
        return artifacts_pb2.StatArtifactResponse()

    async def PutArtifact(self, request_iterator: Any, context: Any) -> Any:
        async for message in request_iterator:
            if message.HasField("header"):
                await self._act(message.header.artifact_id)
        return artifacts_pb2.PutArtifactResponse()

    async def GetArtifact(self, request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            yield artifacts_pb2.GetArtifactResponse(chunk=b"first")
            await self._act(request.artifact_id)
            while request.artifact_id == "endless":
                yield artifacts_pb2.GetArtifactResponse(chunk=b"more")
                await asyncio.sleep(0)
        finally:
            self.unwound.set()

    async def _act(self, artifact_id: str) -> None:
        if artifact_id == "missing":
            raise errors.NotFound("no artifact missing", subject="missing")
        if artifact_id == "odd":
            raise errors.InvalidField("artifact_id", "odd", "even ids")
        if artifact_id == "bug":
            raise KeyError("hunter2")
        if artifact_id == "slow":
            self.started.set()
            await self.released.wait()


class Worker(worker_pb2_grpc.WorkerServiceServicer):
    """Answers the first message of an Attach and refuses the second."""

    async def Attach(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        seen = 0
        async for _ in request_iterator:
            seen += 1
            if seen == 2:
                raise errors.Fenced("epoch 1 is over", attributes={"epoch": "2"})
            yield worker_pb2.AttachResponse()


class World:
    """A server and a channel to it."""

    def __init__(self, server: Server, channel: grpc.aio.Channel, artifacts: Artifacts) -> None:
        self.server = server
        self.channel = channel
        self.artifacts = artifacts
        # The libraries' stubs for type checkers know only their blocking sides.
        self.stub: Any = artifacts_pb2_grpc.ArtifactServiceStub(channel)
        self.health: Any = health_pb2_grpc.HealthStub(channel)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    artifacts = Artifacts()
    services = [
        Service.of(
            artifacts_pb2.DESCRIPTOR,
            "ArtifactService",
            artifacts_pb2_grpc.add_ArtifactServiceServicer_to_server,
            artifacts,
        ),
        Service.of(
            worker_pb2.DESCRIPTOR,
            "WorkerService",
            worker_pb2_grpc.add_WorkerServiceServicer_to_server,
            Worker(),
        ),
    ]
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(Server("127.0.0.1:0", services, grace_s=1.0))
        channel = await stack.enter_async_context(open_channel(server.address))
        yield World(server, channel, artifacts)


def stat(artifact_id: str) -> artifacts_pb2.StatArtifactRequest:
    return artifacts_pb2.StatArtifactRequest(artifact_id=artifact_id)


async def header(artifact_id: str) -> AsyncIterator[artifacts_pb2.PutArtifactRequest]:
    yield artifacts_pb2.PutArtifactRequest(
        header=artifacts_pb2.PutArtifactHeader(artifact_id=artifact_id)
    )


async def test_a_typed_error_crosses_a_unary_call(world: World) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await world.stub.StatArtifact(stat("odd"), timeout=DEADLINE_S)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    error = from_rpc_error(caught.value)
    assert isinstance(error, errors.InvalidField)
    assert error.field == "artifact_id"
    assert error.allowed == "even ids"


async def test_a_typed_error_crosses_a_client_stream(world: World) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await world.stub.PutArtifact(header("missing"), timeout=DEADLINE_S)
    error = from_rpc_error(caught.value)
    assert type(error) is errors.NotFound
    assert error.subject == "missing"


async def test_a_typed_error_ends_a_server_stream_after_what_was_sent(world: World) -> None:
    call = world.stub.GetArtifact(
        artifacts_pb2.GetArtifactRequest(artifact_id="missing"), timeout=DEADLINE_S
    )
    assert (await call.read()).chunk == b"first"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert type(from_rpc_error(caught.value)) is errors.NotFound


async def test_a_typed_error_ends_a_bidirectional_stream(world: World) -> None:
    call = worker_pb2_grpc.WorkerServiceStub(world.channel).Attach(timeout=DEADLINE_S)
    await call.write(worker_pb2.AttachRequest())
    assert await call.read() == worker_pb2.AttachResponse()
    await call.write(worker_pb2.AttachRequest())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    error = from_rpc_error(caught.value)
    assert type(error) is errors.Fenced
    assert error.attributes == {"epoch": "2"}


@pytest.mark.parametrize("garbage", [b"\xff", b"\x0a\x7fx"])
@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("unary_unary", f"/{ARTIFACTS}/StatArtifact"),
        ("unary_stream", f"/{ARTIFACTS}/GetArtifact"),
        ("stream_unary", f"/{ARTIFACTS}/PutArtifact"),
        ("stream_stream", "/fastvideo.worker.v1.WorkerService/Attach"),
    ],
)
async def test_bytes_that_are_no_message_are_bad_input(
    world: World, caplog: pytest.LogCaptureFixture, kind: str, method: str, garbage: bytes
) -> None:
    call = getattr(world.channel, kind)(method)
    sent = iter([garbage]) if kind.startswith("stream") else garbage
    running = call(sent, timeout=DEADLINE_S)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await (running.read() if kind.endswith("stream") else running)
    error = from_rpc_error(caught.value)
    assert isinstance(error, errors.InvalidField)
    assert error.reason == "MESSAGE_MALFORMED"
    assert "DecodeError" not in repr(caught.value)
    assert "rpc failed" not in caplog.text


async def test_a_bug_is_internal_and_logged_but_not_told(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await world.stub.StatArtifact(stat("bug"), timeout=DEADLINE_S)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "hunter2" not in repr(caught.value)
    assert from_rpc_error(caught.value).reason == "INTERNAL"
    assert "rpc failed" in caplog.text


async def test_a_cancelled_stream_unwinds_the_handler(world: World) -> None:
    call = world.stub.GetArtifact(
        artifacts_pb2.GetArtifactRequest(artifact_id="endless"), timeout=DEADLINE_S
    )
    assert (await call.read()).chunk == b"first"
    call.cancel()
    await asyncio.wait_for(world.artifacts.unwound.wait(), DEADLINE_S)


async def test_a_call_past_its_deadline_is_deadline_exceeded(world: World) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await world.stub.StatArtifact(stat("slow"), timeout=0.05)
    assert type(from_rpc_error(caught.value)) is errors.DeadlineExceeded


async def test_a_server_that_is_not_there_is_unavailable(world: World) -> None:
    address = world.server.address
    await world.server.stop()
    async with open_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await artifacts_pb2_grpc.ArtifactServiceStub(channel).StatArtifact(
                stat("any"), timeout=DEADLINE_S
            )
    assert type(from_rpc_error(caught.value)) is errors.Unavailable


async def test_a_channel_finds_a_server_that_comes_back(world: World) -> None:
    listen = world.server.address
    await world.stub.StatArtifact(stat("any"), timeout=DEADLINE_S)
    await world.server.stop()
    service = Service.of(
        artifacts_pb2.DESCRIPTOR,
        "ArtifactService",
        artifacts_pb2_grpc.add_ArtifactServiceServicer_to_server,
        Artifacts(),
    )
    async with Server(listen, [service]):
        await world.stub.StatArtifact(stat("any"), timeout=DEADLINE_S, wait_for_ready=True)


async def test_health_follows_readiness(world: World) -> None:
    async def status(name: str) -> int:
        request = health_pb2.HealthCheckRequest(service=name)
        return (await world.health.Check(request, timeout=DEADLINE_S)).status

    assert await status("") == health_pb2.HealthCheckResponse.SERVING
    assert await status(ARTIFACTS) == health_pb2.HealthCheckResponse.SERVING
    await world.server.set_ready(False)
    assert await status("") == health_pb2.HealthCheckResponse.NOT_SERVING
    assert await status(ARTIFACTS) == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_stop_lets_a_running_call_finish(world: World) -> None:
    call = asyncio.ensure_future(world.stub.StatArtifact(stat("slow"), timeout=DEADLINE_S))
    await asyncio.wait_for(world.artifacts.started.wait(), DEADLINE_S)
    stopping = asyncio.ensure_future(world.server.stop(grace_s=DEADLINE_S))
    world.artifacts.released.set()
    await call
    await asyncio.wait_for(stopping, DEADLINE_S)


async def test_reflection_lists_every_service(world: World) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(world.channel)  # type: ignore[arg-type]

    async def requests() -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")

    names = set()
    async for answer in stub.ServerReflectionInfo(requests(), timeout=DEADLINE_S):
        names |= {service.name for service in answer.list_services_response.service}
    assert {ARTIFACTS, "fastvideo.worker.v1.WorkerService", "grpc.health.v1.Health"} <= names


async def test_a_port_in_use_is_a_typed_error(world: World) -> None:
    with pytest.raises(errors.Unavailable, match="cannot listen"):
        await Server(world.server.address, []).start()
