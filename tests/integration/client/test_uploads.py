"""Uploads of the client, against a server that refuses and is away on cue."""

import asyncio
import hashlib
from pathlib import Path

import pytest

from fastvideo.api.common.v1 import artifact_pb2
from fastvideo.artifacts.input_files import UPLOAD_BYTES_MAX
from fastvideo.artifacts.types import ArtifactKind
from fastvideo.client import Client
from fastvideo.errors import InvalidField, ResourceExhausted
from tests.integration.client.scripted_gateway import Script, serve
from tests.integration.client.test_client import client_of

BYTES = bytes(range(256)) * 4096


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "first.png"
    path.write_bytes(BYTES)
    return path


async def test_a_file_and_bytes_arrive_whole_with_their_name_and_digest(file: Path) -> None:
    script = Script()
    async with client_of(script) as client:
        record = await client.upload(file)
        await client.upload(str(file))
        await client.upload(BYTES, ArtifactKind.LATENT)
    assert record.digest == hashlib.sha256(BYTES).hexdigest()
    assert [data for _, data in script.uploads] == [BYTES] * 3
    headers = [header for header, _ in script.uploads]
    assert [header.name for header in headers] == ["first.png", "first.png", ""]
    assert headers[0].kind == artifact_pb2.ARTIFACT_KIND_IMAGE
    assert headers[2].kind == artifact_pb2.ARTIFACT_KIND_LATENT
    assert {header.expected_digest for header in headers} == {record.digest}


async def test_an_upload_is_sent_again_while_the_server_is_away(file: Path) -> None:
    script = Script(unavailable=2)
    async with client_of(script) as client:
        await client.upload(file)
    assert [data for _, data in script.uploads] == [BYTES]


async def test_a_submit_with_an_image_uploads_it_first_and_names_it(file: Path) -> None:
    script = Script()
    async with client_of(script) as client:
        await client.submit("a red three", image=file)
        await client.generate("a red three", image=BYTES)
        record = await client.upload(file)
        await client.submit("a red three", image=record)
    assert len(script.uploads) == 3
    for submit in script.submits:
        assert submit.program_id == "image_to_video"
        assert submit.inputs[1].image.artifact_id == "art_in"


async def test_a_refusal_names_what_the_caller_gave(file: Path) -> None:
    script = Script(upload_refused=("chunk", "INVALID_IMAGE"))
    async with client_of(script) as client:
        with pytest.raises(InvalidField, match=r"^source is") as caught:
            await client.upload(file)
        assert caught.value.reason == "INVALID_IMAGE"
        with pytest.raises(InvalidField, match=r"^image is") as caught:
            await client.submit("a red three", image=file)
        assert caught.value.field == "image"
    assert not script.submits


async def test_what_cannot_be_read_or_is_too_large_is_not_sent(tmp_path: Path) -> None:
    large = tmp_path / "large.png"
    with large.open("wb") as sparse:
        sparse.truncate(UPLOAD_BYTES_MAX + 1)
    script = Script()
    async with client_of(script) as client:
        with pytest.raises(FileNotFoundError):
            await client.upload(tmp_path / "none.png")
        with pytest.raises(IsADirectoryError):
            await client.upload(tmp_path)
        with pytest.raises(ResourceExhausted) as caught:
            await client.upload(large)
        assert caught.value.reason == "UPLOAD_TOO_LARGE"
    assert not script.uploads


async def test_the_synchronous_client_uploads_too(file: Path) -> None:
    script = Script()

    def use(address: str) -> str:
        with Client(address) as client:
            return client.upload(file).artifact_id

    async with serve(script) as server:
        assert await asyncio.to_thread(use, server.address) == "art_in"
