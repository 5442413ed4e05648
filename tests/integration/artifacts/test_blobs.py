"""Blobs without a record: by their digest, whole or not at all, over a folder and S3."""

import asyncio
import hashlib
import urllib.request
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from fastvideo.api.artifacts.v1 import artifacts_pb2
from fastvideo.errors import (
    FailedPrecondition,
    FastVideoError,
    InvalidField,
    NotFound,
    ResourceExhausted,
)
from fastvideo.rpc.errors import from_rpc_error
from tests.integration.artifacts.worlds import World, header_of, pieces, world_of

DATA = bytes(range(256)) * 1000
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(params=["folder", "s3"])
async def world(
    request: pytest.FixtureRequest, postgres_dsn: str, tmp_path: Path, monkeypatch: Any
) -> AsyncIterator[World]:
    """The service over an empty log, and a folder or a bucket."""
    if request.param == "folder":
        async with world_of(postgres_dsn, (tmp_path / "blobs").as_uri()) as running:
            yield running
        return
    endpoint = request.getfixturevalue("s3_endpoint")
    for name, value in (("ACCESS_KEY_ID", "key"), ("SECRET_ACCESS_KEY", "secret")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    bucket = urllib.request.Request(f"{endpoint}/blobs-test", method="PUT")
    await asyncio.to_thread(lambda: urllib.request.urlopen(bucket).close())
    url = f"s3://blobs-test/{tmp_path.name}"
    async with world_of(postgres_dsn, url, s3_endpoint=endpoint) as running:
        yield running


def sent(
    digest: str = DIGEST, size_bytes: int = len(DATA), chunks: Iterable[bytes] = ()
) -> Iterator[artifacts_pb2.PutBlobRequest]:
    """A put's messages."""
    header = artifacts_pb2.PutBlobHeader(digest=digest, size_bytes=size_bytes)
    yield artifacts_pb2.PutBlobRequest(header=header)
    for chunk in chunks:
        yield artifacts_pb2.PutBlobRequest(chunk=chunk)


async def get(world: World, digest: str = DIGEST) -> bytes:
    request = artifacts_pb2.GetBlobRequest(digest=digest)
    return b"".join([r.chunk async for r in world.stub.GetBlob(request)])


def unfinished(folder: Path) -> list[Path]:
    """What broken puts have left in a folder."""
    return [path for path in folder.rglob("unfinished/*") if path.is_file()]


async def refusal(call: Any) -> FastVideoError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


async def test_bytes_come_back_by_their_digest_and_no_event_is_written(world: World) -> None:
    for _ in range(2):
        put = await world.stub.PutBlob(sent(chunks=pieces(DATA, 64_000)))
        assert (put.digest, put.size_bytes) == (DIGEST, len(DATA))
        assert await get(world) == DATA
    assert await world.log.read_partition(0) == ()


async def test_many_puts_of_one_blob_at_once_are_one(world: World) -> None:
    puts = (world.stub.PutBlob(sent(chunks=pieces(DATA, 10_000))) for _ in range(6))
    assert {put.digest for put in await asyncio.gather(*puts)} == {DIGEST}
    assert await get(world) == DATA


async def test_what_is_not_there_is_not_found(world: World) -> None:
    error = await refusal(get(world))
    assert isinstance(error, NotFound)
    assert error.reason == "BLOB_NOT_FOUND"


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        (lambda: sent(digest="abc", chunks=[DATA]), "header.digest"),
        (lambda: sent(digest="", chunks=[DATA]), "header.digest"),
        (lambda: sent(digest="0" * 64, chunks=[DATA]), "expected_digest"),
        (lambda: sent(size_bytes=len(DATA) - 1, chunks=[DATA]), "header.size_bytes"),
        (lambda: sent(size_bytes=len(DATA) + 1, chunks=[DATA]), "header.size_bytes"),
        (lambda: sent(chunks=[DATA, DATA]), "header.size_bytes"),
        (lambda: sent(), "header.size_bytes"),
        (lambda: iter(()), "message"),
        (lambda: iter([artifacts_pb2.PutBlobRequest(chunk=DATA)]), "message"),
        (lambda: [*sent(), *sent()], "message"),
    ],
)
async def test_other_bytes_than_the_header_says_are_refused_and_leave_nothing(
    world: World, messages: Any, field: str
) -> None:
    error = await refusal(world.stub.PutBlob(iter(messages())))
    assert isinstance(error, InvalidField)
    assert error.field == field
    assert isinstance(await refusal(get(world)), NotFound)


async def test_a_blob_larger_than_the_limit_is_refused_before_its_bytes(world: World) -> None:
    error = await refusal(world.stub.PutBlob(sent(size_bytes=1_000_001)))
    assert isinstance(error, ResourceExhausted)
    assert (error.subject, error.attributes) == ("blob_bytes", {"bytes_max": "1000000"})


async def test_a_digest_that_cannot_be_is_refused(world: World) -> None:
    error = await refusal(get(world, "../../etc/passwd"))
    assert isinstance(error, InvalidField)
    assert error.field == "digest"


async def test_a_put_that_breaks_off_leaves_nothing(world: World, tmp_path: Path) -> None:
    half_sent = asyncio.Event()

    async def broken() -> AsyncIterator[artifacts_pb2.PutBlobRequest]:
        for message in sent(chunks=pieces(DATA[:150_000], 50_000)):
            yield message
        half_sent.set()
        await asyncio.Event().wait()

    async def put() -> None:
        await world.stub.PutBlob(broken())

    putting = asyncio.ensure_future(put())
    await half_sent.wait()
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    async with asyncio.timeout(30):
        while unfinished(tmp_path):
            await asyncio.sleep(0.01)
    assert isinstance(await refusal(get(world)), NotFound)
    assert (await world.stub.PutBlob(sent(chunks=[DATA]))).digest == DIGEST


async def test_blobs_are_removed_by_their_age_and_artifacts_are_not(
    postgres_dsn: str, tmp_path: Path
) -> None:
    url = (tmp_path / "blobs").as_uri()
    async with world_of(postgres_dsn, url) as world:
        await world.accept()
        record = await world.put(header_of(), DATA)
        await world.stub.PutBlob(sent(chunks=[DATA]))
    # Whatever is there was stored before a moment that is still to come.
    async with world_of(postgres_dsn, url, blobs_kept=timedelta(hours=-1)) as world:
        async with asyncio.timeout(30):
            while await _is_there(world):
                await asyncio.sleep(0.01)
        assert await world.get(header_of().artifact_id) == (record, DATA)


async def _is_there(world: World) -> bool:
    try:
        await get(world)
    except grpc.aio.AioRpcError:
        return False
    return True


async def test_changed_bytes_are_told_and_a_put_makes_them_whole(
    postgres_dsn: str, tmp_path: Path
) -> None:
    async with world_of(postgres_dsn, (tmp_path / "blobs").as_uri()) as world:
        await world.stub.PutBlob(sent(chunks=[DATA]))
        [path] = [p for p in (tmp_path / "blobs").rglob("*") if p.is_file()]
        path.write_bytes(DATA[:-1] + b"x")
        error = await refusal(get(world))
        assert isinstance(error, FailedPrecondition)
        assert error.reason == "CORRUPT_BLOB"
        await world.stub.PutBlob(sent(chunks=[DATA]))
        assert await get(world) == DATA
