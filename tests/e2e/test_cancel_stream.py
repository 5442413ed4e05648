"""Cancelling one output stream: its chunks stop, and all other outputs are made to their end."""

import asyncio

import pytest

from fastvideo.artifacts.events import (
    ArtifactCompleted,
    ArtifactCreated,
    BufferRef,
    MediaChunkAdded,
    MediaCompleted,
    MediaInitialized,
)
from fastvideo.client import AsyncClient
from fastvideo.events.types import Event
from fastvideo.requests.events import RequestCompleted, RequestLogged, RequestProgressed
from fastvideo.requests.types import OutputSpec, RequestStatus, SamplingOverrides
from tests.e2e.stack import Stack

PROMPT = "a green two moving up"
OUTPUTS = OutputSpec(video=True, preview=True, sheet=True, latents=True)
# Long enough that the cancel comes before anything is written.
SAMPLING = SamplingOverrides(steps=60, seed=21)
WAIT_S_MAX = 120.0


async def _ended(client: AsyncClient, request_id: str) -> list[Event]:
    async with asyncio.timeout(WAIT_S_MAX):
        return [event async for event in client.watch(request_id)]


@pytest.mark.row("REQ-11", "REQ-08")
async def test_a_cancelled_stream_sends_no_chunk_and_the_other_outputs_are_whole(
    stack: Stack,
) -> None:
    async with AsyncClient(stack.gateway) as client:
        whole = (await client.submit(PROMPT, sampling=SAMPLING, outputs=OUTPUTS)).spec.request_id
        all_of_it = await _ended(client, whole)
        less = (await client.submit(PROMPT, sampling=SAMPLING, outputs=OUTPUTS)).spec.request_id
        async with asyncio.timeout(WAIT_S_MAX):
            while (await client.get(less)).progress < 0.05:
                await asyncio.sleep(0.01)
        running = await client.cancel(less, stream="video")
        assert running.status is RequestStatus.RUNNING
        events = await _ended(client, less)
        expected, found = await client.get(whole), await client.get(less)
    # The request is not cancelled: it completes, with the same latents.
    assert [event.name for event in events if event.name.startswith("request.c")] == [
        "request.cancel_requested",
        "request.completed",
    ]
    assert found.status is RequestStatus.COMPLETED
    assert found.latents_digest == expected.latents_digest != ""
    files = {
        state.spec.request_id: {record.name: record.digest for record in state.artifacts}
        for state in (expected, found)
    }
    assert files[whole].keys() == {"preview.mp4", "video.mp4", "sheet.png", "latents.safetensors"}
    del files[whole]["video.mp4"]
    assert files[less] == files[whole]
    assert _media_of(all_of_it) == {"preview.mp4", "video.mp4"}
    assert _media_of(events) == {"preview.mp4"}
    _check_told_by_type(all_of_it, events)


def _check_told_by_type(whole: list[Event], less: list[Event]) -> None:
    """Previews, chunks, logs, progress and the end are told apart by their types alone."""
    types = {event.name: type(event.payload) for event in (*whole, *less)}
    assert len(set(types.values())) == len(types)
    assert {type(event.payload) for event in less} >= {
        RequestProgressed,
        RequestLogged,
        ArtifactCreated,
        MediaInitialized,
        MediaChunkAdded,
        MediaCompleted,
        ArtifactCompleted,
        RequestCompleted,
    }
    (told,) = [event.payload for event in less if isinstance(event.payload, RequestLogged)]
    assert told.message.startswith("stream video is cancelled")
    made = {
        event.payload.record.name: event.payload.record.artifact_id
        for event in whole
        if isinstance(event.payload, ArtifactCompleted)
    }
    chunks = [event.payload for event in whole if isinstance(event.payload, MediaChunkAdded)]
    of_video = [chunk for chunk in chunks if chunk.artifact_id == made["video.mp4"]]
    # The first is the preview, in the place of what is not there yet.
    preview = of_video[0].source
    assert isinstance(preview, BufferRef)
    assert preview.buffer_id == made["preview.mp4"]
    assert [chunk.final for chunk in of_video] == [False, True]


def _media_of(events: list[Event]) -> set[str]:
    """The files of whose media stream something was told."""
    names = {
        event.payload.record.artifact_id: event.payload.record.name
        for event in events
        if isinstance(event.payload, ArtifactCreated)
    }
    return {
        names[event.payload.artifact_id]
        for event in events
        if isinstance(event.payload, MediaInitialized | MediaChunkAdded | MediaCompleted)
    }
