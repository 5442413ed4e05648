"""A media stream that breaks its rules cannot be built."""

import math
from dataclasses import replace

import pytest

from fastvideo.artifacts import media
from fastvideo.artifacts.events import (
    BufferRef,
    ByteRange,
    MediaChunkAdded,
    MediaCompleted,
    MediaInitialized,
)
from fastvideo.artifacts.media import MediaStream
from fastvideo.artifacts.types import ArtifactKind, MediaInfo
from fastvideo.errors import CorruptLog, FailedPrecondition, InvalidField

VIDEO = MediaInfo(container="mp4", codec="h264", width=48, height=48, fps=8.0, frames=9)


def begun() -> MediaStream:
    event = media.initialize("art_1", "main", ArtifactKind.VIDEO, VIDEO)
    return media.evolve(None, event)


@pytest.mark.row("EVT-16")
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"source": None}, "source"),
        ({"source": (ByteRange(start=0, stop=1), "shm")}, "source"),
        ({"stream_id": ""}, "stream_id"),
        ({"codec": ""}, "codec"),
        ({"index": -1}, "index"),
        ({"start_seconds": -0.1}, "start_seconds"),
        ({"start_seconds": 2.0}, "stop_seconds"),
        ({"stop_seconds": math.nan}, "stop_seconds"),
        ({"stop_seconds": math.inf}, "stop_seconds"),
    ],
)
def test_an_invalid_chunk_cannot_be_built(fields: dict[str, object], field: str) -> None:
    good: dict[str, object] = {
        "artifact_id": "art_1",
        "stream_id": "main",
        "source": ByteRange(start=0, stop=10),
        "codec": "h264",
        "stop_seconds": 1.0,
    }
    MediaChunkAdded(**good)  # type: ignore[arg-type]
    with pytest.raises(InvalidField) as caught:
        MediaChunkAdded(**(good | fields))  # type: ignore[arg-type]
    assert caught.value.field == field


@pytest.mark.row("EVT-16")
@pytest.mark.parametrize("span", [(0, 0), (5, 5), (5, 4), (-1, 3)])
def test_an_empty_or_backward_byte_range_cannot_be_built(span: tuple[int, int]) -> None:
    with pytest.raises(InvalidField, match="byte_range"):
        ByteRange(start=span[0], stop=span[1])


@pytest.mark.row("EVT-16")
def test_a_buffer_reference_names_a_buffer_with_bytes() -> None:
    with pytest.raises(InvalidField, match="buffer_id"):
        BufferRef(buffer_id="", size_bytes=4)
    with pytest.raises(InvalidField, match="size_bytes"):
        BufferRef(buffer_id="shm-1", size_bytes=0)


@pytest.mark.row("EVT-15")
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"container": ""}, "media"),
        ({"codec": ""}, "media"),
        ({"width": 0}, "media.width"),
        ({"height": -2}, "media.height"),
        ({"fps": 0.0}, "media.fps"),
        ({"fps": math.nan}, "media.fps"),
    ],
)
def test_a_stream_begins_with_codec_container_dimensions_and_rate(
    changes: dict[str, object], field: str
) -> None:
    bad = replace(VIDEO, **changes)  # type: ignore[arg-type]
    with pytest.raises(InvalidField) as caught:
        media.initialize("art_1", "main", ArtifactKind.VIDEO, bad)
    assert caught.value.field == field


def test_only_kinds_with_a_time_axis_are_streams() -> None:
    with pytest.raises(InvalidField, match="kind"):
        media.initialize("art_1", "main", ArtifactKind.IMAGE, VIDEO)


@pytest.mark.row("EVT-17")
def test_totals_follow_from_the_chunks() -> None:
    stream = begun()
    preview = media.add_chunk(
        stream, BufferRef(buffer_id="shm-1", size_bytes=99), stop_seconds=0.5, final=False
    )
    stream = media.evolve(stream, preview)
    for span, stop_seconds in (((0, 10), 0.5), ((10, 25), 1.125)):
        chunk = media.add_chunk(
            stream, ByteRange(start=span[0], stop=span[1]), stop_seconds=stop_seconds, final=True
        )
        stream = media.evolve(stream, chunk)
    assert media.complete(stream) == MediaCompleted(
        artifact_id="art_1", stream_id="main", chunks=3, size_bytes=25, duration_seconds=1.125
    )


def test_a_gap_between_byte_ranges_is_refused() -> None:
    with pytest.raises(InvalidField, match=r"byte_range\.start"):
        media.add_chunk(begun(), ByteRange(start=1, stop=2), stop_seconds=1.0, final=True)


def test_a_stream_without_bytes_cannot_be_completed() -> None:
    with pytest.raises(FailedPrecondition):
        media.complete(begun())


@pytest.mark.row("EVT-17")
def test_a_stream_is_closed_once() -> None:
    stream = begun()
    chunk = media.add_chunk(stream, ByteRange(start=0, stop=9), stop_seconds=1.0, final=True)
    stream = media.evolve(stream, chunk)
    end = media.complete(stream)
    closed = media.evolve(stream, end)
    with pytest.raises(FailedPrecondition):
        media.complete(closed)
    with pytest.raises(FailedPrecondition):
        media.add_chunk(closed, ByteRange(start=9, stop=10), stop_seconds=2.0, final=True)
    with pytest.raises(CorruptLog, match="nothing follows"):
        media.evolve(closed, end)


def test_folding_a_log_that_breaks_the_order_says_so() -> None:
    stream = begun()
    init = MediaInitialized(artifact_id="art_1", stream_id="main", media=VIDEO)
    chunk = media.add_chunk(stream, ByteRange(start=0, stop=9), stop_seconds=1.0, final=True)
    with pytest.raises(CorruptLog, match="begins once"):
        media.evolve(stream, init)
    with pytest.raises(CorruptLog, match="comes first"):
        media.evolve(None, chunk)
    with pytest.raises(CorruptLog, match="is next"):
        media.evolve(stream, replace(chunk, index=1))
    with pytest.raises(CorruptLog, match="without a gap"):
        media.evolve(stream, replace(chunk, source=ByteRange(start=3, stop=9)))
    with pytest.raises(CorruptLog, match="in time"):
        media.evolve(stream, replace(chunk, start_seconds=0.5))
    end = media.complete(media.evolve(stream, chunk))
    with pytest.raises(CorruptLog, match="totals"):
        media.evolve(media.evolve(stream, chunk), replace(end, size_bytes=8))
