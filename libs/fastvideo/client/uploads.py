"""A file on its way to the server, sent anew from its start after a cut, and verified."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fastvideo import wire
from fastvideo.api.artifacts.v1 import artifacts_pb2
from fastvideo.api.common.v1 import artifact_pb2
from fastvideo.artifacts.input_files import FIELD, UPLOAD_BYTES_MAX, too_large
from fastvideo.artifacts.types import ArtifactKind, ArtifactRecord
from fastvideo.client.calls import CallPolicy, call
from fastvideo.client.submission import member, renamed
from fastvideo.errors import InvalidField

if TYPE_CHECKING:
    from fastvideo.api.artifacts.v1.artifacts_pb2_grpc import ArtifactServiceAsyncStub

Source = Path | str | bytes
"""A file by its path, or its bytes."""

_CHUNK_BYTES: Final = 256 * 1024


async def upload(
    stub: "ArtifactServiceAsyncStub", source: Source, kind: ArtifactKind, policy: CallPolicy
) -> ArtifactRecord:
    """The record of the stored file.

    Raises OSError for a path that cannot be read, InvalidField naming `source` for a file that
    is none of its kind, and ResourceExhausted for one that is too large.
    """
    kind = member("kind", kind, ArtifactKind)
    if not isinstance(source, bytes | str | Path):
        raise InvalidField("source", source, "the path of a file, or its bytes")
    data = source if isinstance(source, bytes) else await asyncio.to_thread(_read, Path(source))
    if len(data) > UPLOAD_BYTES_MAX:
        raise too_large()
    header = artifacts_pb2.PutArtifactHeader(
        kind=artifact_pb2.ArtifactKind.Value(f"ARTIFACT_KIND_{kind.upper()}"),
        name="" if isinstance(source, bytes) else Path(source).name,
        expected_digest=hashlib.sha256(data).hexdigest(),
    )

    def put(data: bytes, /, *, timeout: float) -> Awaitable[artifacts_pb2.PutArtifactResponse]:
        return stub.PutArtifact(_messages(header, data), timeout=timeout)

    with renamed({FIELD: "source", "header.kind": "kind"}):
        response = await call(put, data, policy)
    return wire.from_proto(ArtifactRecord, response.record)


def _read(path: Path) -> bytes:
    """The file's bytes, or the first of too many."""
    with path.open("rb") as file:
        return file.read(UPLOAD_BYTES_MAX + 1)


async def _messages(
    header: artifacts_pb2.PutArtifactHeader, data: bytes
) -> AsyncIterator[artifacts_pb2.PutArtifactRequest]:
    yield artifacts_pb2.PutArtifactRequest(header=header)
    for start in range(0, len(data), _CHUNK_BYTES):
        yield artifacts_pb2.PutArtifactRequest(chunk=data[start : start + _CHUNK_BYTES])
