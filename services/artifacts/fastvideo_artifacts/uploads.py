"""A put: the artifact begins in the log, its bytes go to the store, then it is completed."""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from fastvideo.artifacts.state import CompleteArtifact, CreateArtifact, GrowArtifact
from fastvideo.artifacts.types import ArtifactRecord
from fastvideo.blobs import BlobStore
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
    """Stores artifacts. What breaks off leaves no completed record and no blob."""

    def __init__(
        self, history: ArtifactHistory, blobs: BlobStore, clock: Clock, limits: UploadLimits
    ) -> None:
        self._history = history
        self._blobs = blobs
        self._clock = clock
        self._limits = limits

    async def put(
        self, artifact: ArtifactRecord, chunks: AsyncIterator[bytes], expected_digest: str
    ) -> ArtifactRecord:
        """The completed record; that of the first put when the artifact is there already.

        `artifact.created` is committed before the first byte is stored, and the bytes are stored
        before `artifact.completed` is. Raises AlreadyExists for other bytes under a completed
        id, InvalidField for no bytes and for another digest than was expected, and
        ResourceExhausted past the size limit.
        """
        state = await self._history.apply(artifact, CreateArtifact(record=artifact))
        if state.completed and expected_digest == state.record.digest:
            return state.record
        measured = Measured(self._limits.artifact_bytes_max)
        stream = self._told(artifact, measured.through(chunks, expected_digest), measured)
        if state.completed:
            async for _ in stream:  # Only to compare: the bytes are there.
                pass
        else:
            await self._blobs.put(stream)
        command = CompleteArtifact(
            digest=measured.digest,
            size_bytes=measured.size_bytes,
            producer=artifact.producer,
            at=self._clock.now(),
        )
        record = (await self._history.apply(artifact, command)).record
        _LOG.info("artifact stored", kind=record.kind.value, size_bytes=record.size_bytes)
        return record

    async def _told(
        self, artifact: ArtifactRecord, chunks: AsyncIterator[bytes], measured: "Measured"
    ) -> AsyncIterator[bytes]:
        """The chunks, with `artifact.updated` now and then while they pass."""
        told_bytes = 0
        async for chunk in chunks:
            yield chunk
            if measured.size_bytes - told_bytes >= self._limits.update_every_bytes:
                told_bytes = measured.size_bytes
                await self._history.apply(artifact, GrowArtifact(size_bytes=told_bytes))


class Measured:
    """Size and digest of bytes that pass through."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    @property
    def digest(self) -> str:
        """SHA-256 of what has passed, lower-case hexadecimal."""
        return self._hash.hexdigest()

    async def through(
        self, chunks: AsyncIterator[bytes], expected_digest: str
    ) -> AsyncIterator[bytes]:
        """The same chunks; raises in place of the end when they are not acceptable."""
        async for chunk in chunks:
            self.size_bytes += len(chunk)
            if self.size_bytes > self._bytes_max:
                raise ResourceExhausted(
                    f"the artifact is larger than {self._bytes_max} bytes",
                    subject="artifact_bytes",
                    attributes={"bytes_max": str(self._bytes_max)},
                )
            self._hash.update(chunk)
            yield chunk
        if self.size_bytes == 0:
            raise InvalidField("chunk", "", "at least one byte")
        if expected_digest and expected_digest != self.digest:
            raise InvalidField("header.expected_digest", expected_digest, self.digest)
