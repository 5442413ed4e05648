"""The header of a put as a record; what is wrong with it is refused by name."""

import re
from datetime import UTC, datetime
from typing import Final

from fastvideo import wire
from fastvideo.api.artifacts.v1 import artifacts_pb2
from fastvideo.api.common.v1 import artifact_pb2
from fastvideo.artifacts.types import ArtifactKind, ArtifactRecord, MediaInfo, Producer
from fastvideo.errors import InvalidField
from fastvideo.rpc.unknown_fields import refuse_unknown_fields

ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
DIGEST: Final = re.compile(r"[0-9a-f]{64}")
CONTENT_TYPE: Final = re.compile(
    r"[a-z0-9!#$&^_.+-]{1,64}/[a-z0-9!#$&^_.+-]{1,64}(; ?[ -~]{1,128})?"
)
NAME_CHARACTERS_MAX: Final = 255
PARENTS_MAX: Final = 64


def record_of(header: artifacts_pb2.PutArtifactHeader, at: datetime) -> ArtifactRecord:
    """The record of an artifact that begins now. Raises InvalidField."""
    refuse_unknown_fields(header)
    require_id("header.artifact_id", header.artifact_id)
    _require_name(header.name)
    if not CONTENT_TYPE.fullmatch(header.content_type):
        raise InvalidField("header.content_type", header.content_type, "such as video/mp4")
    if header.expected_digest and not DIGEST.fullmatch(header.expected_digest):
        raise InvalidField(
            "header.expected_digest", header.expected_digest, "64 lower-case hexadecimal digits"
        )
    if len(header.parents) > PARENTS_MAX:
        raise InvalidField("header.parents", len(header.parents), f"at most {PARENTS_MAX}")
    for parent in header.parents:
        require_id("header.parents", parent)
    if header.producer.request_id:
        require_id("header.producer.request_id", header.producer.request_id)
    return ArtifactRecord(
        artifact_id=header.artifact_id,
        kind=_kind(header.kind),
        name=header.name,
        content_type=header.content_type,
        producer=wire.from_proto(Producer, header.producer),
        media=wire.from_proto(MediaInfo, header.media) if header.HasField("media") else None,
        parents=tuple(header.parents),
        created_at=at,
        tenant_id=header.tenant_id,
        expires_at=_expires_at(header),
    )


def _expires_at(header: artifacts_pb2.PutArtifactHeader) -> datetime | None:
    if not header.HasField("expires_at"):
        return None
    if header.producer.request_id:
        allowed = "left out: what a request made is kept as the request says"
        raise InvalidField("header.expires_at", header.expires_at.ToJsonString(), allowed)
    return header.expires_at.ToDatetime(UTC)


def require_id(field: str, value: str) -> None:
    """Raise InvalidField unless the value has the form of an id."""
    if not ID.fullmatch(value):
        raise InvalidField(field, value, "an id: letters, digits, '_', '.' and '-', at most 128")


def _require_name(name: str) -> None:
    """A file name for people: it must not lead anywhere when somebody saves by it."""
    good = name.isprintable() and not set(name) & set("/\\") and name.strip(". ") != ""
    if not good or len(name) > NAME_CHARACTERS_MAX:
        raise InvalidField("header.name", name, "a file name without a path, such as video.mp4")


def _kind(number: int) -> ArtifactKind:
    kinds = artifact_pb2.ArtifactKind.DESCRIPTOR
    kind = wire.enum_from_proto(ArtifactKind, kinds, number, "header.kind")
    if kind is None:
        raise InvalidField("header.kind", "unspecified", ", ".join(ArtifactKind))
    return kind
