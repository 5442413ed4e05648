"""A put: the artifact begins in the log, its bytes go to the store, then it is completed."""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from fastvideo.artifacts.events import BufferRef
from fastvideo.artifacts.state import (
    CompleteArtifact,
    CreateArtifact,
    GrowArtifact,
    KeepArtifact,
)
from fastvideo.artifacts.types import ArtifactRecord
from fastvideo.blobs import Blob, BlobStore
from fastvideo.clock import Clock
from fastvideo.errors import InvalidField, ResourceExhausted
from fastvideo.telemetry.logging import get_logger
from fastvideo_artifacts.history import ArtifactHistory

_LOG = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """Bounds of one upload, bytes."""

    artifact_bytes_max: int
    update_every_bytes: int


class Uploads:
    """Stores artifacts. What breaks off leaves no completed record and no part of a blob."""

    def __init__(
        self, history: ArtifactHistory, blobs: BlobStore, clock: Clock, limits: UploadLimits
    ) -> None:
        self._history = history
        self._blobs = blobs
        self._clock = clock
        self._limits = limits

    async def put(
        self,
        artifact: ArtifactRecord,
        chunks: AsyncIterator[bytes],
        expected_digest: str,
        preview: BufferRef | None = None,
    ) -> ArtifactRecord:
        """The completed record; that of the first put when the artifact is there already, kept for
        as long as either asked.

        `artifact.created` is committed before the first byte is stored, and the bytes are stored
        before `artifact.completed` is. Raises AlreadyExists for other bytes under a completed
        id, InvalidField for no bytes and for another digest than was expected, and
        ResourceExhausted past the size limit.
        """
        state = await self._history.apply(
            artifact, CreateArtifact(record=artifact, preview=preview)
        )
        if state.completed and expected_digest == state.record.digest:
            keep = KeepArtifact(expires_at=artifact.expires_at)
            return (await self._history.apply(artifact, keep)).record
        stream = self._told(artifact, self._bounded(chunks))
        if state.completed:
            blob = await measure(stream)  # Only to compare: the bytes are there.
        else:
            blob = await self._blobs.put(stream, expected_digest or None)
        command = CompleteArtifact(
            digest=blob.digest,
            size_bytes=blob.size_bytes,
            producer=artifact.producer,
            at=self._clock.now(),
            expires_at=artifact.expires_at,
        )
        record = (await self._history.apply(artifact, command)).record
        _LOG.info("artifact stored", kind=record.kind.value, size_bytes=record.size_bytes)
        return record

    async def _bounded(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The same chunks; raises when they are none, or too many."""
        size_bytes = 0
        bytes_max = self._limits.artifact_bytes_max
        async for chunk in chunks:
            size_bytes += len(chunk)
            if size_bytes > bytes_max:
                raise ResourceExhausted(
                    f"the artifact is larger than {bytes_max} bytes",
                    subject="artifact_bytes",
                    attributes={"bytes_max": str(bytes_max)},
                )
            yield chunk
        if size_bytes == 0:
            raise InvalidField("chunk", "", "at least one byte")

    async def _told(
        self, artifact: ArtifactRecord, chunks: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        """The same chunks, with `artifact.updated` now and then while they pass."""
        size_bytes = told_bytes = 0
        async for chunk in chunks:
            yield chunk
            size_bytes += len(chunk)
            if size_bytes - told_bytes >= self._limits.update_every_bytes:
                told_bytes = size_bytes
                await self._history.apply(artifact, GrowArtifact(size_bytes=size_bytes))


async def measure(chunks: AsyncIterator[bytes]) -> Blob:
    """Digest and size of bytes that are stored nowhere."""
    hashed = hashlib.sha256()
    size_bytes = 0
    async for chunk in chunks:
        hashed.update(chunk)
        size_bytes += len(chunk)
    return Blob(hashed.hexdigest(), size_bytes)
