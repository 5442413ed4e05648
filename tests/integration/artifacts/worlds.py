"""The artifacts service on loopback, with a log and a request for its artifacts."""

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fastvideo.api.artifacts.v1 import artifacts_pb2, artifacts_pb2_grpc
from fastvideo.api.common.v1 import artifact_pb2
from fastvideo.artifacts.state import artifact_id_of
from fastvideo.events.catalog import event_of, new_event
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.records import AppendCommand, StreamAppend
from fastvideo.events.types import Event, EventMetadata, EventPayload
from fastvideo.ids import new_id
from fastvideo.requests.events import RequestAccepted
from fastvideo.requests.state import stream_of
from fastvideo.requests.types import OutputSpec, RequestKind, RequestSpec, SamplingParams
from fastvideo.rpc.channel import open_channel
from fastvideo_artifacts.app import running_artifacts
from fastvideo_artifacts.config import Config

if TYPE_CHECKING:
    from fastvideo.api.artifacts.v1.artifacts_pb2_grpc import ArtifactServiceAsyncStub

AT = datetime(2026, 1, 1, tzinfo=UTC)
REQUEST_ID = "req_1"
CONFIG = Config(
    listen="127.0.0.1:0",
    service_id="artifacts",
    postgres_dsn="",
    blobs_url="",
    artifact_bytes_max=1_000_000,
    update_every_bytes=100_000,
)
SPEC = RequestSpec(
    request_id=REQUEST_ID,
    kind=RequestKind.GENERATION,
    model_id="moving-digits",
    sampling=SamplingParams(width=48, height=48, num_frames=9, fps=8, steps=4, seed=7),
    outputs=OutputSpec(video=True),
)
VIDEO = artifact_pb2.MediaInfo(
    container="mp4", codec="h264", width=48, height=48, fps=8.0, frames=9
)


@dataclass(frozen=True)
class World:
    """A running service, its log, and a stub."""

    address: str
    log: PostgresEventStore
    stub: "ArtifactServiceAsyncStub"

    async def append(self, request_id: str, *payloads: EventPayload) -> None:
        """Add to a request's stream, as gateway and scheduler do."""
        metadata = EventMetadata(request_id=request_id, occurred_at=AT)
        events = tuple(new_event(new_id("evt", 1), payload, metadata) for payload in payloads)
        await self.log.append(AppendCommand(streams=(StreamAppend(stream_of(request_id), events),)))

    async def accept(self, request_id: str = REQUEST_ID) -> None:
        """Begin a request."""
        await self.append(request_id, RequestAccepted(spec=replace(SPEC, request_id=request_id)))

    async def events(self, stream_id: str) -> list[Event]:
        """A stream's events."""
        return [event_of(stored) for stored in await self.log.read_stream(stream_id)]

    async def names(self, stream_id: str) -> list[str]:
        """Public names of a stream's events, in order."""
        return [event.name for event in await self.events(stream_id)]

    async def put(
        self, header: artifacts_pb2.PutArtifactHeader, data: bytes, *, chunk_bytes: int = 64_000
    ) -> artifact_pb2.ArtifactRecord:
        """Put an artifact and give its record."""
        response = await self.stub.PutArtifact(messages(header, pieces(data, chunk_bytes)))
        return response.record

    async def get(
        self, artifact_id: str, start: int = 0, stop: int = 0
    ) -> tuple[artifact_pb2.ArtifactRecord, bytes]:
        """The record, which must come first, and the bytes."""
        request = artifacts_pb2.GetArtifactRequest(artifact_id=artifact_id, start=start, stop=stop)
        responses = [response async for response in self.stub.GetArtifact(request)]
        assert [r.WhichOneof("message") for r in responses[:1]] == ["record"]
        assert all(r.WhichOneof("message") == "chunk" for r in responses[1:])
        return responses[0].record, b"".join(response.chunk for response in responses[1:])


@contextlib.asynccontextmanager
async def world_of(dsn: str, blobs_url: str, **settings: Any) -> AsyncIterator[World]:
    """A running service over a database and a blob store."""
    config = replace(CONFIG, postgres_dsn=dsn, blobs_url=blobs_url, **settings)
    log = await PostgresEventStore.open(dsn, connections_max=2)
    try:
        async with (
            running_artifacts(config) as server,
            open_channel(server.address) as channel,
        ):
            yield World(server.address, log, artifacts_pb2_grpc.ArtifactServiceStub(channel))
    finally:
        await log.close()


def header_of(
    output: str = "video", request_id: str = REQUEST_ID, **fields: Any
) -> artifacts_pb2.PutArtifactHeader:
    """The header of a video that the node "write" of a request made."""
    values: dict[str, Any] = {
        "artifact_id": artifact_id_of(request_id, "write", output),
        "kind": artifact_pb2.ARTIFACT_KIND_VIDEO,
        "name": "video.mp4",
        "content_type": "video/mp4",
        "producer": artifact_pb2.Producer(
            request_id=request_id,
            node_id="write",
            model_id="moving-digits",
            worker_id="worker-1",
            attempt=1,
            versions={"weights": "abc"},
        ),
        "media": VIDEO,
    }
    return artifacts_pb2.PutArtifactHeader(**(values | fields))


def messages(
    header: artifacts_pb2.PutArtifactHeader, chunks: Iterable[bytes]
) -> Iterator[artifacts_pb2.PutArtifactRequest]:
    """A put's messages."""
    yield artifacts_pb2.PutArtifactRequest(header=header)
    for chunk in chunks:
        yield artifacts_pb2.PutArtifactRequest(chunk=chunk)


def pieces(data: bytes, size: int) -> list[bytes]:
    """The data cut into pieces."""
    return [data[start : start + size] for start in range(0, len(data), size)]
