"""The port of the blob store."""

from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Protocol

from fastvideo.errors import FailedPrecondition

CHUNK_BYTES_MAX = 1 << 20
"""No chunk that a store gives out is longer."""


class CorruptBlob(FailedPrecondition):
    """The bytes under a digest do not have it."""

    default_reason: ClassVar[str] = "CORRUPT_BLOB"


class KeptByStore(FailedPrecondition):
    """The store does not let a blob go: it is there as before."""

    default_reason: ClassVar[str] = "KEPT_BY_STORE"


@dataclass(frozen=True, slots=True)
class Blob:
    """A stored blob: SHA-256 in lower-case hexadecimal, and its length."""

    digest: str
    size_bytes: int
    # By the store's clock; only lists say it.
    stored_at: datetime | None = field(default=None, compare=False)


class BlobStore(Protocol):
    """Content-addressed bytes. All methods raise Unavailable when the store does not answer."""

    async def put(self, chunks: AsyncIterable[bytes], expected_digest: str | None = None) -> Blob:
        """Store bytes as they come, in bounded memory; visible once all are there.

        Bytes that are there already are not stored a second time. An error of `chunks` is passed
        on and leaves nothing, as does InvalidField: the bytes do not have the expected digest.
        """
        ...

    def read(self, digest: str, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """The bytes from `start` to before `stop` (None: to the end).

        Raises NotFound, InvalidField for a range that the blob does not have, and, after the last
        chunk of a blob that is read whole, CorruptBlob when it does not have its digest.
        """
        ...

    async def head(self, digest: str) -> Blob:
        """What is stored under a digest. Raises NotFound."""
        ...

    async def exists(self, digest: str) -> bool:
        """Whether something is stored under a digest."""
        ...

    async def delete(self, digest: str) -> None:
        """Remove a blob; nothing happens when it is not there.

        Raises KeptByStore when the store refuses. After Unavailable it may be gone or not.
        """
        ...

    def list(self) -> AsyncIterator[Blob]:
        """All blobs, in no order, and when each was stored."""
        ...

    async def remove_older(self, before: datetime) -> int:
        """Remove the blobs that were stored before a moment; how many there were."""
        ...

    async def remove_unfinished(self, before: datetime) -> int:
        """Remove what puts that died before a moment left behind; how many there were."""
        ...
