"""The rules of a media stream: `media.init`, then chunks, then one `media.complete`.

The functions here build the next legal event of a stream from what the stream already is, so
an index that jumps, a gap between byte ranges, or totals that do not match cannot be built.
Folding a log that holds such a thing raises CorruptLog.
"""

import math
from dataclasses import dataclass, replace

from fastvideo.artifacts.events import (
    BufferRef,
    ByteRange,
    MediaChunkAdded,
    MediaCompleted,
    MediaInitialized,
)
from fastvideo.artifacts.types import ArtifactKind, MediaInfo
from fastvideo.errors import CorruptLog, FailedPrecondition, InvalidField

MediaEvent = MediaInitialized | MediaChunkAdded | MediaCompleted

STREAMED_KINDS = frozenset({ArtifactKind.VIDEO, ArtifactKind.AUDIO})
"""Kinds whose media has a time axis, so that it is told of as a stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaStream:
    """A media stream so far. Previews count as chunks, but their bytes are not the stream's."""

    artifact_id: str
    stream_id: str
    media: MediaInfo
    chunks: int = 0
    # Bytes of the final chunks, which follow each other without a gap from byte 0.
    size_bytes: int = 0
    # End of the last final chunk.
    stop_seconds: float = 0.0
    completed: bool = False


def initialize(
    artifact_id: str, stream_id: str, kind: ArtifactKind, media: MediaInfo
) -> MediaInitialized:
    """The first event of a stream. Raises InvalidField for media that cannot be such a stream."""
    check_media(kind, media)
    if kind not in STREAMED_KINDS:
        raise InvalidField("kind", kind.value, ", ".join(sorted(STREAMED_KINDS)))
    return MediaInitialized(artifact_id=artifact_id, stream_id=stream_id, media=media)


def add_chunk(
    stream: MediaStream,
    source: ByteRange | BufferRef,
    *,
    stop_seconds: float,
    final: bool,
) -> MediaChunkAdded:
    """The stream's next chunk; its index, codec and start follow from the stream."""
    _require_open(stream)
    if final and isinstance(source, ByteRange) and source.start != stream.size_bytes:
        raise InvalidField("byte_range.start", source.start, f"{stream.size_bytes}, without a gap")
    return MediaChunkAdded(
        artifact_id=stream.artifact_id,
        stream_id=stream.stream_id,
        index=stream.chunks,
        source=source,
        codec=stream.media.codec,
        start_seconds=stream.stop_seconds,
        stop_seconds=stop_seconds,
        final=final,
    )


def complete(stream: MediaStream) -> MediaCompleted:
    """The stream's last event, with the totals of its chunks."""
    _require_open(stream)
    if stream.size_bytes == 0:
        raise FailedPrecondition(
            f"stream {stream.stream_id} has no final chunk",
            reason="MEDIA_EMPTY",
            subject=stream.stream_id,
        )
    return MediaCompleted(
        artifact_id=stream.artifact_id,
        stream_id=stream.stream_id,
        chunks=stream.chunks,
        size_bytes=stream.size_bytes,
        duration_seconds=stream.stop_seconds,
    )


def evolve(stream: MediaStream | None, event: MediaEvent) -> MediaStream:
    """The stream after an event. Raises CorruptLog when the event cannot follow."""
    if isinstance(event, MediaInitialized):
        if stream is not None:
            raise _broken(event, "a stream begins once")
        return MediaStream(
            artifact_id=event.artifact_id, stream_id=event.stream_id, media=event.media
        )
    if stream is None or stream.stream_id != event.stream_id:
        raise _broken(event, "media.init comes first")
    if stream.completed:
        raise _broken(event, "nothing follows media.complete")
    if isinstance(event, MediaCompleted):
        totals = (event.chunks, event.size_bytes, event.duration_seconds)
        if totals != (stream.chunks, stream.size_bytes, stream.stop_seconds):
            raise _broken(event, "totals match the chunks")
        return replace(stream, completed=True)
    return _with_chunk(stream, event)


def check_media(kind: ArtifactKind, media: MediaInfo) -> None:
    """Raise InvalidField unless the media can be of that kind."""
    if not media.container or not media.codec:
        raise InvalidField("media", f"{media.container}/{media.codec}", "a container and a codec")
    if kind is ArtifactKind.VIDEO or kind is ArtifactKind.IMAGE:
        for name in ("width", "height"):
            if getattr(media, name) <= 0:
                raise InvalidField(f"media.{name}", getattr(media, name), "1 or more pixels")
    if kind is ArtifactKind.VIDEO and not (math.isfinite(media.fps) and media.fps > 0):
        raise InvalidField("media.fps", media.fps, "a finite rate above 0")


def duration_s(media: MediaInfo) -> float:
    """Length in seconds that frames and rate give; 0 when there is no rate."""
    return media.frames / media.fps if media.fps else 0.0


def _with_chunk(stream: MediaStream, event: MediaChunkAdded) -> MediaStream:
    if event.index != stream.chunks or event.codec != stream.media.codec:
        raise _broken(event, f"chunk {stream.chunks} of codec {stream.media.codec} is next")
    if event.start_seconds != stream.stop_seconds:
        raise _broken(event, "chunks follow each other in time")
    if not event.final:
        return replace(stream, chunks=stream.chunks + 1)
    if isinstance(event.source, ByteRange):
        if event.source.start != stream.size_bytes:
            raise _broken(event, "byte ranges follow each other without a gap")
        size_bytes = event.source.stop
    else:
        size_bytes = stream.size_bytes + event.source.size_bytes
    return replace(
        stream,
        chunks=stream.chunks + 1,
        size_bytes=size_bytes,
        stop_seconds=event.stop_seconds,
    )


def _require_open(stream: MediaStream) -> None:
    if stream.completed:
        raise FailedPrecondition(
            f"stream {stream.stream_id} is complete",
            reason="MEDIA_COMPLETE",
            subject=stream.stream_id,
        )


def _broken(event: MediaEvent, rule: str) -> CorruptLog:
    return CorruptLog(
        f"{type(event).__name__} of stream {event.stream_id} breaks the rule: {rule}",
        reason="MEDIA_ORDER",
        subject=event.artifact_id,
    )
