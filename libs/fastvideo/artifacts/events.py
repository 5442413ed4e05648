"""What happens to an artifact and its media.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two. A value that means nothing cannot be built: InvalidField says which field is
wrong. The rules that span events are in `fastvideo.artifacts.media` and `state`.
"""

import math
from dataclasses import dataclass
from datetime import datetime

from fastvideo.artifacts.types import ArtifactRecord, MediaInfo
from fastvideo.errors import InvalidField


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactCreated:
    """artifact.created: before its first byte."""

    record: ArtifactRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactUpdated:
    """artifact.updated: while it grows, and when an input is put again."""

    artifact_id: str = ""
    size_bytes: int = 0
    # It is kept until `expires_at` from now on, for ever without one.
    kept: bool = False
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactCompleted:
    """artifact.completed: the bytes are stored and verified."""

    record: ArtifactRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactDeleted:
    """artifact.deleted: its bytes are given up; its record and history stay."""

    artifact_id: str = ""
    digest: str = ""
    size_bytes: int = 0
    # "expired", "deleted" or "tenant_erased".
    reason: str = ""
    deleted_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobRemovalDecided:
    """blob.removal_decided: no record has the digest; until the bytes are removed none may."""

    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobRemoved:
    """blob.removed: the bytes are gone; they may be stored again.

    `refused` says that the store did not let them go: they are there as before, and records may
    have them.
    """

    digest: str = ""
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaInitialized:
    """media.init: before any chunk."""

    artifact_id: str = ""
    stream_id: str = ""
    media: MediaInfo

    def __post_init__(self) -> None:
        _require(self.stream_id != "", "stream_id", self.stream_id, "a name")
        _require(self.media.container != "", "media.container", self.media.container, "a name")
        _require(self.media.codec != "", "media.codec", self.media.codec, "a name")


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteRange:
    """A range of an artifact's bytes, from `start` to before `stop`; never empty."""

    start: int = 0
    stop: int = 0

    def __post_init__(self) -> None:
        _require(self.start >= 0, "byte_range.start", self.start, "0 or more")
        _require(self.stop > self.start, "byte_range.stop", self.stop, f"more than {self.start}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferRef:
    """A shared buffer, by reference."""

    buffer_id: str = ""
    size_bytes: int = 0

    def __post_init__(self) -> None:
        _require(self.buffer_id != "", "buffer_ref.buffer_id", self.buffer_id, "an id")
        _require(self.size_bytes > 0, "buffer_ref.size_bytes", self.size_bytes, "1 or more")


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

    def __post_init__(self) -> None:
        allowed = "a ByteRange or a BufferRef"
        _require(isinstance(self.source, ByteRange | BufferRef), "source", self.source, allowed)
        _require(self.stream_id != "", "stream_id", self.stream_id, "a name")
        _require(self.codec != "", "codec", self.codec, "a name")
        _require(self.index >= 0, "index", self.index, "0 or more")
        start, stop = self.start_seconds, self.stop_seconds
        _require(math.isfinite(start) and start >= 0, "start_seconds", start, "0 or more")
        _require(math.isfinite(stop) and stop >= start, "stop_seconds", stop, f"{start} or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaCompleted:
    """media.complete: closes a stream; totals match its chunks."""

    artifact_id: str = ""
    stream_id: str = ""
    chunks: int = 0
    size_bytes: int = 0
    duration_seconds: float = 0.0

    def __post_init__(self) -> None:
        _require(self.stream_id != "", "stream_id", self.stream_id, "a name")
        _require(self.chunks > 0, "chunks", self.chunks, "1 or more")


def _require(holds: bool, field: str, value: object, allowed: str) -> None:
    if not holds:
        raise InvalidField(field, value, allowed)
