"""Parts that name artifacts."""

from dataclasses import replace
from datetime import UTC, datetime

import grpc
import pytest

from fastvideo import wire
from fastvideo.api.artifacts.v1 import artifacts_pb2
from fastvideo.artifacts.types import ArtifactKind, ArtifactRecord, Producer
from fastvideo.clock import ManualClock
from fastvideo.errors import FailedPrecondition, FastVideoError, InvalidField, NotFound, Unavailable
from fastvideo.requests.draft import RequestDraft
from fastvideo.requests.types import LatentPart, TextPart
from fastvideo_gateway.stored_inputs import StoredInputs

AT = datetime(2026, 1, 1, tzinfo=UTC)


class Artifacts:
    """Answers for the artifact service; only the one method is asked."""

    def __init__(self, *records: ArtifactRecord, down: bool = False) -> None:
        self._records = {record.artifact_id: record for record in records}
        self._down = down

    async def StatArtifact(
        self, request: artifacts_pb2.StatArtifactRequest, **_: float
    ) -> artifacts_pb2.StatArtifactResponse:
        record = self._records.get(request.artifact_id)
        if record is None:
            code = grpc.StatusCode.UNAVAILABLE if self._down else grpc.StatusCode.NOT_FOUND
            empty = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(code, empty, empty)
        return artifacts_pb2.StatArtifactResponse(record=wire.to_proto(record))


def record(kind: ArtifactKind, digest: str = "d", tenant_id: str = "t") -> ArtifactRecord:
    return ArtifactRecord(
        artifact_id="a",
        kind=kind,
        digest=digest,
        producer=Producer(),
        created_at=AT,
        tenant_id=tenant_id,
    )


def draft(artifact_id: str = "a") -> RequestDraft:
    return RequestDraft(
        model_id="m",
        inputs=(
            TextPart(role="prompt", text="p"),
            LatentPart(role="latents", artifact_id=artifact_id),
        ),
    )


def _inputs(artifacts: Artifacts) -> StoredInputs:
    return StoredInputs(artifacts, ManualClock(AT))  # type: ignore[arg-type]


async def test_a_complete_artifact_of_the_parts_kind_is_taken() -> None:
    inputs = _inputs(Artifacts(record(ArtifactKind.LATENT)))
    await inputs.check(draft(), "t")


@pytest.mark.parametrize(
    ("artifacts", "error"),
    [
        (Artifacts(), NotFound),
        (Artifacts(record(ArtifactKind.LATENT, tenant_id="other")), NotFound),
        (Artifacts(record(ArtifactKind.VIDEO)), InvalidField),
        (Artifacts(record(ArtifactKind.LATENT, digest="")), FailedPrecondition),
        (Artifacts(replace(record(ArtifactKind.LATENT), deleted_at=AT)), FailedPrecondition),
        (Artifacts(replace(record(ArtifactKind.LATENT), expires_at=AT)), FailedPrecondition),
    ],
)
async def test_another_is_refused_by_the_name_of_its_field(
    artifacts: Artifacts, error: type[FastVideoError]
) -> None:
    inputs = _inputs(artifacts)
    with pytest.raises(error) as caught:
        await inputs.check(draft(), "t")
    assert caught.value.subject == "inputs[1].latent.artifact_id"


async def test_a_service_that_is_away_is_unavailable_and_no_bad_input() -> None:
    inputs = _inputs(Artifacts(down=True))
    with pytest.raises(Unavailable):
        await inputs.check(draft(), "t")
