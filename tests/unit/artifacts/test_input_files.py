"""What a file is by its first bytes."""

import pytest

from fastvideo.artifacts.input_files import FIELD, INPUT_KINDS, content_type_of, too_large
from fastvideo.artifacts.types import ArtifactKind
from fastvideo.errors import InvalidField


def safetensors(header: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + bytes(8)


@pytest.mark.parametrize(
    ("kind", "data", "content_type"),
    [
        (ArtifactKind.IMAGE, b"\x89PNG\r\n\x1a\n....", "image/png"),
        (ArtifactKind.IMAGE, b"\xff\xd8\xff\xe0....", "image/jpeg"),
        (ArtifactKind.IMAGE, b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
        (ArtifactKind.LATENT, safetensors(b'{"latents": {}}'), "application/octet-stream"),
    ],
)
def test_each_kind_is_known(kind: ArtifactKind, data: bytes, content_type: str) -> None:
    assert content_type_of(kind, data) == content_type
    assert kind in INPUT_KINDS


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        bytes(8),
        b"\xff" * 64,
        safetensors(b'{"weights": {}}'),
        safetensors(b'["latents"]'),
        safetensors(b"\xff\xfe latents"),
        safetensors(b"{" * 4000),
        (1 << 19).to_bytes(8, "little") + b'{"latents": {}}',
    ],
)
@pytest.mark.parametrize("kind", INPUT_KINDS)
def test_everything_else_is_refused_by_the_name_of_its_field(
    kind: ArtifactKind, data: bytes
) -> None:
    with pytest.raises(InvalidField) as caught:
        content_type_of(kind, data)
    assert caught.value.field == FIELD
    reasons = {ArtifactKind.IMAGE: "INVALID_IMAGE", ArtifactKind.LATENT: "INVALID_LATENTS"}
    assert caught.value.reason == reasons[kind]


def test_a_large_file_is_told_the_limit() -> None:
    assert "16777216" in too_large().message
    assert too_large().reason == "UPLOAD_TOO_LARGE"
