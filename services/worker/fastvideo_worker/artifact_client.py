"""Artifacts to and from ArtifactService, called from threads beside the event loop."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, TypeVar

import grpc

from fastvideo import wire
from fastvideo.api.artifacts.v1 import artifacts_pb2, artifacts_pb2_grpc
from fastvideo.api.common.v1 import artifact_pb2
from fastvideo.artifacts.types import ArtifactRecord
from fastvideo.blobs import CorruptBlob
from fastvideo.engine.sink import NewArtifact, StreamCancelled, always
from fastvideo.errors import DeadlineExceeded, FailedPrecondition, Unavailable
from fastvideo.rpc.errors import from_rpc_error

CHUNK_BYTES: Final = 256 * 1024
# One try, and all tries together, seconds.
_TRY_S_MAX: Final = 20.0
_TOTAL_S_MAX: Final = 60.0
_PAUSE_S_FIRST: Final = 0.1
_PAUSE_S_MAX: Final = 2.0
# The largest artifact that a request may name as its input.
_INPUT_BYTES_MAX: Final = 256 * 1024 * 1024

_CUT_OFF: Final = "Internal error from Core"

T = TypeVar("T")


class GrpcArtifacts:
    """The sink, the source and the shelf of a worker that has an ArtifactService.

    Its methods block; they are called from any thread but the event loop's.
    """

    def __init__(self, channel: grpc.aio.Channel, loop: asyncio.AbstractEventLoop) -> None:
        self._stub = artifacts_pb2_grpc.ArtifactServiceStub(channel)
        self._loop = loop

    def put(
        self, artifact: NewArtifact, data: bytes, wanted: Callable[[], bool] = always
    ) -> ArtifactRecord:
        """Store an artifact, tried again under the same id while the service is away.

        Raises Unavailable when it stayed away, AlreadyExists when other bytes are stored,
        StreamCancelled when it was not wanted any more.
        """
        return self._wait(_retried(lambda: self._put(artifact, data, wanted)))

    def get(self, artifact_id: str) -> bytes:
        """The bytes of an artifact. Raises NotFound and Unavailable."""
        return self._wait(_retried(lambda: self._get(artifact_id)))

    def put_blob(self, data: bytes) -> str:
        """Keep bytes by their digest, tried again while the service is away.

        Raises Unavailable when it stayed away, ResourceExhausted for too many bytes.
        """
        digest = hashlib.sha256(data).hexdigest()
        return self._wait(_retried(lambda: self._put_blob(digest, data)))

    def get_blob(self, digest: str, size_bytes: int) -> bytes:
        """The bytes of a blob. Raises NotFound, Unavailable and CorruptBlob."""
        return self._wait(_retried(lambda: self._get_blob(digest, size_bytes)))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _put(
        self, artifact: NewArtifact, data: bytes, wanted: Callable[[], bool]
    ) -> ArtifactRecord:
        try:
            response = await self._stub.PutArtifact(
                _messages(artifact, data, wanted), timeout=_TRY_S_MAX
            )
        except asyncio.CancelledError:
            # The library gives up a call whose messages end with an error.
            if wanted():
                raise
            raise StreamCancelled(
                f"{artifact.name} is not wanted", subject=artifact.artifact_id
            ) from None
        return wire.from_proto(ArtifactRecord, response.record)

    async def _get(self, artifact_id: str) -> bytes:
        request = artifacts_pb2.GetArtifactRequest(artifact_id=artifact_id)
        data = bytearray()
        async for response in self._stub.GetArtifact(request, timeout=_TRY_S_MAX):
            data += response.chunk
            if len(data) > _INPUT_BYTES_MAX:
                raise FailedPrecondition(
                    f"artifact {artifact_id} is larger than {_INPUT_BYTES_MAX} bytes",
                    subject=artifact_id,
                )
        return bytes(data)

    async def _put_blob(self, digest: str, data: bytes) -> str:
        messages = _blob_messages(digest, data)
        return (await self._stub.PutBlob(messages, timeout=_TRY_S_MAX)).digest

    async def _get_blob(self, digest: str, size_bytes: int) -> bytes:
        request = artifacts_pb2.GetBlobRequest(digest=digest)
        data = bytearray()
        async for response in self._stub.GetBlob(request, timeout=_TRY_S_MAX):
            data += response.chunk
            if len(data) > size_bytes:
                break
        if len(data) != size_bytes or hashlib.sha256(data).hexdigest() != digest:
            raise CorruptBlob(f"other bytes came for blob {digest}", subject=digest)
        return bytes(data)


class NoArtifacts:
    """For a worker that was given no ArtifactService: what would be stored is refused."""

    def put(
        self, artifact: NewArtifact, data: bytes, wanted: Callable[[], bool] = always
    ) -> ArtifactRecord:
        """Raises FailedPrecondition."""
        raise _not_configured()

    def get(self, artifact_id: str) -> bytes:
        """Raises FailedPrecondition."""
        raise _not_configured()

    def put_blob(self, data: bytes) -> str:
        """Raises FailedPrecondition."""
        raise _not_configured()

    def get_blob(self, digest: str, size_bytes: int) -> bytes:
        """Raises FailedPrecondition."""
        raise _not_configured()


async def _retried(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The call's answer, asked for again while the service is unavailable or too slow."""
    deadline_s = asyncio.get_running_loop().time() + _TOTAL_S_MAX
    pause_s = _PAUSE_S_FIRST
    while True:
        try:
            return await call()
        except grpc.RpcError as error:
            typed = from_rpc_error(error)
            # A try that took too long may find a service that has caught up.
            again = isinstance(typed, Unavailable | DeadlineExceeded) or _was_cut_off(error)
            if not again:
                raise typed from error
            if asyncio.get_running_loop().time() + pause_s > deadline_s:
                raise typed from error
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, _PAUSE_S_MAX)


def _was_cut_off(error: grpc.RpcError) -> bool:
    """Whether the service ended the call while bytes were sent.

    The client library then puts an error of its own in the place of the service's answer, so
    the answer is still to be had.
    """
    return isinstance(error, grpc.aio.AioRpcError) and (
        error.code() is grpc.StatusCode.INTERNAL and error.details() == _CUT_OFF
    )


async def _messages(
    artifact: NewArtifact, data: bytes, wanted: Callable[[], bool]
) -> AsyncIterator[artifacts_pb2.PutArtifactRequest]:
    """The header, then the bytes in chunks, while they are wanted."""
    header = artifacts_pb2.PutArtifactHeader(
        artifact_id=artifact.artifact_id,
        kind=artifact_pb2.ArtifactKind.Value(f"ARTIFACT_KIND_{artifact.kind.upper()}"),
        name=artifact.name,
        content_type=artifact.content_type,
        producer=wire.to_proto(artifact.producer),
        parents=artifact.parents,
        tenant_id=artifact.tenant_id,
        preview_artifact_id=artifact.preview_artifact_id,
        expected_digest=hashlib.sha256(data).hexdigest(),
    )
    if artifact.media is not None:
        header.media.CopyFrom(wire.to_proto(artifact.media))
    if not wanted():
        raise StreamCancelled(f"{artifact.name} is not wanted")
    yield artifacts_pb2.PutArtifactRequest(header=header)
    for start in range(0, len(data), CHUNK_BYTES):
        if not wanted():
            raise StreamCancelled(f"{artifact.name} is not wanted")
        yield artifacts_pb2.PutArtifactRequest(chunk=data[start : start + CHUNK_BYTES])


async def _blob_messages(digest: str, data: bytes) -> AsyncIterator[artifacts_pb2.PutBlobRequest]:
    """What the blob is, then its bytes in chunks."""
    header = artifacts_pb2.PutBlobHeader(digest=digest, size_bytes=len(data))
    yield artifacts_pb2.PutBlobRequest(header=header)
    view = memoryview(data)
    for start in range(0, len(data), CHUNK_BYTES):
        yield artifacts_pb2.PutBlobRequest(chunk=bytes(view[start : start + CHUNK_BYTES]))


def _not_configured() -> FailedPrecondition:
    return FailedPrecondition(
        "this worker was given no artifact service",
        reason="NO_ARTIFACT_SERVICE",
        subject="FASTVIDEO_ARTIFACTS_ADDRESS",
    )
