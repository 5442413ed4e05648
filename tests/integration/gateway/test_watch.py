"""Watch over gRPC: replayed, then live, from any sequence number, without gap or repeat."""

import asyncio

import grpc
import pytest

from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.artifacts.events import (
    ArtifactCompleted,
    ArtifactCreated,
    ByteRange,
    MediaChunkAdded,
    MediaCompleted,
    MediaInitialized,
)
from fastvideo.artifacts.types import ArtifactKind, ArtifactRecord, MediaInfo, Producer
from fastvideo.clock import SystemClock
from fastvideo.events.types import EventPayload
from fastvideo.requests.events import (
    RequestCompleted,
    RequestLogged,
    RequestProgressed,
    RequestQueued,
    RequestStarted,
)
from fastvideo.requests.types import RequestMetrics
from tests.integration.gateway.worlds import World
from tests.plugins.waiting import eventually

DONE = RequestCompleted(latents_digest="ab", metrics=RequestMetrics(total_seconds=1.0))
TIMEOUT_S = 60.0


def progress(step: int, steps: int = 20) -> RequestProgressed:
    return RequestProgressed(fraction=step / steps, node_id="denoise", step=step, steps=steps)


def video() -> ArtifactRecord:
    return ArtifactRecord(
        artifact_id="art_1",
        kind=ArtifactKind.VIDEO,
        producer=Producer(),
        created_at=SystemClock().now(),
    )


def chunk(index: int, *, final: bool) -> MediaChunkAdded:
    return MediaChunkAdded(
        artifact_id="art_1",
        stream_id="main",
        index=index,
        source=ByteRange(start=10 * index, stop=10 * index + 10),
        codec="h264",
        final=final,
    )


async def watched(world: World, request_id: str, after: int = 0, stop_after: int = 0) -> list[int]:
    """The sequence numbers of a watch, to its end or to the first `stop_after`."""
    call = world.stub.WatchRequest(
        gateway_pb2.WatchRequestRequest(request_id=request_id, after_sequence=after),
        timeout=TIMEOUT_S,
    )
    sequences: list[int] = []
    async for response in call:
        assert response.event.stream_version == response.sequence
        sequences.append(response.sequence)
        if len(sequences) == stop_after:
            call.cancel()
            break
    return sequences


@pytest.mark.row("REQ-07")
async def test_a_live_watch_gets_every_event_in_order_and_ends_with_the_terminal_one(
    world: World,
) -> None:
    request_id = await world.submit()
    call = world.stub.WatchRequest(
        gateway_pb2.WatchRequestRequest(request_id=request_id), timeout=TIMEOUT_S
    )
    payloads: list[EventPayload] = [
        RequestQueued(position=1, reason="no free window"),
        RequestStarted(attempt=1),
        progress(1),
        RequestLogged(level="warning", message="begins again: worker-1 was lost", attempt=2),
        ArtifactCreated(record=video()),
        MediaInitialized(
            artifact_id="art_1", stream_id="main", media=MediaInfo(container="mp4", codec="h264")
        ),
        chunk(0, final=False),
        chunk(1, final=True),
        MediaCompleted(artifact_id="art_1", stream_id="main", chunks=2, size_bytes=20),
        ArtifactCompleted(record=video()),
        DONE,
    ]
    stream = aiter(call)
    events = [(await anext(stream)).event]
    for payload in payloads:
        await world.schedule(request_id, payload)
        events.append((await anext(stream)).event)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert [event.name for event in events] == [
        "request.accepted",
        "request.queued",
        "request.started",
        "request.progress",
        "request.log",
        "artifact.created",
        "media.init",
        "media.chunk",
        "media.chunk",
        "media.complete",
        "artifact.completed",
        "request.completed",
    ]
    # Each is distinguishable by its type, as the oneof says it; a preview by its flag.
    assert events[3].WhichOneof("payload") == "request_progressed"
    assert events[3].request_progressed.step == 1
    assert [event.media_chunk_added.final for event in events[7:9]] == [False, True]
    assert [event.stream_version for event in events] == list(range(1, 13))


@pytest.mark.row("REQ-07")
async def test_reconnecting_from_any_sequence_number_replays_what_follows(world: World) -> None:
    request_id = await world.submit()
    await world.schedule(request_id, RequestStarted(attempt=1), progress(1), progress(2), DONE)
    for after in range(5):
        assert await watched(world, request_id, after) == list(range(after + 1, 6))
    assert await watched(world, request_id, 5) == []


@pytest.mark.row("REQ-07")
async def test_watches_that_are_cut_and_resumed_while_events_come_miss_and_repeat_nothing(
    world: World,
) -> None:
    request_id = await world.submit()
    steps = 200

    async def schedule() -> None:
        for step in range(steps):
            await world.schedule(request_id, progress(step, steps))
        await world.schedule(request_id, DONE)

    async def watch_in_pieces(piece: int) -> list[int]:
        seen: list[int] = []
        while not seen or seen[-1] < steps + 2:
            seen += await watched(world, request_id, len(seen), stop_after=piece)
        return seen

    results = await asyncio.gather(schedule(), *(watch_in_pieces(piece) for piece in (1, 7, 50)))
    for seen in results[1:]:
        assert seen == list(range(1, steps + 3))


async def test_a_slow_watcher_gets_everything_and_holds_nothing_up(world: World) -> None:
    request_id = await world.submit()
    slow = world.stub.WatchRequest(
        gateway_pb2.WatchRequestRequest(request_id=request_id), timeout=60.0
    )
    assert await slow.read() != grpc.aio.EOF
    # Far more than gRPC's window and the watcher's buffer hold, while it reads nothing.
    text = "x" * 2_000
    for _ in range(20):
        many = [RequestQueued(position=i, reason=text) for i in range(100)]
        await world.schedule(request_id, *many)
    await world.schedule(request_id, DONE)
    fast = await watched(world, request_id)
    assert fast == list(range(1, 2003))
    rest = [response.sequence async for response in slow]
    assert rest == list(range(2, 2003))


async def test_a_watch_that_its_client_leaves_is_forgotten(world: World) -> None:
    request_id = await world.submit()
    watches = world.gateway.core.parts.watches
    for _ in range(20):
        assert await watched(world, request_id, stop_after=1) == [1]

    async def nobody_watches() -> bool:
        return watches.watcher_count == 0

    await eventually(nobody_watches)


@pytest.mark.parametrize(("request_id", "after"), [("req_none", 0), ("", 0), ("known", 99)])
async def test_a_watch_of_what_is_not_there_is_refused(
    world: World, request_id: str, after: int
) -> None:
    known = await world.submit()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await watched(world, known if request_id == "known" else request_id, after)
    expected = grpc.StatusCode.NOT_FOUND
    if request_id != "req_none":
        expected = grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.code() is expected
