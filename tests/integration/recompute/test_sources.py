"""What a replay's blocking calls raise: the errors of the artifact service as they are."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from fastvideo.api.artifacts.v1 import artifacts_pb2, artifacts_pb2_grpc
from fastvideo.errors import FailedPrecondition, FastVideoError, NotFound, Unavailable
from fastvideo.recompute.sources import ArtifactServiceSources
from fastvideo.rpc.server import Server, Service

TOLD: dict[str, FastVideoError] = {
    "art_gone": FailedPrecondition("what it made has expired", reason="EXPIRED", subject="req_1"),
    "art_none": NotFound("artifact art_none does not exist", subject="artifact_id"),
}


async def refuse(
    request: artifacts_pb2.GetArtifactRequest, context: object
) -> AsyncIterator[artifacts_pb2.GetArtifactResponse]:
    if error := TOLD.get(request.artifact_id):
        raise error
    yield artifacts_pb2.GetArtifactResponse(chunk=b"whole")


async def test_a_refusal_has_its_kind_reason_and_words() -> None:
    servicer: Any = cast(Any, artifacts_pb2_grpc.ArtifactServiceServicer)()
    servicer.GetArtifact = refuse
    service = Service.of(
        artifacts_pb2.DESCRIPTOR,
        "ArtifactService",
        artifacts_pb2_grpc.add_ArtifactServiceServicer_to_server,
        servicer,
    )
    async with Server("127.0.0.1:0", [service], grace_s=0.1) as server:
        with ArtifactServiceSources(server.address) as sources:
            assert await asyncio.to_thread(sources.get, "art_there") == b"whole"
            for artifact_id, told in TOLD.items():
                with pytest.raises(type(told)) as caught:
                    await asyncio.to_thread(sources.get, artifact_id)
                assert (caught.value.reason, caught.value.message) == (told.reason, told.message)
                assert caught.value.subject == told.subject


def test_nobody_who_answers_is_unavailable() -> None:
    with ArtifactServiceSources("127.0.0.1:1") as sources, pytest.raises(Unavailable) as caught:
        sources.get("art_there")
    assert "Rendezvous" not in caught.value.message
