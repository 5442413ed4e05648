"""Where a replay gets what its run was given: artifacts by id, blobs by digest."""

import hashlib
from collections.abc import Iterable
from typing import Any, Final, Protocol, Self

import grpc

from fastvideo.api.artifacts.v1 import artifacts_pb2, artifacts_pb2_grpc
from fastvideo.blobs import CorruptBlob
from fastvideo.errors import FailedPrecondition, ResourceExhausted
from fastvideo.rpc.channel import open_blocking_channel
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.rpc.outgoing import metadata_of
from fastvideo.rpc.tls import ClientTls

BYTES_MAX: Final = 1 << 30
"""The most that is fetched at once."""

_TRY_S_MAX: Final = 60.0


class Sources(Protocol):
    """What the run was given and left, outside of this process."""

    def get(self, artifact_id: str) -> bytes:
        """The bytes of an artifact; blocks. Raises NotFound and Unavailable."""
        ...

    def blob(self, digest: str) -> bytes:
        """The bytes of a blob; blocks. Raises NotFound, Unavailable and CorruptBlob."""
        ...


class NoSources:
    """For a replay that was told of no store."""

    def get(self, artifact_id: str) -> bytes:
        """Raises FailedPrecondition."""
        raise _no_store(artifact_id)

    def blob(self, digest: str) -> bytes:
        """Raises FailedPrecondition."""
        raise _no_store(digest)


class ArtifactServiceSources:
    """Artifacts and blobs of an ArtifactService at "host:port". Close it, or use it as a context.

    A gateway's address serves artifacts too, but gives blobs to nobody.
    """

    def __init__(self, address: str, tls: ClientTls | None = None, api_key: str = "") -> None:
        self._metadata = metadata_of(api_key)
        self._channel = open_blocking_channel(address, tls=tls)
        self._stub: Any = artifacts_pb2_grpc.ArtifactServiceStub(self._channel)

    def get(self, artifact_id: str) -> bytes:
        """The bytes of an artifact. Raises NotFound and Unavailable."""
        request = artifacts_pb2.GetArtifactRequest(artifact_id=artifact_id)
        return _gathered(self._call(self._stub.GetArtifact, request), artifact_id)

    def blob(self, digest: str) -> bytes:
        """The bytes of a blob. Raises NotFound, Unavailable and CorruptBlob."""
        request = artifacts_pb2.GetBlobRequest(digest=digest)
        data = _gathered(self._call(self._stub.GetBlob, request), digest)
        if hashlib.sha256(data).hexdigest() != digest:
            raise CorruptBlob(f"other bytes came for blob {digest}", subject=digest)
        return data

    def _call(self, method: Any, request: Any) -> Any:
        return method(request, timeout=_TRY_S_MAX, metadata=self._metadata)

    def close(self) -> None:
        """Let go of the connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _gathered(responses: Iterable[Any], subject: str) -> bytes:
    data = bytearray()
    try:
        for response in responses:
            data += response.chunk
            if len(data) > BYTES_MAX:
                raise ResourceExhausted(f"{subject} has more than {BYTES_MAX} bytes")
    except grpc.RpcError as error:
        raise from_rpc_error(error) from error
    return bytes(data)


def _no_store(subject: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"{subject} cannot be fetched: the replay was told of no artifact service",
        reason="NO_ARTIFACT_SERVICE",
        subject=subject,
    )
