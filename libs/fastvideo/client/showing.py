"""What a notebook shows of a request: its video and its images, brought within a bound."""

from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from fastvideo.artifacts.types import ArtifactKind, ArtifactRecord
from fastvideo.client.calls import CallPolicy
from fastvideo.client.cards import size_text
from fastvideo.client.downloads import Download
from fastvideo.client.generation import Generation, Media
from fastvideo.errors import FastVideoError
from fastvideo.requests.types import RequestState

if TYPE_CHECKING:
    from fastvideo.api.artifacts.v1.artifacts_pb2_grpc import ArtifactServiceAsyncStub

INLINE_BYTES_MAX: Final = 8_000_000
"""The largest file that stands in the page; a notebook keeps it in its own file."""

MEDIA_MAX: Final = 8

_SHOWN: Final = (ArtifactKind.VIDEO, ArtifactKind.IMAGE)


async def shown(
    stub: "ArtifactServiceAsyncStub",
    state: RequestState,
    policy: CallPolicy,
    inline_bytes_max: int = INLINE_BYTES_MAX,
) -> Generation:
    """The request with what it made; a file that cannot be had says why in its place."""
    generation = Generation.of(state)
    video = generation.video
    records = [
        record
        for record in state.artifacts
        if record.completed_at is not None
        and record.kind in _SHOWN
        # A preview is no more of use once the video is there.
        and (record.kind is not ArtifactKind.VIDEO or video is None or record == video)
    ]
    # The video first.
    records.sort(key=lambda record: record.kind is not ArtifactKind.VIDEO)
    media = [
        await _medium(stub, record, policy, inline_bytes_max) for record in records[:MEDIA_MAX]
    ]
    return Generation.of(state, media)


async def _medium(
    stub: "ArtifactServiceAsyncStub",
    record: ArtifactRecord,
    policy: CallPolicy,
    inline_bytes_max: int,
) -> Media:
    if record.size_bytes > inline_bytes_max:
        how = f'client.save_artifact("{record.artifact_id}", "{record.name or "file"}")'
        return Media(record, None, f"{size_text(record.size_bytes)}, not shown here; {how}")
    download = Download(stub, record.artifact_id, policy)
    try:
        async with aclosing(download.chunks()) as chunks:
            return Media(record, b"".join([chunk async for chunk in chunks]))
    except FastVideoError as error:
        return Media(record, None, error.message)
