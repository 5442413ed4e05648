"""Artifacts on the gateway's port: read by users, named by requests."""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from fastvideo.api.artifacts.v1 import artifacts_pb2, artifacts_pb2_grpc
from fastvideo.api.common.v1 import artifact_pb2, request_pb2
from fastvideo.errors import InvalidField, NotFound
from fastvideo.rpc.channel import open_channel
from fastvideo.rpc.errors import from_rpc_error
from fastvideo_artifacts.app import running_artifacts
from fastvideo_artifacts.config import Config
from tests.integration.gateway.worlds import World, gateway_config, submit_message, world_of
from tests.plugins.http import call

if TYPE_CHECKING:
    from fastvideo.api.artifacts.v1.artifacts_pb2_grpc import ArtifactServiceAsyncStub
    from fastvideo.api.gateway.v1 import gateway_pb2

BYTES = b"latents" * 50_000


@dataclass(frozen=True)
class ArtifactWorld:
    """A gateway and the artifact service: `through` is the gateway's face of it."""

    gateway: World
    direct: "ArtifactServiceAsyncStub"
    through: "ArtifactServiceAsyncStub"

    async def put(self, artifact_id: str, kind: "artifact_pb2.ArtifactKind.ValueType") -> None:
        """Put an artifact as a worker does."""
        header = artifacts_pb2.PutArtifactHeader(
            artifact_id=artifact_id,
            kind=kind,
            name="latents.safetensors",
            content_type="application/octet-stream",
            producer=artifact_pb2.Producer(node_id="denoise"),
            tenant_id="default",
        )
        requests = [
            artifacts_pb2.PutArtifactRequest(header=header),
            artifacts_pb2.PutArtifactRequest(chunk=BYTES),
        ]
        await self.direct.PutArtifact(iter(requests))


@pytest.fixture
async def artifacts(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[ArtifactWorld]:
    config = Config(
        listen="127.0.0.1:0",
        service_id="artifacts-test",
        postgres_dsn=postgres_dsn,
        blobs_url=tmp_path.as_uri(),
    )
    async with (
        running_artifacts(config) as server,
        world_of(gateway_config(postgres_dsn, artifacts=server.address)) as world,
        open_channel(server.address) as direct,
        open_channel(world.gateway.address) as through,
    ):
        yield ArtifactWorld(
            world,
            artifacts_pb2_grpc.ArtifactServiceStub(direct),
            artifacts_pb2_grpc.ArtifactServiceStub(through),
        )


async def test_artifacts_are_read_through_the_gateway(artifacts: ArtifactWorld) -> None:
    await artifacts.put("art_1", artifact_pb2.ARTIFACT_KIND_LATENT)
    stat = await artifacts.through.StatArtifact(
        artifacts_pb2.StatArtifactRequest(artifact_id="art_1")
    )
    assert stat.record.digest == hashlib.sha256(BYTES).hexdigest()
    request = artifacts_pb2.GetArtifactRequest(artifact_id="art_1", start=7, stop=21)
    chunks = [response.chunk async for response in artifacts.through.GetArtifact(request)]
    assert b"".join(chunks) == BYTES[7:21]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await artifacts.through.StatArtifact(artifacts_pb2.StatArtifactRequest(artifact_id="no"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def with_latents(
    kind: "request_pb2.RequestKind.ValueType", artifact_id: str, prompt: str | None = None
) -> "gateway_pb2.SubmitRequestRequest":
    message = submit_message(prompt, kind=kind)
    latent = message.inputs.add().latent
    latent.role, latent.artifact_id = "latents", artifact_id
    return message


@pytest.mark.row("REQ-01", "REQ-02")
async def test_every_kind_of_request_is_accepted(artifacts: ArtifactWorld) -> None:
    await artifacts.put("art_1", artifact_pb2.ARTIFACT_KIND_LATENT)
    messages = [
        submit_message(kind=request_pb2.REQUEST_KIND_GENERATION),
        submit_message(kind=request_pb2.REQUEST_KIND_ENCODING),
        submit_message(kind=request_pb2.REQUEST_KIND_TRAINING_SAMPLE),
        with_latents(request_pb2.REQUEST_KIND_CONVERSION, "art_1"),
        with_latents(request_pb2.REQUEST_KIND_SCORING, "art_1", "a red three"),
    ]
    for message in messages:
        response = await artifacts.gateway.stub.SubmitRequest(message)
        assert response.state.spec.kind == message.kind
        assert response.state.status == request_pb2.REQUEST_STATUS_ACCEPTED


async def test_a_part_that_names_no_artifact_of_its_kind_is_refused(
    artifacts: ArtifactWorld,
) -> None:
    await artifacts.put("art_image", artifact_pb2.ARTIFACT_KIND_IMAGE)
    before = await artifacts.gateway.size()
    for artifact_id, kind in (("art_none", NotFound), ("art_image", InvalidField)):
        message = with_latents(request_pb2.REQUEST_KIND_CONVERSION, artifact_id)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await artifacts.gateway.stub.SubmitRequest(message)
        error = from_rpc_error(caught.value)
        assert type(error) is kind
        assert error.subject == "inputs[0].latent.artifact_id"
    assert await artifacts.gateway.size() == before


async def test_blobs_are_between_services(artifacts: ArtifactWorld) -> None:
    digest = hashlib.sha256(BYTES).hexdigest()
    header = artifacts_pb2.PutBlobHeader(digest=digest, size_bytes=len(BYTES))
    sent = [
        artifacts_pb2.PutBlobRequest(header=header),
        artifacts_pb2.PutBlobRequest(chunk=BYTES),
    ]
    await artifacts.direct.PutBlob(iter(sent))
    with pytest.raises(grpc.RpcError) as put:
        await artifacts.through.PutBlob(iter(sent))
    with pytest.raises(grpc.RpcError) as got:
        async for _ in artifacts.through.GetBlob(artifacts_pb2.GetBlobRequest(digest=digest)):
            pass
    for refused in (put, got):
        assert from_rpc_error(refused.value).reason == "NOT_FOR_USERS"


async def test_artifacts_are_read_over_http_whole_and_in_part(artifacts: ArtifactWorld) -> None:
    await artifacts.put("art_1", artifact_pb2.ARTIFACT_KIND_LATENT)
    address, path = artifacts.gateway.gateway.http_address, "/api/artifacts/art_1"
    record = (await call(address, path)).json["artifact"]
    assert record["digest"] == hashlib.sha256(BYTES).hexdigest()
    whole = await call(address, f"{path}/content")
    assert (whole.status, whole.body) == (200, BYTES)
    # Only media is shown; the rest is saved, and nothing runs in it.
    assert whole.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in whole.headers["content-security-policy"]
    part = await call(address, f"{path}/content", headers={"Range": "bytes=7-20"})
    assert (part.status, part.body) == (206, BYTES[7:21])
    assert part.headers["content-range"] == f"bytes 7-20/{len(BYTES)}"
    last = await call(address, f"{path}/content", headers={"Range": "bytes=-5"})
    assert last.body == BYTES[-5:]
    beyond = await call(address, f"{path}/content", headers={"Range": f"bytes={len(BYTES)}-"})
    assert (beyond.status, beyond.error["field"]) == (416, "Range")
    assert beyond.headers["content-range"] == f"bytes */{len(BYTES)}"
    head = await call(address, f"{path}/content", method="HEAD")
    assert (head.headers["content-length"], head.body) == (str(len(BYTES)), b"")
    known = {"If-None-Match": whole.headers["etag"]}
    assert (await call(address, f"{path}/content", headers=known)).status == 304
    stale = {"Range": "bytes=0-1", "If-Range": '"other"'}
    assert (await call(address, f"{path}/content", headers=stale)).body == BYTES
    unknown = await call(address, "/api/artifacts/art_2/content")
    assert (unknown.status, unknown.error["reason"]) == (404, "NOT_FOUND")
