"""The port ArtifactSink: in memory, and over gRPC to the real service on a log in memory."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import grpc
import pytest

from fastvideo.api.artifacts.v1 import artifacts_pb2, artifacts_pb2_grpc
from fastvideo.artifacts.types import ArtifactKind, MediaInfo, Producer
from fastvideo.blobs import open_blobs
from fastvideo.clock import SystemClock
from fastvideo.engine.sink import ArtifactSink, LocalArtifacts, NewArtifact
from fastvideo.errors import (
    AlreadyExists,
    DeadlineExceeded,
    FailedPrecondition,
    FastVideoError,
    NotFound,
    Unavailable,
)
from fastvideo.events.appender import Appender
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.wakeups import LocalWakeups
from fastvideo.rpc.channel import open_channel
from fastvideo.rpc.server import Server, Service
from fastvideo_artifacts.catalog import Catalog
from fastvideo_artifacts.history import ArtifactHistory
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
    async with serving(lambda catalog, uploads: ArtifactServicer(catalog, uploads, clock)) as (
        _,
        channel,
    ):
        yield GrpcArtifacts(channel, asyncio.get_running_loop())


@asynccontextmanager
async def serving(
    make: Callable[[Catalog, Uploads], ServicerT],
) -> AsyncIterator[tuple[ServicerT, grpc.aio.Channel]]:
    """A service on a log and blobs in memory, and a channel to it."""
    store = MemoryEventStore()
    async with Appender(store, LocalWakeups()) as appender:
        clock = SystemClock()
        history = ArtifactHistory(store, appender, clock)
        blobs = open_blobs("memory:///")
        uploads = Uploads(history, blobs, clock, UploadLimits(2**30, 2**20))
        servicer = make(Catalog(history, blobs), uploads)
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


def test_without_a_service_what_would_be_stored_is_refused() -> None:
    with pytest.raises(FailedPrecondition, match="no artifact service"):
        NoArtifacts().put(VIDEO, DATA)


class FailsOnce(ArtifactServicer):
    """Fails the first put when its bytes have come."""

    def __init__(self, catalog: Catalog, uploads: Uploads, error: FastVideoError) -> None:
        super().__init__(catalog, uploads, SystemClock())
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
    async with serving(lambda catalog, uploads: FailsOnce(catalog, uploads, error)) as (
        service,
        channel,
    ):
        sink = GrpcArtifacts(channel, asyncio.get_running_loop())
        record = await asyncio.to_thread(sink.put, VIDEO, DATA)
    assert record.digest == hashlib.sha256(DATA).hexdigest()
    assert service.puts == 2
