"""Files that users bring, through the gateway's port: taken, or refused by name."""

import asyncio
import hashlib
import io
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from PIL import Image

from fastvideo.api.artifacts.v1 import artifacts_pb2, artifacts_pb2_grpc
from fastvideo.api.common.v1 import artifact_pb2, request_pb2
from fastvideo.artifacts.input_files import UPLOAD_BYTES_MAX
from fastvideo.errors import FastVideoError, InvalidField, ResourceExhausted
from fastvideo.requests.tenants import TenantPolicy
from fastvideo.rpc.channel import open_channel
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.rpc.identity import ANYBODY, calling
from fastvideo_artifacts.app import running_artifacts
from fastvideo_artifacts.config import Config
from fastvideo_gateway.uploads import UPLOADS_MAX
from tests.integration.gateway.worlds import World, gateway_config, submit_message, world_of

if TYPE_CHECKING:
    from fastvideo.api.artifacts.v1.artifacts_pb2_grpc import ArtifactServiceAsyncStub

IMAGE = artifact_pb2.ARTIFACT_KIND_IMAGE
LATENT = artifact_pb2.ARTIFACT_KIND_LATENT


def image_bytes(image_format: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (48, 48), (200, 30, 30)).save(buffer, format=image_format)
    return buffer.getvalue()


def latent_bytes(name: str = "latents") -> bytes:
    header = b'{"%s":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}' % name.encode()
    return len(header).to_bytes(8, "little") + header + bytes(4)


def messages(chunks: Iterable[bytes], **fields: Any) -> list[artifacts_pb2.PutArtifactRequest]:
    header = artifacts_pb2.PutArtifactHeader(**({"kind": IMAGE} | fields))
    return [
        artifacts_pb2.PutArtifactRequest(header=header),
        *(artifacts_pb2.PutArtifactRequest(chunk=chunk) for chunk in chunks),
    ]


@dataclass(frozen=True)
class Door:
    """The gateway's face of the artifact service."""

    world: World
    through: "ArtifactServiceAsyncStub"

    async def put(self, *chunks: bytes, **fields: Any) -> artifact_pb2.ArtifactRecord:
        """Upload; the record."""
        response = await self.through.PutArtifact(iter(messages(chunks, **fields)))
        return response.record

    async def refusal(self, sent: Iterable[artifacts_pb2.PutArtifactRequest]) -> FastVideoError:
        """Why an upload is refused; nothing of it is in the log."""
        before = await self.world.size()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.through.PutArtifact(iter(sent))
        assert await self.world.size() == before
        return from_rpc_error(caught.value)


@pytest.fixture
async def door(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[Door]:
    config = Config(
        listen="127.0.0.1:0",
        service_id="artifacts-test",
        postgres_dsn=postgres_dsn,
        blobs_url=tmp_path.as_uri(),
    )
    async with (
        running_artifacts(config) as server,
        world_of(gateway_config(postgres_dsn, artifacts=server.address)) as world,
        open_channel(world.gateway.address) as through,
    ):
        yield Door(world, artifacts_pb2_grpc.ArtifactServiceStub(through))


@pytest.mark.parametrize(
    ("image_format", "content_type"),
    [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("WEBP", "image/webp")],
)
async def test_an_image_is_stored_under_what_it_is(
    door: Door, image_format: str, content_type: str
) -> None:
    data = image_bytes(image_format)
    record = await door.put(data[:20], data[20:], name="first")
    assert record.content_type == content_type
    assert (record.kind, record.name, record.tenant_id) == (IMAGE, "first", "default")
    assert record.digest == hashlib.sha256(data).hexdigest()
    assert record.producer == artifact_pb2.Producer()
    request = artifacts_pb2.GetArtifactRequest(artifact_id=record.artifact_id)
    read = b"".join([response.chunk async for response in door.through.GetArtifact(request)])
    assert read == data


async def test_the_same_file_again_is_the_same_artifact(door: Door) -> None:
    first = await door.put(image_bytes())
    size = await door.world.size()
    assert await door.put(image_bytes()) == first
    assert await door.world.size() == size
    assert (await door.put(image_bytes(), name="other.png")).artifact_id != first.artifact_id


async def test_an_input_has_the_tenants_lifetime_and_putting_it_again_renews_it(
    door: Door,
) -> None:
    keys, policy = door.world.gateway.core.keys, TenantPolicy(media_ttl_s=3600)
    with calling(ANYBODY):
        await keys.set_policy("default", policy)
    began = datetime.now(UTC)
    first = await door.put(image_bytes())
    until = first.expires_at.ToDatetime(UTC)
    assert timedelta() <= until - began - timedelta(hours=1) < timedelta(minutes=5)
    again = await door.put(image_bytes())
    assert again.artifact_id == first.artifact_id
    assert again.expires_at.ToDatetime(UTC) > until
    with calling(ANYBODY):
        await keys.set_policy("default", TenantPolicy())
    assert not (await door.put(image_bytes())).HasField("expires_at")


async def test_an_uploaded_image_and_uploaded_latents_can_be_asked_with(door: Door) -> None:
    image = await door.put(image_bytes())
    message = submit_message(program_id="image_to_video")
    message.inputs.add().image.CopyFrom(
        request_pb2.ImagePart(role="image", artifact_id=image.artifact_id)
    )
    response = await door.world.stub.SubmitRequest(message)
    assert response.state.spec.program_id == "image_to_video"
    assert response.state.spec.inputs[2].image.artifact_id == image.artifact_id

    latents = await door.put(latent_bytes(), kind=LATENT)
    assert latents.name == "latents.safetensors"
    message = submit_message(None, kind=request_pb2.REQUEST_KIND_CONVERSION)
    message.inputs.add().latent.CopyFrom(
        request_pb2.LatentPart(role="latents", artifact_id=latents.artifact_id)
    )
    await door.world.stub.SubmitRequest(message)


async def test_an_image_to_a_program_that_takes_none_is_refused_by_name(door: Door) -> None:
    image = await door.put(image_bytes())
    message = submit_message()
    message.inputs.add().image.CopyFrom(
        request_pb2.ImagePart(role="image", artifact_id=image.artifact_id)
    )
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await door.world.stub.SubmitRequest(message)
    error = from_rpc_error(caught.value)
    assert (error.reason, error.subject) == ("PART_NOT_TAKEN", "inputs[1].image.role")

    missing = submit_message(program_id="image_to_video")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await door.world.stub.SubmitRequest(missing)
    assert from_rpc_error(caught.value).reason == "IMAGE_REQUIRED"


PNG = image_bytes()
BAD: list[tuple[list[artifacts_pb2.PutArtifactRequest], str, str]] = [
    (messages([b"a text, not an image\n"]), "chunk", "INVALID_IMAGE"),
    (messages([b"GIF89a" + bytes(40)]), "chunk", "INVALID_IMAGE"),
    (messages([]), "chunk", "INVALID_FIELD"),
    (messages([b"", b""]), "chunk", "INVALID_FIELD"),
    (messages([PNG], kind=LATENT), "chunk", "INVALID_LATENTS"),
    (messages([latent_bytes("weights")], kind=LATENT), "chunk", "INVALID_LATENTS"),
    (messages([bytes([255] * 64)], kind=LATENT), "chunk", "INVALID_LATENTS"),
    (messages([latent_bytes()]), "chunk", "INVALID_IMAGE"),
    (messages([PNG], kind=artifact_pb2.ARTIFACT_KIND_VIDEO), "header.kind", "KIND_NOT_TAKEN"),
    (messages([PNG], kind=0), "header.kind", "KIND_NOT_TAKEN"),
    (messages([PNG], kind=77), "header.kind", "KIND_NOT_TAKEN"),
    (messages([PNG], artifact_id="art_mine"), "header.artifact_id", "FIELD_NOT_TAKEN"),
    (messages([PNG], tenant_id="other"), "header.tenant_id", "FIELD_NOT_TAKEN"),
    (
        messages([PNG], producer=artifact_pb2.Producer(request_id="req_1", node_id="write")),
        "header.producer",
        "FIELD_NOT_TAKEN",
    ),
    (messages([PNG], parents=["art_1"]), "header.parents", "FIELD_NOT_TAKEN"),
    (messages([PNG], media=artifact_pb2.MediaInfo(width=4)), "header.media", "FIELD_NOT_TAKEN"),
    (messages([PNG], content_type="image/jpeg"), "header.content_type", "INVALID_FIELD"),
    (messages([PNG], expected_digest="0" * 64), "header.expected_digest", "DIGEST_MISMATCH"),
    (messages([PNG], name="../../etc/passwd"), "header.name", "INVALID_FIELD"),
    ([artifacts_pb2.PutArtifactRequest(chunk=PNG)], "message", "INVALID_FIELD"),
    (messages([PNG]) * 2, "message", "INVALID_FIELD"),
    ([], "message", "INVALID_FIELD"),
]


@pytest.mark.parametrize(("sent", "field", "reason"), BAD)
async def test_nonsense_is_refused_by_name_and_stores_nothing(
    door: Door, sent: list[artifacts_pb2.PutArtifactRequest], field: str, reason: str
) -> None:
    error = await door.refusal(sent)
    assert isinstance(error, InvalidField), error
    assert (error.field, error.reason) == (field, reason)
    assert error.allowed


async def test_a_file_beyond_the_limit_is_refused_while_it_comes(door: Door) -> None:
    piece = bytes(1 << 20)
    pieces = UPLOAD_BYTES_MAX // len(piece)
    sent = messages([PNG, *[piece] * pieces])
    error = await door.refusal(sent)
    assert isinstance(error, ResourceExhausted)
    assert (error.reason, error.subject) == ("UPLOAD_TOO_LARGE", "upload_bytes")
    assert error.attributes["bytes_max"] == str(UPLOAD_BYTES_MAX)


async def test_an_upload_that_breaks_off_stores_nothing_and_frees_its_place(door: Door) -> None:
    before = await door.world.size()

    async def endless() -> AsyncIterator[artifacts_pb2.PutArtifactRequest]:
        for message in messages([PNG]):
            yield message
        await asyncio.Event().wait()

    running: list[Any] = [door.through.PutArtifact(endless()) for _ in range(UPLOADS_MAX)]
    error: FastVideoError | None = None
    async with asyncio.timeout(60):
        while error is None:
            error = await refused_for_room(door)
            # Who came while a place was tried for had none.
            running = [
                door.through.PutArtifact(endless()) if call.done() else call for call in running
            ]
    assert (error.reason, error.subject) == ("RESOURCE_EXHAUSTED", "uploads")
    for call in running:
        call.cancel()
    await stored(door, image_bytes("JPEG"))
    # Created, and completed in its own stream and its digest's, of the JPEG alone.
    assert await door.world.size() == before + 3


async def stored(door: Door, data: bytes) -> None:
    """Upload once there is a place for it."""
    async with asyncio.timeout(60):
        while True:
            try:
                await door.put(data)
            except grpc.aio.AioRpcError as refused:
                if refused.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise
                await asyncio.sleep(0.02)
                continue
            return


async def refused_for_room(door: Door) -> FastVideoError | None:
    """The refusal that comes once all places are taken."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await door.through.PutArtifact(iter(messages([b""])))
    error = from_rpc_error(caught.value)
    return error if isinstance(error, ResourceExhausted) else None
