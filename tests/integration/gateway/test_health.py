"""Health over HTTP and gRPC, and a gateway whose database goes away and comes back."""

import asyncio
import json
import time
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.events.migrate import upgrade
from fastvideo.requests.events import RequestCompleted, RequestStarted
from fastvideo.requests.types import RequestMetrics
from fastvideo.rpc.channel import open_channel
from fastvideo.version import program_version
from tests.integration.gateway.worlds import MODEL, World, gateway_config, world_of
from tests.plugins.servers import PostgresServer
from tests.plugins.waiting import eventually

DONE = RequestCompleted(metrics=RequestMetrics())


async def exchange(address: str, data: bytes) -> tuple[int, bytes]:
    """The status and body that some bytes are answered with; status 0 for no answer."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    answer = await asyncio.wait_for(reader.read(), 30.0)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return (int(head.split()[1]) if head else 0), body


async def get(address: str, path: str, method: str = "GET") -> tuple[int, bytes]:
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    return await exchange(address, head.encode())


async def test_health_is_answered_and_the_rest_refused(world: World) -> None:
    address = world.gateway.http_address

    async def ready() -> bool:
        return (await get(address, "/health/ready"))[0] == 200

    await eventually(ready)
    status, body = await get(address, "/health/ready")
    assert json.loads(body) == {
        "status": "ready",
        "version": program_version(),
        "models": {MODEL: False, "wan2.1-t2v-1.3b": False},
        "quotas": "local",
    }
    status, body = await get(address, "/health/live")
    assert json.loads(body) == {"status": "live", "version": program_version()}
    assert await get(address, "/health/live?probe=1", "HEAD") == (200, b"")
    assert (await get(address, f"/health/ready?model={MODEL}"))[0] == 503
    assert (await get(address, "/health/ready?model=nobodys"))[0] == 404
    assert (await get(address, f"/health/ready?modle={MODEL}"))[0] == 400
    assert (await get(address, "/health/nothing"))[0] == 404
    assert (await get(address, "/api/nothing"))[0] == 421
    assert (await get(address, "/health/live", "POST"))[0] == 405
    assert (await exchange(address, b"nonsense\r\n\r\n"))[0] == 400
    assert (await exchange(address, b"GET / HTTP/1.1\r\n" + b"a" * 20_000))[0] == 431
    assert status == 200


async def test_health_answers_within_its_bound_while_the_gateway_is_busy(world: World) -> None:
    busy = asyncio.gather(*(world.submit() for _ in range(200)))
    slowest = 0.0
    while not busy.done():
        began = time.monotonic()
        assert (await get(world.gateway.http_address, "/health/live"))[0] == 200
        slowest = max(slowest, time.monotonic() - began)
    await busy
    assert slowest < 10.0


async def grpc_health(address: str) -> int:
    async with open_channel(address) as channel:
        # The library's stubs for type checkers know only its blocking side.
        stub: Any = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest())
        return int(answer.status)


@pytest.mark.slow
async def test_a_gateway_outlives_its_database(own_postgres: PostgresServer) -> None:
    await asyncio.to_thread(own_postgres.start)
    await upgrade(own_postgres.dsn())
    async with world_of(gateway_config(own_postgres.dsn())) as world:
        http, rpc = world.gateway.http_address, world.gateway.address

        async def serves() -> bool:
            status = health_pb2.HealthCheckResponse.SERVING
            return (await get(http, "/health/ready"))[0] == 200 and await grpc_health(rpc) == status

        async def is_down() -> bool:
            status = health_pb2.HealthCheckResponse.NOT_SERVING
            return (await get(http, "/health/ready"))[0] == 503 and await grpc_health(rpc) == status

        await eventually(serves)
        request_id = await world.submit()
        own_postgres.process.kill()
        await eventually(is_down)
        assert (await get(http, "/health/live"))[0] == 200
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await world.submit()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE

        await asyncio.to_thread(own_postgres.start)
        await eventually(serves)
        again = await world.submit()
        await world.schedule(request_id, RequestStarted(attempt=1), DONE)
        watch = world.stub.WatchRequest(
            gateway_pb2.WatchRequestRequest(request_id=request_id), timeout=60.0
        )
        assert [response.sequence async for response in watch] == [1, 2, 3]
        page = await world.stub.ListRequests(gateway_pb2.ListRequestsRequest())
        assert [state.spec.request_id for state in page.states] == [again, request_id]
