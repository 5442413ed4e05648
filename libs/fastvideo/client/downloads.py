"""An artifact's bytes, taken up again after a cut and verified by digest."""

import asyncio
import hashlib
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO

from fastvideo import wire
from fastvideo.api.artifacts.v1 import artifacts_pb2, artifacts_pb2_grpc
from fastvideo.artifacts.types import ArtifactRecord
from fastvideo.client.calls import Backoff, CallPolicy, Silence, typed_errors
from fastvideo.errors import CorruptLog, FastVideoError, Unavailable


class Download:
    """One artifact on its way: iterate `chunks`; the bytes are verified when they end."""

    def __init__(
        self,
        stub: "artifacts_pb2_grpc.ArtifactServiceAsyncStub",
        artifact_id: str,
        policy: CallPolicy,
    ) -> None:
        self._stub = stub
        self._artifact_id = artifact_id
        self._policy = policy
        self._hash = hashlib.sha256()
        self._received = 0
        self._record: ArtifactRecord | None = None

    @property
    def record(self) -> ArtifactRecord:
        """The artifact's record, which comes before the first byte."""
        if self._record is None:
            raise CorruptLog("the server sent no record", subject=self._artifact_id)
        return self._record

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The bytes in order. Raises a FastVideoError with reason DIGEST_MISMATCH at the end
        when they are not those of the record."""
        backoff = Backoff(self._policy)
        silence = Silence(self._policy)
        while self._record is None or self._received < self._record.size_bytes:
            before = self._received
            lost: Unavailable | None = None
            silence.begin()
            try:
                async with aclosing(self._stretch()) as stretch:
                    async for chunk in stretch:
                        yield chunk
            except Unavailable as error:
                lost = error
            if self._received > before:
                silence.heard()
                backoff.reset()
            elif silence.is_over():
                raise lost or Unavailable("the download does not go on", subject=self._artifact_id)
            else:
                await backoff.pause()
        self._verify()

    async def _stretch(self) -> AsyncGenerator[bytes, None]:
        """What one call gives."""
        request = artifacts_pb2.GetArtifactRequest(
            artifact_id=self._artifact_id, start=self._received
        )
        with typed_errors():
            call = self._stub.GetArtifact(request)
        try:
            with typed_errors():
                async for response in call:
                    if response.WhichOneof("message") == "record":
                        self._meet(wire.from_proto(ArtifactRecord, response.record))
                        continue
                    self._received += len(response.chunk)
                    self._hash.update(response.chunk)
                    yield response.chunk
        finally:
            call.cancel()

    def _meet(self, record: ArtifactRecord) -> None:
        if self._record is not None and self._record.digest != record.digest:
            raise CorruptLog("the artifact changed while it was read", subject=self._artifact_id)
        self._record = record

    def _verify(self) -> None:
        digest = self._hash.hexdigest()
        if (digest, self._received) != (self.record.digest, self.record.size_bytes):
            raise FastVideoError(
                f"artifact {self._artifact_id} arrived with digest {digest}, "
                f"{self._received} bytes; its record says {self.record.digest}, "
                f"{self.record.size_bytes} bytes",
                reason="DIGEST_MISMATCH",
                subject=self._artifact_id,
            )


async def save(download: Download, path: Path) -> ArtifactRecord:
    """Write the artifact to a file, which appears only when it is whole and verified."""
    part = await asyncio.to_thread(_open_part, path)
    try:
        async with aclosing(download.chunks()) as chunks:
            async for chunk in chunks:
                await asyncio.to_thread(part.write, chunk)
        await asyncio.to_thread(_publish, part, path)
    except BaseException:
        _discard(part)
        raise
    return download.record


def _open_part(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.part").open("xb")


def _publish(part: BinaryIO, path: Path) -> None:
    part.close()
    Path(part.name).replace(path)


def _discard(part: BinaryIO) -> None:
    part.close()
    Path(part.name).unlink(missing_ok=True)
