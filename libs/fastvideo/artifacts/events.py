"""What happens to an artifact and its media.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from dataclasses import dataclass

from fastvideo.artifacts.types import ArtifactRecord, MediaInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactCreated:
    """artifact.created: before its first byte."""

    record: ArtifactRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactUpdated:
    """artifact.updated: while it grows."""

    artifact_id: str = ""
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactCompleted:
    """artifact.completed: the bytes are stored and verified."""

    record: ArtifactRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaInitialized:
    """media.init: before any chunk."""

    artifact_id: str = ""
    stream_id: str = ""
    media: MediaInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteRange:
    """A range of an artifact's bytes."""

    start: int = 0
    stop: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferRef:
    """A shared buffer, by reference."""

    buffer_id: str = ""
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaChunkAdded:
    """media.chunk: bytes or buffer of a stream, with their time."""

    artifact_id: str = ""
    stream_id: str = ""
    index: int = 0
    source: ByteRange | BufferRef
    codec: str = ""
    start_seconds: float = 0.0
    stop_seconds: float = 0.0
    # False for a preview.
    final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaCompleted:
    """media.complete: closes a stream; totals match its chunks."""

    artifact_id: str = ""
    stream_id: str = ""
    chunks: int = 0
    size_bytes: int = 0
    duration_seconds: float = 0.0
