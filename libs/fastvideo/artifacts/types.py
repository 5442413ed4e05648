"""Artifacts as data.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class ArtifactKind(StrEnum):
    """What an artifact is."""

    VIDEO = "video"
    IMAGE = "image"
    AUDIO = "audio"
    LATENT = "latent"
    TEXT = "text"
    METADATA = "metadata"
    SCORE = "score"
    TRACE = "trace"
    TRAINING_BATCH = "training_batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaInfo:
    """What is known of a media stream before its first byte."""

    # Such as "mp4".
    container: str = ""
    # Such as "h264".
    codec: str = ""
    # Pixels.
    width: int = 0
    height: int = 0
    # Frames per second.
    fps: float = 0.0
    frames: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """Who made an artifact, and with which versions."""

    request_id: str = ""
    session_id: str = ""
    program_id: str = ""
    node_id: str = ""
    model_id: str = ""
    model_instance_id: str = ""
    worker_id: str = ""
    attempt: int = 0
    # Component or package name to version: weights, adapters, libraries.
    versions: Mapping[str, str] = field(default_factory=dict)
    # The loop that wrote it, and the role of the worker that ran the loop.
    loop_id: str = ""
    role_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactRecord:
    """One stored, typed, content-addressed output."""

    artifact_id: str = ""
    kind: ArtifactKind
    # A file name for people, such as "video.mp4".
    name: str = ""
    content_type: str = ""
    # Lower-case hexadecimal SHA-256 of the bytes; empty until completed.
    digest: str = ""
    size_bytes: int = 0
    producer: Producer
    media: MediaInfo | None = None
    # Ids of the artifacts that this one was made from.
    parents: tuple[str, ...] = ()
    created_at: datetime
    completed_at: datetime | None = None
    tenant_id: str = ""
    # When its bytes were given up: expired, deleted or erased.
    deleted_at: datetime | None = None
    # Until when an input may be named by requests, which keep it for longer; None is for ever.
    expires_at: datetime | None = None
