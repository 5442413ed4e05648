"""Parts that name artifacts, checked against what is stored."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import grpc

from fastvideo import wire
from fastvideo.api.artifacts.v1 import artifacts_pb2
from fastvideo.artifacts.types import ArtifactKind, ArtifactRecord
from fastvideo.clock import Clock
from fastvideo.errors import FailedPrecondition, InvalidField, NotFound
from fastvideo.requests.draft import RequestDraft
from fastvideo.requests.types import AudioPart, ImagePart, LatentPart, VideoPart
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.rpc.identity import DEFAULT_TENANT

if TYPE_CHECKING:
    from fastvideo.api.artifacts.v1.artifacts_pb2_grpc import ArtifactServiceAsyncStub

_STAT_TIMEOUT_S: Final = 5.0

_KINDS: Final[Mapping[type[Any], tuple[str, ArtifactKind]]] = MappingProxyType(
    {
        ImagePart: ("image", ArtifactKind.IMAGE),
        VideoPart: ("video", ArtifactKind.VIDEO),
        AudioPart: ("audio", ArtifactKind.AUDIO),
        LatentPart: ("latent", ArtifactKind.LATENT),
    }
)


class StoredInputs:
    """Asks the artifact service about the artifacts that a draft names."""

    def __init__(self, artifacts: "ArtifactServiceAsyncStub", clock: Clock) -> None:
        self._artifacts = artifacts
        self._clock = clock

    async def check(self, draft: RequestDraft, tenant_id: str) -> None:
        """Check every part that names an artifact.

        Raises NotFound for one that is not stored, FailedPrecondition for one that is not
        complete or whose bytes were given up, and InvalidField for one of another kind.
        """
        for index, part in enumerate(draft.inputs):
            if isinstance(part, ImagePart | VideoPart | AudioPart | LatentPart):
                field, kind = _KINDS[type(part)]
                path = f"inputs[{index}].{field}.artifact_id"
                record = await self._stat(part.artifact_id, path)
                _check_record(record, path, kind, tenant_id)
                self._check_time(record, path)

    def _check_time(self, record: ArtifactRecord, path: str) -> None:
        # Its bytes may be there still, for requests that named it before.
        if record.expires_at is not None and record.expires_at <= self._clock.now():
            raise FailedPrecondition(
                f"artifact {record.artifact_id} expired at "
                f"{record.expires_at:%Y-%m-%dT%H:%M:%SZ}; upload it again",
                reason="ARTIFACT_GONE",
                subject=path,
            )

    async def _stat(self, artifact_id: str, path: str) -> ArtifactRecord:
        request = artifacts_pb2.StatArtifactRequest(artifact_id=artifact_id)
        try:
            response = await self._artifacts.StatArtifact(request, timeout=_STAT_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                raise _unknown(artifact_id, path) from error
            raise from_rpc_error(error) from error
        return wire.from_proto(ArtifactRecord, response.record)


def _check_record(record: ArtifactRecord, path: str, kind: ArtifactKind, tenant_id: str) -> None:
    if (record.tenant_id or DEFAULT_TENANT) != tenant_id:
        raise _unknown(record.artifact_id, path)
    if record.kind is not kind:
        shown = f"{record.artifact_id} ({record.kind.value})"
        raise InvalidField(path, shown, f"an artifact of kind {kind.value}")
    if not record.digest:
        raise FailedPrecondition(
            f"artifact {record.artifact_id} is not complete yet",
            reason="ARTIFACT_INCOMPLETE",
            subject=path,
        )
    if record.deleted_at is not None:
        raise FailedPrecondition(
            f"the bytes of artifact {record.artifact_id} are gone: it expired or was deleted",
            reason="ARTIFACT_GONE",
            subject=path,
        )


def _unknown(artifact_id: str, path: str) -> NotFound:
    return NotFound(
        f"{path}: artifact {artifact_id} does not exist", reason="ARTIFACT_NOT_FOUND", subject=path
    )
