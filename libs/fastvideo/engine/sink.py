"""Where artifacts go: a port, and the adapter that keeps them in this process."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fastvideo.artifacts.types import ArtifactKind, ArtifactRecord, MediaInfo, Producer
from fastvideo.clock import Clock
from fastvideo.errors import AlreadyExists, Cancelled, NotFound, ResourceExhausted


@dataclass(frozen=True, slots=True, kw_only=True)
class NewArtifact:
    """What is known of an artifact before its bytes are stored."""

    artifact_id: str
    kind: ArtifactKind
    name: str
    content_type: str
    producer: Producer
    media: MediaInfo | None = None
    parents: tuple[str, ...] = ()
    tenant_id: str = ""
    # A stored artifact of the same request that previews this one's media stream.
    preview_artifact_id: str = ""


class StreamCancelled(Cancelled):
    """An output's stream was cancelled before all of it was stored."""

    default_reason = "STREAM_CANCELLED"


def always() -> bool:
    """For what is wanted to its end."""
    return True


class ArtifactSink(Protocol):
    """Stores artifacts; putting the same one again gives the record that is there."""

    def put(
        self, artifact: NewArtifact, data: bytes, wanted: Callable[[], bool] = always
    ) -> ArtifactRecord:
        """Store an artifact; blocks until it is durable.

        Raises Unavailable when the store did not answer in time, AlreadyExists when other
        bytes are stored under its id, and StreamCancelled when it was not wanted any more before
        all of it was sent; then nothing is kept.
        """
        ...


class ArtifactSource(Protocol):
    """Gives the bytes of stored artifacts, such as latents that a request names."""

    def get(self, artifact_id: str) -> bytes:
        """The bytes; blocks. Raises NotFound and Unavailable."""
        ...


class BlobShelf(Protocol):
    """Keeps bytes by their digest, such as snapshots; whoever has the digest finds them."""

    def put_blob(self, data: bytes) -> str:
        """Keep bytes and give their SHA-256; blocks until they are durable.

        Raises Unavailable when the store did not answer in time, ResourceExhausted for too many.
        """
        ...

    def get_blob(self, digest: str, size_bytes: int) -> bytes:
        """The bytes, of which there must be so many; blocks.

        Raises NotFound, Unavailable, and CorruptBlob for other bytes.
        """
        ...


class LocalBlobs:
    """Blobs in this process's memory; the oldest go when they are too many bytes.

    Safe from any thread.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def put_blob(self, data: bytes) -> str:
        """Keep bytes. Raises ResourceExhausted for more than fit alone."""
        if len(data) > self._bytes_max:
            raise ResourceExhausted(
                f"the blob has {len(data)} bytes; the most is {self._bytes_max}",
                subject="blob_bytes",
                attributes={"bytes_max": str(self._bytes_max)},
            )
        digest = hashlib.sha256(data).hexdigest()
        with self._lock:
            if digest not in self._kept:
                self._bytes += len(data)
            self._kept[digest] = data
            self._kept.move_to_end(digest)
            while self._bytes > self._bytes_max:
                _, gone = self._kept.popitem(last=False)
                self._bytes -= len(gone)
        return digest

    def get_blob(self, digest: str, size_bytes: int) -> bytes:
        """The bytes. Raises NotFound."""
        with self._lock:
            if digest not in self._kept:
                raise NotFound(f"no blob {digest}", reason="BLOB_NOT_FOUND", subject=digest)
            return self._kept[digest]

    @property
    def in_use_bytes(self) -> int:
        """Bytes of all blobs."""
        return self._bytes


class LocalArtifacts:
    """Artifacts in this process's memory, until they are taken; safe from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stored: dict[str, tuple[ArtifactRecord, bytes]] = {}
        self._lock = threading.Lock()

    def put(
        self, artifact: NewArtifact, data: bytes, wanted: Callable[[], bool] = always
    ) -> ArtifactRecord:
        if not wanted():
            raise StreamCancelled(f"{artifact.name} is not wanted", subject=artifact.artifact_id)
        digest = hashlib.sha256(data).hexdigest()
        now = self._clock.now()
        record = ArtifactRecord(
            artifact_id=artifact.artifact_id,
            kind=artifact.kind,
            name=artifact.name,
            content_type=artifact.content_type,
            digest=digest,
            size_bytes=len(data),
            producer=artifact.producer,
            media=artifact.media,
            parents=artifact.parents,
            created_at=now,
            completed_at=now,
            tenant_id=artifact.tenant_id,
        )
        with self._lock:
            known, _ = self._stored.setdefault(artifact.artifact_id, (record, data))
        if known.digest != digest:
            raise AlreadyExists(
                f"artifact {artifact.artifact_id} holds other bytes", subject=artifact.artifact_id
            )
        return known

    def get(self, artifact_id: str) -> bytes:
        """The bytes of an artifact. Raises NotFound."""
        with self._lock:
            if artifact_id not in self._stored:
                raise NotFound(f"no artifact {artifact_id}", subject=artifact_id)
            return self._stored[artifact_id][1]

    def take(self, artifact_id: str) -> tuple[ArtifactRecord, bytes]:
        """The artifact, which is no longer kept after that. Raises NotFound."""
        with self._lock:
            if artifact_id not in self._stored:
                raise NotFound(f"no artifact {artifact_id}", subject=artifact_id)
            return self._stored.pop(artifact_id)

    def discard(self, request_id: str) -> None:
        """Let go of everything that a request made."""
        with self._lock:
            for artifact_id, (record, _) in list(self._stored.items()):
                if record.producer.request_id == request_id:
                    del self._stored[artifact_id]
