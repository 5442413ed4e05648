"""An artifact's life: created, growing, completed, and given up. Pure folds, no IO.

A put is three commands: CreateArtifact before the first byte, GrowArtifact now and then,
CompleteArtifact when the bytes are stored; KeepArtifact where they were stored before. Whoever
puts an artifact again, after a crash or on another worker, repeats the commands: what has happened
already is not told twice, and other bytes or another meaning under the same id are AlreadyExists.
Once its bytes are given up, a put under the same id begins another life.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from fastvideo.artifacts import media
from fastvideo.artifacts.events import (
    ArtifactCompleted,
    ArtifactCreated,
    ArtifactDeleted,
    ArtifactUpdated,
    BufferRef,
    ByteRange,
    MediaChunkAdded,
    MediaCompleted,
    MediaInitialized,
)
from fastvideo.artifacts.media import MediaStream
from fastvideo.artifacts.types import ArtifactRecord, Producer
from fastvideo.errors import (
    AlreadyExists,
    CorruptLog,
    FailedPrecondition,
    InvalidField,
    Unavailable,
)
from fastvideo.ids import derived_id

ArtifactEvent = (
    ArtifactCreated
    | ArtifactUpdated
    | ArtifactCompleted
    | ArtifactDeleted
    | MediaInitialized
    | MediaChunkAdded
    | MediaCompleted
)

MAIN_STREAM = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactState:
    """What the log says of an artifact, folded."""

    record: ArtifactRecord
    # The largest size told so far.
    size_bytes: int = 0
    media: MediaStream | None = None

    @property
    def completed(self) -> bool:
        """Whether the bytes are stored and verified."""
        return self.record.completed_at is not None

    @property
    def deleted(self) -> bool:
        """Whether the bytes were given up."""
        return self.record.deleted_at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateArtifact:
    """Begin a put. The record has no digest, size or completion yet."""

    record: ArtifactRecord
    # The preview of its media stream, if one is stored.
    preview: BufferRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowArtifact:
    """Tell how many bytes have arrived."""

    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteArtifact:
    """End a put: these bytes are stored, and this producer made them."""

    digest: str
    size_bytes: int
    producer: Producer
    at: datetime
    # Of an input: it is kept until then, or for as long as an earlier put asked; None is for ever.
    expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepArtifact:
    """Keep a completed input for longer, until a moment or, with None, for ever."""

    expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteArtifact:
    """Give up the bytes of a completed artifact; of an input that has expired, when it has."""

    # EXPIRED, "deleted" or "tenant_erased".
    reason: str
    at: datetime


ArtifactCommand = CreateArtifact | GrowArtifact | CompleteArtifact | KeepArtifact | DeleteArtifact

EXPIRED: Final = "expired"


def artifact_id_of(request_id: str, node_id: str, output: str) -> str:
    """The id of a node's output, the same in every attempt at the request."""
    return derived_id("art", request_id, node_id, output)


def stream_of(artifact_id: str) -> str:
    """The artifact's stream in the event log."""
    return f"artifact-{artifact_id}"


def decide(state: ArtifactState | None, command: ArtifactCommand) -> tuple[ArtifactEvent, ...]:
    """What the command adds to the artifact's history; nothing when it is a repeat."""
    if isinstance(command, CreateArtifact):
        return _create(state, command)
    if state is None:
        raise FailedPrecondition("the artifact has not been created", reason="NOT_CREATED")
    if isinstance(command, CompleteArtifact):
        return _complete(state, command)
    if isinstance(command, KeepArtifact):
        return _keep(state, command.expires_at)
    if isinstance(command, DeleteArtifact):
        return _delete(state, command)
    if state.completed or command.size_bytes <= state.size_bytes:
        return ()
    return (ArtifactUpdated(artifact_id=state.record.artifact_id, size_bytes=command.size_bytes),)


def evolve(state: ArtifactState | None, event: ArtifactEvent) -> ArtifactState:
    """The artifact after an event. Raises CorruptLog when the event cannot follow."""
    if isinstance(event, ArtifactCreated):
        if state is not None and not state.deleted:
            raise CorruptLog("an artifact is created once", subject=event.record.artifact_id)
        return ArtifactState(record=event.record)
    if state is None:
        raise CorruptLog(f"{type(event).__name__} before ArtifactCreated")
    if isinstance(event, ArtifactDeleted):
        return _deleted(state, event)
    if isinstance(event, ArtifactUpdated) and event.kept and not state.deleted:
        return replace(state, record=replace(state.record, expires_at=event.expires_at))
    if state.completed:
        raise CorruptLog(
            f"{type(event).__name__} after ArtifactCompleted", subject=state.record.artifact_id
        )
    if isinstance(event, ArtifactCompleted):
        return replace(state, record=event.record, size_bytes=event.record.size_bytes)
    if isinstance(event, ArtifactUpdated):
        return replace(state, size_bytes=event.size_bytes)
    return replace(state, media=media.evolve(state.media, event))


def _create(state: ArtifactState | None, command: CreateArtifact) -> tuple[ArtifactEvent, ...]:
    record = command.record
    if state is not None and not state.deleted:
        _require_same_meaning(state.record, record)
        return ()
    if record.digest or record.size_bytes or record.completed_at is not None:
        raise InvalidField("record", "completed", "a record without digest, size and completion")
    created = ArtifactCreated(record=record)
    if record.media is None:
        return (created,)
    media.check_media(record.kind, record.media)
    if record.kind not in media.STREAMED_KINDS:
        return (created,)
    begun = media.initialize(record.artifact_id, MAIN_STREAM, record.kind, record.media)
    if command.preview is None:
        return (created, begun)
    stream = media.evolve(None, begun)
    length_s = media.duration_s(record.media)
    preview = media.add_chunk(stream, command.preview, stop_seconds=length_s, final=False)
    return (created, begun, preview)


def _complete(state: ArtifactState, command: CompleteArtifact) -> tuple[ArtifactEvent, ...]:
    if command.size_bytes <= 0:
        raise InvalidField("size_bytes", command.size_bytes, "1 or more bytes")
    if state.deleted:
        raise FailedPrecondition(
            f"artifact {state.record.artifact_id} was deleted meanwhile",
            reason="ARTIFACT_DELETED",
            subject=state.record.artifact_id,
        )
    if state.completed:
        if state.record.digest != command.digest:
            raise AlreadyExists(
                f"artifact {state.record.artifact_id} is complete with other bytes: "
                f"{state.record.digest}, not {command.digest}",
                reason="DIGEST_DIFFERS",
                subject=state.record.artifact_id,
                attributes={"digest": state.record.digest},
            )
        return _keep(state, command.expires_at)
    record = replace(
        state.record,
        digest=command.digest,
        size_bytes=command.size_bytes,
        producer=command.producer,
        completed_at=command.at,
        expires_at=_later(state.record.expires_at, command.expires_at),
    )
    return (*_end_media(state.media, command.size_bytes), ArtifactCompleted(record=record))


def _keep(state: ArtifactState, asked: datetime | None) -> tuple[ArtifactEvent, ...]:
    record = state.record
    if state.deleted:
        raise Unavailable(
            f"artifact {record.artifact_id} expired a moment ago; put it again",
            reason="ARTIFACT_DELETED",
            subject=record.artifact_id,
        )
    until = _later(record.expires_at, asked)
    if until == record.expires_at:
        return ()
    return (ArtifactUpdated(artifact_id=record.artifact_id, kept=True, expires_at=until),)


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    return None if one is None or other is None else max(one, other)


def _delete(state: ArtifactState, command: DeleteArtifact) -> tuple[ArtifactEvent, ...]:
    if state.deleted or not state.completed:
        return ()
    record = state.record
    if command.reason == EXPIRED and record.expires_at and command.at < record.expires_at:
        return ()  # It was put again meanwhile.
    deleted = ArtifactDeleted(
        artifact_id=record.artifact_id,
        digest=record.digest,
        size_bytes=record.size_bytes,
        reason=command.reason,
        deleted_at=command.at,
    )
    return (deleted,)


def _deleted(state: ArtifactState, event: ArtifactDeleted) -> ArtifactState:
    if not state.completed or state.deleted:
        raise CorruptLog(
            f"ArtifactDeleted of what is not there: {event.artifact_id}", subject=event.artifact_id
        )
    return replace(state, record=replace(state.record, deleted_at=event.deleted_at))


def _end_media(stream: MediaStream | None, size_bytes: int) -> tuple[ArtifactEvent, ...]:
    """The rest of the file as the stream's last chunk, and its end."""
    if stream is None:
        return ()
    rest = ByteRange(start=stream.size_bytes, stop=size_bytes)
    chunk = media.add_chunk(stream, rest, stop_seconds=media.duration_s(stream.media), final=True)
    return chunk, media.complete(media.evolve(stream, chunk))


def _require_same_meaning(known: ArtifactRecord, given: ArtifactRecord) -> None:
    """A repeated put may come from another worker and attempt, but means the same thing."""
    for field in ("kind", "name", "content_type", "media", "parents", "tenant_id"):
        _require_same(known.artifact_id, field, getattr(known, field), getattr(given, field))
    for field in ("request_id", "node_id"):
        here, there = getattr(known.producer, field), getattr(given.producer, field)
        _require_same(known.artifact_id, f"producer.{field}", here, there)


def _require_same(artifact_id: str, field: str, known: object, given: object) -> None:
    if known != given:
        raise AlreadyExists(
            f"artifact {artifact_id} exists with another {field}: {known!r}, not {given!r}",
            reason="MEANING_DIFFERS",
            subject=artifact_id,
            attributes={"field": field},
        )
