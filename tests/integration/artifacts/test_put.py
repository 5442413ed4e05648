"""Putting artifacts: the order of events, repeats, refusals, and uploads that break."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from fastvideo.api.artifacts.v1 import artifacts_pb2
from fastvideo.api.common.v1 import artifact_pb2
from fastvideo.artifacts.events import ArtifactCreated, ArtifactUpdated, MediaCompleted
from fastvideo.artifacts.state import stream_of
from fastvideo.errors import (
    AlreadyExists,
    FailedPrecondition,
    FastVideoError,
    InvalidField,
    NotFound,
    ResourceExhausted,
)
from fastvideo.requests.events import RequestCompleted, RequestProgressed
from fastvideo.requests.types import RequestMetrics
from fastvideo.rpc.errors import from_rpc_error
from tests.integration.artifacts.worlds import REQUEST_ID, VIDEO, World, header_of, messages

DATA = bytes(range(256)) * 1000
DIGEST = hashlib.sha256(DATA).hexdigest()
VIDEO_STREAM = stream_of(header_of().artifact_id)
WHOLE = [
    "artifact.created",
    "media.init",
    "artifact.updated",
    "artifact.updated",
    "media.chunk",
    "media.complete",
    "artifact.completed",
]


async def refusal(
    world: World, header: artifacts_pb2.PutArtifactHeader, data: bytes = DATA
) -> FastVideoError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await world.put(header, data)
    return from_rpc_error(caught.value)


def stored(folder: Path) -> dict[str, int]:
    """Names and sizes of the files that hold bytes."""
    files = {}
    for path in folder.rglob("*"):
        # One that is being removed may be gone by now.
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and (size := path.stat().st_size):
                files[path.name] = size
    return files


@pytest.mark.row("EVT-12", "EVT-13", "EVT-14", "EVT-15", "EVT-17")
async def test_a_put_is_told_in_order_in_both_streams(world: World) -> None:
    await world.accept()
    record = await world.put(header_of(), DATA)
    assert (record.digest, record.size_bytes) == (DIGEST, len(DATA))
    assert await world.names(VIDEO_STREAM) == WHOLE
    assert await world.names(f"request-{REQUEST_ID}") == ["request.accepted", *WHOLE]
    for stream in (VIDEO_STREAM, f"request-{REQUEST_ID}"):
        events = await world.events(stream)
        sizes = [e.payload.size_bytes for e in events if isinstance(e.payload, ArtifactUpdated)]
        assert sizes == sorted(sizes)
        assert all(0 < size <= len(DATA) for size in sizes)
        [ended] = [e.payload for e in events if isinstance(e.payload, MediaCompleted)]
        assert (ended.chunks, ended.size_bytes, ended.duration_seconds) == (1, len(DATA), 9 / 8)


@pytest.mark.row("REQ-05")
@pytest.mark.parametrize("kind", list(artifact_pb2.ArtifactKind.keys())[1:])
async def test_every_kind_carries_its_producer_and_versions(world: World, kind: str) -> None:
    await world.accept()
    video = kind == "ARTIFACT_KIND_VIDEO"
    header = header_of(kind=artifact_pb2.ArtifactKind.Value(kind), media=VIDEO if video else None)
    record = await world.put(header, DATA)
    found = await world.stub.StatArtifact(
        artifacts_pb2.StatArtifactRequest(artifact_id=record.artifact_id)
    )
    assert found.record == record
    assert artifact_pb2.ArtifactKind.Name(record.kind) == kind
    assert record.producer == header.producer
    assert record.producer.versions["weights"] == "abc"


async def test_an_artifact_of_no_request_has_a_stream_of_its_own(world: World) -> None:
    header = header_of(
        artifact_id="art_free",
        kind=artifact_pb2.ARTIFACT_KIND_TEXT,
        media=None,
        producer=artifact_pb2.Producer(),
    )
    await world.put(header, b"hello")
    assert await world.names("artifact-art_free") == ["artifact.created", "artifact.completed"]


@pytest.mark.row("EVT-12")
async def test_created_is_committed_before_the_first_byte_is_sent(
    world: World, tmp_path: Path
) -> None:
    await world.accept()
    may_go_on = asyncio.Event()

    async def slow() -> AsyncIterator[artifacts_pb2.PutArtifactRequest]:
        yield artifacts_pb2.PutArtifactRequest(header=header_of())
        await may_go_on.wait()
        yield artifacts_pb2.PutArtifactRequest(chunk=DATA)

    put = asyncio.ensure_future(_response(world, slow()))
    async with asyncio.timeout(30):
        while await world.names(VIDEO_STREAM) != ["artifact.created", "media.init"]:
            await asyncio.sleep(0.01)
    assert stored(tmp_path) == {}
    stat = artifacts_pb2.StatArtifactRequest(artifact_id=header_of().artifact_id)
    begun = (await world.stub.StatArtifact(stat)).record
    assert (begun.digest, begun.HasField("completed_at")) == ("", False)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await world.get(header_of().artifact_id)
    assert from_rpc_error(caught.value).reason == "ARTIFACT_INCOMPLETE"
    may_go_on.set()
    assert (await put).record.digest == DIGEST


async def test_putting_again_gives_the_same_record_and_tells_nothing(world: World) -> None:
    await world.accept()
    first = await world.put(header_of(), DATA)
    again = header_of()
    again.producer.worker_id = "worker-2"
    again.producer.attempt = 2
    assert await world.put(again, DATA) == first
    again.expected_digest = DIGEST
    assert await world.put(again, DATA) == first
    assert await world.names(VIDEO_STREAM) == WHOLE


async def test_many_puts_of_one_artifact_at_once_are_one(world: World) -> None:
    await world.accept()
    records = await asyncio.gather(*(world.put(header_of(), DATA) for _ in range(6)))
    assert all(record == records[0] for record in records)
    names = await world.names(VIDEO_STREAM)
    for name in set(WHOLE) - {"artifact.updated"}:
        assert names.count(name) == 1


async def test_artifacts_of_one_request_at_once_all_get_through(world: World) -> None:
    await world.accept()
    headers = [header_of(output=f"out-{i}") for i in range(8)]

    async def progress() -> None:
        for step in range(20):
            await world.append(REQUEST_ID, RequestProgressed(fraction=step / 20))

    puts = (world.put(header, DATA) for header in headers)
    await asyncio.gather(progress(), *puts)
    names = await world.names(f"request-{REQUEST_ID}")
    assert names.count("artifact.completed") == 8


async def test_other_bytes_under_a_completed_id_are_refused(world: World, tmp_path: Path) -> None:
    await world.accept()
    await world.put(header_of(), DATA)
    before = stored(tmp_path)
    error = await refusal(world, header_of(), DATA + b"x")
    assert isinstance(error, AlreadyExists)
    assert error.reason == "DIGEST_DIFFERS"
    error = await refusal(world, header_of(name="other.mp4"))
    assert isinstance(error, AlreadyExists)
    assert error.reason == "MEANING_DIFFERS"
    assert stored(tmp_path) == before
    assert (await world.get(header_of().artifact_id))[1] == DATA


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"artifact_id": ""}, "header.artifact_id"),
        ({"artifact_id": "../up"}, "header.artifact_id"),
        ({"kind": 0}, "header.kind"),
        ({"kind": 99}, "header.kind"),
        ({"name": ""}, "header.name"),
        ({"name": "a/b.mp4"}, "header.name"),
        ({"name": ".."}, "header.name"),
        ({"content_type": "video"}, "header.content_type"),
        ({"parents": ["", ""]}, "header.parents"),
        ({"expected_digest": "abc"}, "header.expected_digest"),
        ({"expected_digest": "0" * 64}, "expected_digest"),
        ({"media": artifact_pb2.MediaInfo(container="mp4")}, "media"),
        ({"media": artifact_pb2.MediaInfo(container="mp4", codec="h264")}, "media.width"),
    ],
)
async def test_a_header_that_cannot_be_is_refused_by_name_and_stores_nothing(
    world: World, tmp_path: Path, change: dict[str, Any], field: str
) -> None:
    await world.accept()
    error = await refusal(world, header_of(**change))
    assert isinstance(error, InvalidField)
    assert error.field == field
    assert stored(tmp_path) == {}
    assert "artifact.completed" not in await world.names(f"request-{REQUEST_ID}")


async def test_an_artifact_has_bytes_and_not_too_many(world: World, tmp_path: Path) -> None:
    await world.accept()
    error = await refusal(world, header_of(), b"")
    assert isinstance(error, InvalidField)
    assert error.field == "chunk"
    error = await refusal(world, header_of(), b"x" * 1_000_001)
    assert isinstance(error, ResourceExhausted)
    assert error.subject == "artifact_bytes"
    assert stored(tmp_path) == {}
    assert (await world.put(header_of(), b"x" * 1_000_000)).size_bytes == 1_000_000


async def test_a_request_must_exist_and_run(world: World) -> None:
    error = await refusal(world, header_of())
    assert isinstance(error, NotFound)
    assert await world.events(VIDEO_STREAM) == []
    await world.accept()
    await world.append(REQUEST_ID, RequestCompleted(metrics=RequestMetrics()))
    error = await refusal(world, header_of())
    assert isinstance(error, FailedPrecondition)
    assert error.reason == "REQUEST_ENDED"
    assert await world.events(VIDEO_STREAM) == []


@pytest.mark.parametrize(
    "sent",
    [
        list,
        lambda: [artifacts_pb2.PutArtifactRequest(chunk=b"x")],
        lambda: [artifacts_pb2.PutArtifactRequest(header=header_of())] * 2,
        lambda: [
            artifacts_pb2.PutArtifactRequest(header=header_of()),
            artifacts_pb2.PutArtifactRequest(),
        ],
    ],
)
async def test_messages_out_of_order_are_refused(
    world: World, sent: Callable[[], list[artifacts_pb2.PutArtifactRequest]]
) -> None:
    await world.accept()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await world.stub.PutArtifact(iter(sent()))
    error = from_rpc_error(caught.value)
    assert isinstance(error, InvalidField)
    assert error.field == "message"


async def test_an_upload_that_breaks_leaves_nothing_and_the_next_takes_it_up(
    world: World, tmp_path: Path
) -> None:
    await world.accept()
    half_sent = asyncio.Event()

    async def broken() -> AsyncIterator[artifacts_pb2.PutArtifactRequest]:
        for message in messages(header_of(), [DATA[:150_000]]):
            yield message
        half_sent.set()
        await asyncio.Event().wait()

    put = asyncio.ensure_future(_response(world, broken()))
    await half_sent.wait()
    async with asyncio.timeout(30):
        while "artifact.updated" not in await world.names(VIDEO_STREAM):
            await asyncio.sleep(0.01)
    put.cancel()
    with pytest.raises(asyncio.CancelledError):
        await put
    async with asyncio.timeout(30):
        while stored(tmp_path):
            await asyncio.sleep(0.01)
    assert "artifact.completed" not in await world.names(VIDEO_STREAM)

    assert (await world.put(header_of(), DATA)).digest == DIGEST
    events = await world.events(VIDEO_STREAM)
    assert sum(isinstance(event.payload, ArtifactCreated) for event in events) == 1
    sizes = [e.payload.size_bytes for e in events if isinstance(e.payload, ArtifactUpdated)]
    assert sizes == sorted(set(sizes))
    assert events[-1].name == "artifact.completed"


async def _response(world: World, sent: Any) -> artifacts_pb2.PutArtifactResponse:
    return await world.stub.PutArtifact(sent)
