"""The port ArtifactSink: in memory, and over gRPC to the real service on a log in memory."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

import grpc
import pytest

from fastvideo.api.artifacts.v1 import artifacts_pb2, artifacts_pb2_grpc
from fastvideo.artifacts.types import ArtifactKind, MediaInfo, Producer
from fastvideo.blobs import CorruptBlob, open_blobs
from fastvideo.clock import SystemClock
from fastvideo.engine.sink import (
    ArtifactSink,
    BlobShelf,
    LocalArtifacts,
    LocalBlobs,
    NewArtifact,
    StreamCancelled,
)
from fastvideo.errors import (
    AlreadyExists,
    DeadlineExceeded,
    FailedPrecondition,
    FastVideoError,
    NotFound,
    ResourceExhausted,
    Unavailable,
)
from fastvideo.events.appender import Appender
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.wakeups import LocalWakeups
from fastvideo.requests.standing import Standings
from fastvideo.rpc.channel import open_channel
from fastvideo.rpc.server import Server, Service
from fastvideo_artifacts.blob_uses import BlobUses
from fastvideo_artifacts.catalog import Catalog
from fastvideo_artifacts.history import ArtifactHistory
from fastvideo_artifacts.plain_blobs import BlobLimits, PlainBlobs
from fastvideo_artifacts.servicer import ArtifactServicer
from fastvideo_artifacts.uploads import UploadLimits, Uploads
from fastvideo_worker.artifact_client import GrpcArtifacts, NoArtifacts

ServicerT = TypeVar("ServicerT", bound=ArtifactServicer)

# More than two chunks of a stream.
DATA = bytes(range(256)) * 2_500
VIDEO = NewArtifact(
    artifact_id="art_1",
    kind=ArtifactKind.VIDEO,
    name="video.mp4",
    content_type="video/mp4",
    # Of no request: the service would look for it in the log.
    producer=Producer(node_id="write", attempt=1, versions={"weights": "w"}),
    media=MediaInfo(container="mp4", codec="h264", width=48, height=48, fps=8.0, frames=9),
)


@pytest.fixture(params=["memory", "grpc"])
async def sink(request: pytest.FixtureRequest) -> AsyncIterator[ArtifactSink]:
    """Each adapter, empty."""
    clock = SystemClock()
    if request.param == "memory":
        yield LocalArtifacts(clock)
        return
    async with serving(
        lambda catalog, uploads, blobs: ArtifactServicer(catalog, uploads, blobs, clock)
    ) as (_, channel):
        yield GrpcArtifacts(channel, asyncio.get_running_loop())


@asynccontextmanager
async def serving(
    make: Callable[[Catalog, Uploads, PlainBlobs], ServicerT],
    blob_bytes_max: int = 2**30,
) -> AsyncIterator[tuple[ServicerT, grpc.aio.Channel]]:
    """A service on a log and blobs in memory, and a channel to it."""
    store = MemoryEventStore()
    async with Appender(store, LocalWakeups()) as appender:
        clock = SystemClock()
        blobs = open_blobs("memory:///")
        history = ArtifactHistory(store, appender, BlobUses(store, blobs), clock)
        uploads = Uploads(history, blobs, clock, UploadLimits(2**30, 2**20))
        servicer = make(
            Catalog(history, blobs, Standings(store, clock), clock),
            uploads,
            PlainBlobs(blobs, BlobLimits(blob_bytes_max, timedelta(hours=1)), clock),
        )
        service = Service.of(
            artifacts_pb2.DESCRIPTOR,
            "ArtifactService",
            artifacts_pb2_grpc.add_ArtifactServiceServicer_to_server,
            servicer,
        )
        async with (
            Server("127.0.0.1:0", [service], grace_s=0) as server,
            open_channel(server.address) as channel,
        ):
            yield servicer, channel


@pytest.fixture(params=["memory", "grpc"])
async def shelf(request: pytest.FixtureRequest) -> AsyncIterator[BlobShelf]:
    """Each adapter of the shelf, empty."""
    if request.param == "memory":
        yield LocalBlobs(2**20)
        return
    clock = SystemClock()
    async with serving(
        lambda catalog, uploads, blobs: ArtifactServicer(catalog, uploads, blobs, clock), 2**20
    ) as (_, channel):
        yield GrpcArtifacts(channel, asyncio.get_running_loop())


async def test_a_put_gives_the_record_of_what_is_stored(sink: ArtifactSink) -> None:
    record = await asyncio.to_thread(sink.put, VIDEO, DATA)
    assert record.digest == hashlib.sha256(DATA).hexdigest()
    assert record.size_bytes == len(DATA)
    assert record.completed_at is not None
    assert (record.kind, record.name, record.media) == (VIDEO.kind, VIDEO.name, VIDEO.media)
    assert record.producer == VIDEO.producer


async def test_the_bytes_come_back(sink: LocalArtifacts | GrpcArtifacts) -> None:
    await asyncio.to_thread(sink.put, VIDEO, DATA)
    assert await asyncio.to_thread(sink.get, VIDEO.artifact_id) == DATA


async def test_another_attempt_gets_the_record_that_is_there(sink: ArtifactSink) -> None:
    first = await asyncio.to_thread(sink.put, VIDEO, DATA)
    retried = replace(VIDEO, producer=replace(VIDEO.producer, attempt=2, worker_id="other"))
    assert await asyncio.to_thread(sink.put, retried, DATA) == first


async def test_other_bytes_under_the_same_id_are_refused(sink: ArtifactSink) -> None:
    await asyncio.to_thread(sink.put, VIDEO, DATA)
    with pytest.raises(AlreadyExists):
        await asyncio.to_thread(sink.put, VIDEO, DATA + b"\0")


async def test_an_artifact_that_is_not_there_is_not_found(
    sink: LocalArtifacts | GrpcArtifacts,
) -> None:
    with pytest.raises(NotFound):
        await asyncio.to_thread(sink.get, "art_absent")


async def test_a_blob_comes_back_by_its_digest_and_may_be_put_again(shelf: BlobShelf) -> None:
    for _ in range(2):
        digest = await asyncio.to_thread(shelf.put_blob, DATA)
        assert digest == hashlib.sha256(DATA).hexdigest()
    assert await asyncio.to_thread(shelf.get_blob, digest, len(DATA)) == DATA


async def test_a_blob_that_is_not_there_is_not_found(shelf: BlobShelf) -> None:
    with pytest.raises(NotFound) as caught:
        await asyncio.to_thread(shelf.get_blob, "0" * 64, 1)
    assert caught.value.reason == "BLOB_NOT_FOUND"


async def test_a_blob_beyond_the_limit_is_refused(shelf: BlobShelf) -> None:
    with pytest.raises(ResourceExhausted) as caught:
        await asyncio.to_thread(shelf.put_blob, bytes(2**20 + 1))
    assert caught.value.subject == "blob_bytes"


async def test_what_is_not_wanted_any_more_is_given_up_and_may_be_put_later(
    sink: ArtifactSink,
) -> None:
    for wanted_times in (0, 2):
        left = iter([True] * wanted_times)

        def wanted(left: Iterator[bool] = left) -> bool:
            return next(left, False)

        if wanted_times and isinstance(sink, LocalArtifacts):
            break
        with pytest.raises(StreamCancelled) as caught:
            await asyncio.to_thread(sink.put, VIDEO, DATA, wanted)
        assert caught.value.reason == "STREAM_CANCELLED"
    record = await asyncio.to_thread(sink.put, VIDEO, DATA)
    assert record.size_bytes == len(DATA)


def test_blobs_in_memory_are_bounded_and_the_oldest_go() -> None:
    shelf = LocalBlobs(100)
    first, second = shelf.put_blob(b"a" * 60), shelf.put_blob(b"b" * 60)
    assert shelf.in_use_bytes == 60
    assert shelf.get_blob(second, 60) == b"b" * 60
    with pytest.raises(NotFound):
        shelf.get_blob(first, 60)


class ForgetsOnce(ArtifactServicer):
    """Is away when a blob is asked for or put the first time."""

    def __init__(self, catalog: Catalog, uploads: Uploads, blobs: PlainBlobs) -> None:
        super().__init__(catalog, uploads, blobs, SystemClock())
        self.calls: list[str] = []

    async def PutBlob(self, request_iterator: Any, context: Any) -> Any:
        self.calls.append("put")
        response = await super().PutBlob(request_iterator, context)
        if self.calls.count("put") == 1:
            raise Unavailable("away")
        return response

    async def GetBlob(self, request: Any, context: Any) -> Any:
        self.calls.append("get")
        async for response in super().GetBlob(request, context):
            yield response
            if self.calls.count("get") == 1:
                raise Unavailable("away")


async def test_blobs_are_tried_again_while_the_service_is_away() -> None:
    async with serving(ForgetsOnce) as (service, channel):
        shelf = GrpcArtifacts(channel, asyncio.get_running_loop())
        digest = await asyncio.to_thread(shelf.put_blob, DATA)
        assert await asyncio.to_thread(shelf.get_blob, digest, len(DATA)) == DATA
    assert service.calls == ["put", "put", "get", "get"]


class GivesOtherBytes(ForgetsOnce):
    """Gives what nobody asked for."""

    async def GetBlob(self, request: Any, context: Any) -> Any:
        yield artifacts_pb2.GetBlobResponse(chunk=b"other")


async def test_other_bytes_than_those_of_the_digest_are_refused() -> None:
    async with serving(GivesOtherBytes) as (_, channel):
        shelf = GrpcArtifacts(channel, asyncio.get_running_loop())
        for size in (5, 3, 10):
            with pytest.raises(CorruptBlob):
                await asyncio.to_thread(shelf.get_blob, "0" * 64, size)


def test_without_a_service_what_would_be_stored_is_refused() -> None:
    with pytest.raises(FailedPrecondition, match="no artifact service"):
        NoArtifacts().put(VIDEO, DATA)
    with pytest.raises(FailedPrecondition, match="no artifact service"):
        NoArtifacts().put_blob(DATA)
    with pytest.raises(FailedPrecondition, match="no artifact service"):
        NoArtifacts().get_blob("0" * 64, 1)


class FailsOnce(ArtifactServicer):
    """Fails the first put when its bytes have come."""

    def __init__(
        self, catalog: Catalog, uploads: Uploads, blobs: PlainBlobs, error: FastVideoError
    ) -> None:
        super().__init__(catalog, uploads, blobs, SystemClock())
        self._errors = [error]
        self.puts = 0

    async def PutArtifact(
        self, request_iterator: AsyncIterator[artifacts_pb2.PutArtifactRequest], context: Any
    ) -> artifacts_pb2.PutArtifactResponse:
        self.puts += 1
        response = await super().PutArtifact(request_iterator, context)
        if self._errors:
            raise self._errors.pop()
        return response


@pytest.mark.parametrize(
    "error", [DeadlineExceeded("too slow"), Unavailable("away")], ids=["slow", "away"]
)
async def test_a_put_is_tried_again_under_the_same_id(error: FastVideoError) -> None:
    async with serving(
        lambda catalog, uploads, blobs: FailsOnce(catalog, uploads, blobs, error)
    ) as (service, channel):
        sink = GrpcArtifacts(channel, asyncio.get_running_loop())
        record = await asyncio.to_thread(sink.put, VIDEO, DATA)
    assert record.digest == hashlib.sha256(DATA).hexdigest()
    assert service.puts == 2
