"""Blobs without a record: bytes by their digest, such as the snapshots that events name."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from fastvideo.api.artifacts.v1 import artifacts_pb2
from fastvideo.blobs import Blob, BlobStore
from fastvideo.clock import Clock
from fastvideo.errors import InvalidField, ResourceExhausted, Unavailable
from fastvideo.rpc.unknown_fields import refuse_unknown_fields
from fastvideo.telemetry.logging import get_logger
from fastvideo_artifacts.headers import DIGEST

_LOG: Final = get_logger(__name__)

CLEARING_S: Final = 600.0
"""Seconds between two looks for old blobs."""


@dataclass(frozen=True, slots=True)
class BlobLimits:
    """The largest blob, and how long one is kept: whoever needs it longer does without."""

    bytes_max: int
    kept: timedelta


class PlainBlobs:
    """Puts and gives blobs. A put that breaks off leaves nothing."""

    def __init__(self, blobs: BlobStore, limits: BlobLimits, clock: Clock) -> None:
        self._blobs = blobs
        self._limits = limits
        self._clock = clock

    async def put(self, header: artifacts_pb2.PutBlobHeader, chunks: AsyncIterator[bytes]) -> Blob:
        """The stored blob; putting it again changes nothing.

        Raises InvalidField for bytes of another digest or size than the header says, and
        ResourceExhausted for more than the limit, before any byte is stored.
        """
        refuse_unknown_fields(header)
        require_digest("header.digest", header.digest)
        bytes_max = self._limits.bytes_max
        if header.size_bytes > bytes_max:
            raise ResourceExhausted(
                f"the blob has {header.size_bytes} bytes; the most is {bytes_max}",
                subject="blob_bytes",
                attributes={"bytes_max": str(bytes_max)},
            )
        blob = await self._blobs.put(_exactly(header.size_bytes, chunks), header.digest)
        _LOG.info("blob stored", digest=blob.digest, size_bytes=blob.size_bytes)
        return blob

    def read(self, digest: str) -> AsyncIterator[bytes]:
        """The bytes. Raises NotFound, and CorruptBlob after the last of changed ones."""
        require_digest("digest", digest)
        return self._blobs.read(digest)

    async def keep_clear(self) -> None:
        """Remove what is older than it is kept, now and again; runs until it is cancelled."""
        while True:
            before = self._clock.now() - self._limits.kept
            try:
                removed = await self._blobs.remove_older(before)
                removed += await self._blobs.remove_unfinished(before)
            except Unavailable as error:
                _LOG.warning("old blobs were not removed", error=error.message)
            else:
                if removed:
                    _LOG.info("removed old blobs", count=removed)
            await asyncio.sleep(CLEARING_S)


def require_digest(field: str, value: str) -> None:
    """Raise InvalidField unless the value has the form of a digest."""
    if not DIGEST.fullmatch(value):
        raise InvalidField(field, value, "64 lower-case hexadecimal digits")


async def _exactly(size_bytes: int, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same chunks; raises when they are more or fewer bytes."""
    passed_bytes = 0
    async for chunk in chunks:
        passed_bytes += len(chunk)
        if passed_bytes > size_bytes:
            break
        yield chunk
    if passed_bytes != size_bytes:
        raise InvalidField("header.size_bytes", size_bytes, "the number of bytes that follow")
