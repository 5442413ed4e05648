"""What a file that a user brings is, by its first bytes.

It is a look at the door, so that a text is not taken for an image; whether an image is whole is
found out where it is decoded.
"""

import json
from typing import Final

from fastvideo.artifacts.types import ArtifactKind
from fastvideo.errors import InvalidField, ResourceExhausted

INPUT_KINDS: Final = (ArtifactKind.IMAGE, ArtifactKind.LATENT)
"""The kinds that users may bring."""

UPLOAD_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest file that a user may bring."""

UPLOAD_TOO_LARGE: Final = "UPLOAD_TOO_LARGE"
"""The reason of the refusal of a larger one."""

FIELD: Final = "chunk"
"""The field of the put that holds the bytes."""

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_JPEG: Final = b"\xff\xd8\xff"
# A safetensors file begins with the length of its JSON header, 8 bytes, little-endian.
_LENGTH_BYTES: Final = 8
_HEADER_BYTES_MAX: Final = 1 << 20


def too_large() -> ResourceExhausted:
    """The refusal of a file that is larger than the limit."""
    return ResourceExhausted(
        f"the file is larger than {UPLOAD_BYTES_MAX} bytes",
        reason=UPLOAD_TOO_LARGE,
        subject="upload_bytes",
        attributes={"bytes_max": str(UPLOAD_BYTES_MAX)},
    )


def content_type_of(kind: ArtifactKind, data: bytes) -> str:
    """The content type of a file's bytes.

    Raises InvalidField naming `chunk`, with the reason INVALID_IMAGE or INVALID_LATENTS, when
    they are none of the kind.
    """
    if kind is ArtifactKind.IMAGE:
        return _image_type(data)
    _check_latents(data)
    return "application/octet-stream"


def _image_type(data: bytes) -> str:
    if data.startswith(_PNG):
        return "image/png"
    if data.startswith(_JPEG):
        return "image/jpeg"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    allowed = "a PNG, JPEG or WebP image"
    raise InvalidField(FIELD, data[:16], allowed, reason="INVALID_IMAGE")


def _check_latents(data: bytes) -> None:
    size = int.from_bytes(data[:_LENGTH_BYTES], "little")
    if size <= min(_HEADER_BYTES_MAX, len(data) - _LENGTH_BYTES):
        try:
            header = json.loads(data[_LENGTH_BYTES : _LENGTH_BYTES + size])
        except (ValueError, RecursionError):
            header = None
        if isinstance(header, dict) and "latents" in header:
            return
    raise InvalidField(
        FIELD, data[:16], "a safetensors file with latents", reason="INVALID_LATENTS"
    )
