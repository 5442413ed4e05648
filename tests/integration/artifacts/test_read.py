"""Reading artifacts: whole, in ranges, by request, after a restart, from other stores."""

import hashlib
import shutil
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from fastvideo.api.artifacts.v1 import artifacts_pb2
from fastvideo.errors import FailedPrecondition, InvalidField, NotFound
from fastvideo.rpc.channel import open_channel
from fastvideo.rpc.errors import from_rpc_error
from tests.integration.artifacts.worlds import REQUEST_ID, World, header_of, world_of

DATA = hashlib.shake_256(b"artifact").digest(700_001)
DIGEST = hashlib.sha256(DATA).hexdigest()
ID = header_of().artifact_id


def make_bucket(url: str) -> None:
    """A PUT of its name makes a bucket."""
    urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=60).close()


def bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


async def test_what_was_put_comes_back(world: World) -> None:
    await world.accept()
    put = await world.put(header_of(), DATA)
    record, data = await world.get(ID)
    assert record == put
    assert data == DATA


@pytest.mark.parametrize(
    ("start", "stop"),
    [(0, 1), (0, 700_001), (699_999, 0), (700_001, 0), (123_456, 567_890), (5, 5)],
)
async def test_a_range_gives_exactly_its_bytes(world: World, start: int, stop: int) -> None:
    await world.accept()
    await world.put(header_of(), DATA)
    record, data = await world.get(ID, start, stop)
    assert record.digest == DIGEST
    assert data == DATA[start : stop or None]


@pytest.mark.parametrize(
    ("start", "stop", "field"),
    [(700_002, 0, "start"), (0, 700_002, "stop"), (10, 9, "stop")],
)
async def test_a_range_outside_is_refused_by_name(
    world: World, start: int, stop: int, field: str
) -> None:
    await world.accept()
    await world.put(header_of(), DATA)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await world.get(ID, start, stop)
    error = from_rpc_error(caught.value)
    assert isinstance(error, InvalidField)
    assert error.field == field


async def test_what_does_not_exist_is_not_found(world: World) -> None:
    calls: list[Any] = [
        world.get("art_none"),
        world.stub.StatArtifact(artifacts_pb2.StatArtifactRequest(artifact_id="art_none")),
        world.stub.ListArtifacts(artifacts_pb2.ListArtifactsRequest(request_id="req_none")),
    ]
    for call in calls:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert isinstance(from_rpc_error(caught.value), NotFound)


@pytest.mark.row("REQ-06")
async def test_a_request_s_artifacts_are_listed_in_pages(world: World) -> None:
    await world.accept()
    await world.accept("req_2")
    put = [await world.put(header_of(output=f"out-{i}"), DATA[i:]) for i in range(5)]
    await world.put(header_of(request_id="req_2"), DATA)
    found: list[Any] = []
    token, pages = "", 0
    while True:
        page = await world.stub.ListArtifacts(
            artifacts_pb2.ListArtifactsRequest(request_id=REQUEST_ID, page_size=2, page_token=token)
        )
        found += page.records
        pages += 1
        token = page.next_page_token
        if not token:
            break
    assert (found, pages) == (put, 3)
    for field, request in (
        ("page_token", artifacts_pb2.ListArtifactsRequest(request_id=REQUEST_ID, page_token="x")),
        ("page_size", artifacts_pb2.ListArtifactsRequest(request_id=REQUEST_ID, page_size=201)),
        ("request_id", artifacts_pb2.ListArtifactsRequest()),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await world.stub.ListArtifacts(request)
        error = from_rpc_error(caught.value)
        assert isinstance(error, InvalidField)
        assert error.field == field


@pytest.mark.row("REQ-06")
async def test_a_restarted_service_knows_and_serves_everything(
    postgres_dsn: str, tmp_path: Path
) -> None:
    blobs = (tmp_path / "blobs").as_uri()
    async with world_of(postgres_dsn, blobs) as before:
        await before.accept()
        put = await before.put(header_of(), DATA)
    async with world_of(postgres_dsn, blobs) as after:
        assert await after.get(ID) == (put, DATA)
        listed = await after.stub.ListArtifacts(
            artifacts_pb2.ListArtifactsRequest(request_id=REQUEST_ID)
        )
        assert list(listed.records) == [put]
        assert await after.put(header_of(), DATA) == put


async def test_equal_bytes_are_stored_once(world: World, tmp_path: Path) -> None:
    await world.accept()
    for output in ("a", "b", "c"):
        await world.put(header_of(output=output), DATA)
    assert bytes_below(tmp_path) < 2 * len(DATA)


async def test_a_record_whose_bytes_are_gone_says_so(world: World, tmp_path: Path) -> None:
    await world.accept()
    await world.put(header_of(), DATA)
    shutil.rmtree(tmp_path / "blobs")
    for call in (
        world.get(ID),
        world.stub.StatArtifact(artifacts_pb2.StatArtifactRequest(artifact_id=ID)),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        error = from_rpc_error(caught.value)
        assert isinstance(error, FailedPrecondition)
        assert error.reason == "BLOB_MISSING"
        assert error.attributes["digest"] == DIGEST


@pytest.mark.row("REQ-06")
async def test_artifacts_live_in_s3_as_well(
    postgres_dsn: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    make_bucket(f"{s3_endpoint}/artifacts-test")
    url = "s3://artifacts-test/some/prefix"
    async with world_of(postgres_dsn, url, s3_endpoint=s3_endpoint) as world:
        await world.accept()
        put = await world.put(header_of(), DATA)
        assert await world.get(ID) == (put, DATA)
        assert (await world.get(ID, 100, 200_000))[1] == DATA[100:200_000]


async def test_health_and_reflection_answer(world: World) -> None:
    async with open_channel(world.address) as channel:
        # The libraries' stubs for type checkers know only their blocking sides.
        health: Any = health_pb2_grpc.HealthStub(channel)
        for service in ("", "fastvideo.artifacts.v1.ArtifactService"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        reflection: Any = reflection_pb2_grpc.ServerReflectionStub(channel)  # type: ignore[arg-type]
        listing = reflection_pb2.ServerReflectionRequest(list_services="")
        [answer] = [a async for a in reflection.ServerReflectionInfo(iter([listing]))]
        names = {service.name for service in answer.list_services_response.service}
        assert "fastvideo.artifacts.v1.ArtifactService" in names
