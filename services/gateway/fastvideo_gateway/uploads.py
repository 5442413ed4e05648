"""Files that users bring as inputs: the one way to put an artifact from outside.

What a worker may say of an artifact, who made it, of which request, under which id, a user may
not: the gateway says it. So nothing that comes through here reaches a request's stream.
"""

import hashlib
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import grpc

from fastvideo.api.artifacts.v1 import artifacts_pb2
from fastvideo.api.common.v1 import artifact_pb2
from fastvideo.artifacts.input_files import (
    FIELD,
    INPUT_KINDS,
    UPLOAD_BYTES_MAX,
    content_type_of,
    too_large,
)
from fastvideo.artifacts.types import ArtifactKind
from fastvideo.clock import Clock
from fastvideo.errors import InvalidField
from fastvideo.ids import derived_id
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.rpc.incoming import next_message, require_present
from fastvideo.rpc.unknown_fields import refuse_unknown_fields
from fastvideo_gateway.lifetimes import Lifetimes
from fastvideo_gateway.places import Places

if TYPE_CHECKING:
    from fastvideo.api.artifacts.v1.artifacts_pb2_grpc import ArtifactServiceAsyncStub

UPLOADS_MAX: Final = 8
"""Uploads at the same time; each is held in memory until its last byte has come."""

_CHUNK_BYTES: Final = 256 * 1024
_KINDS: Final[Mapping[int, ArtifactKind]] = MappingProxyType(
    {artifact_pb2.ArtifactKind.Value(f"ARTIFACT_KIND_{k.upper()}"): k for k in INPUT_KINDS}
)
# Header fields that the gateway alone fills, and what it fills them with.
_OWN_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "artifact_id": "left out; it follows from the file",
        "producer": "left out; inputs are made by no request",
        "media": "left out",
        "parents": "left out; inputs are made of nothing",
        "tenant_id": "left out; it is the caller's",
        "preview_artifact_id": "left out; inputs are not streamed",
        "expires_at": "left out; it follows from the tenant's media_ttl_s",
    }
)
# For a file that is given no name.
_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {"image/png": "image.png", "image/jpeg": "image.jpg", "image/webp": "image.webp"}
)


class InputUploads:
    """Takes inputs and hands them to the artifact service."""

    def __init__(
        self,
        artifacts: "ArtifactServiceAsyncStub",
        lifetimes: Lifetimes,
        clock: Clock,
        *,
        share: float = 1.0,
    ) -> None:
        self._artifacts = artifacts
        self._lifetimes = lifetimes
        self._clock = clock
        self._places = Places("uploads", UPLOADS_MAX, share, "try again")

    async def put(
        self,
        messages: AsyncIterator[artifacts_pb2.PutArtifactRequest],
        context: Any,
        tenant_id: str,
        timeout_s: float,
    ) -> artifacts_pb2.PutArtifactResponse:
        """The record of the file; the same file of a tenant has the same record.

        Raises InvalidField naming what is wrong with the header or the bytes, and
        ResourceExhausted past the size limit and with too many uploads at once.
        """
        with self._places.taken(tenant_id):
            header = await _header(messages)
            kind = _check_header(header)
            data = await _data(messages, context)
            put = self._header_to_put(header, kind, data, tenant_id)
            return await self._put(put, data, timeout_s)

    async def put_bytes(
        self, kind: ArtifactKind, data: bytes, tenant_id: str, timeout_s: float
    ) -> artifact_pb2.ArtifactRecord:
        """As `put`, for bytes that are here already."""
        if len(data) > UPLOAD_BYTES_MAX:
            raise too_large()
        if not data:
            raise InvalidField(FIELD, "", "at least one byte")
        value = artifact_pb2.ArtifactKind.Value(f"ARTIFACT_KIND_{kind.upper()}")
        header = artifacts_pb2.PutArtifactHeader(kind=value)
        with self._places.taken(tenant_id):
            put = self._header_to_put(header, kind, data, tenant_id)
            return (await self._put(put, data, timeout_s)).record

    def _header_to_put(
        self,
        header: artifacts_pb2.PutArtifactHeader,
        kind: ArtifactKind,
        data: bytes,
        tenant_id: str,
    ) -> artifacts_pb2.PutArtifactHeader:
        put = _header_to_put(header, kind, data, tenant_id)
        expires_at = self._lifetimes.of_input(tenant_id, self._clock.now())
        if expires_at is not None:
            put.expires_at.FromDatetime(expires_at)
        return put

    async def _put(
        self, header: artifacts_pb2.PutArtifactHeader, data: bytes, timeout_s: float
    ) -> artifacts_pb2.PutArtifactResponse:
        try:
            messages = _messages(header, data)
            return await self._artifacts.PutArtifact(messages, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error


async def _header(
    messages: AsyncIterator[artifacts_pb2.PutArtifactRequest],
) -> artifacts_pb2.PutArtifactHeader:
    first = await next_message(messages)
    if first is None or first.WhichOneof("message") != "header":
        given = None if first is None else first.WhichOneof("message")
        raise InvalidField("message", given, "a header first, then chunks")
    return first.header


def _check_header(header: artifacts_pb2.PutArtifactHeader) -> ArtifactKind:
    """The kind, when the header says only what a user may say."""
    refuse_unknown_fields(header)
    given = {field.name: value for field, value in header.ListFields()}
    for name, allowed in _OWN_FIELDS.items():
        if name in given:
            shown = str(given[name]).strip()
            raise InvalidField(f"header.{name}", shown, allowed, reason="FIELD_NOT_TAKEN")
    kind = _KINDS.get(header.kind)
    if kind is None:
        names = artifact_pb2.ArtifactKind.DESCRIPTOR.values_by_number
        shown = names[header.kind].name if header.kind in names else str(header.kind)
        allowed = f"what requests take as files: {', '.join(INPUT_KINDS)}"
        raise InvalidField("header.kind", shown, allowed, reason="KIND_NOT_TAKEN")
    return kind


async def _data(messages: AsyncIterator[artifacts_pb2.PutArtifactRequest], context: Any) -> bytes:
    data = bytearray()
    while (message := await next_message(messages)) is not None:
        if message.WhichOneof("message") != "chunk":
            raise InvalidField("message", message.WhichOneof("message"), "chunks after the header")
        data += message.chunk
        if len(data) > UPLOAD_BYTES_MAX:
            raise too_large()
    await require_present(context)
    if not data:
        raise InvalidField(FIELD, "", "at least one byte")
    return bytes(data)


def _header_to_put(
    header: artifacts_pb2.PutArtifactHeader, kind: ArtifactKind, data: bytes, tenant_id: str
) -> artifacts_pb2.PutArtifactHeader:
    """What the gateway says of the file."""
    content_type = content_type_of(kind, data)
    if header.content_type not in ("", content_type):
        raise InvalidField("header.content_type", header.content_type, content_type)
    digest = hashlib.sha256(data).hexdigest()
    if header.expected_digest not in ("", digest):
        raise InvalidField(
            "header.expected_digest", header.expected_digest, digest, reason="DIGEST_MISMATCH"
        )
    name = header.name or _NAMES.get(content_type, "latents.safetensors")
    return artifacts_pb2.PutArtifactHeader(
        artifact_id=derived_id("art", "input", tenant_id, kind.value, name, digest),
        kind=header.kind,
        name=name,
        content_type=content_type,
        tenant_id=tenant_id,
        expected_digest=digest,
    )


async def _messages(
    header: artifacts_pb2.PutArtifactHeader, data: bytes
) -> AsyncIterator[artifacts_pb2.PutArtifactRequest]:
    yield artifacts_pb2.PutArtifactRequest(header=header)
    for start in range(0, len(data), _CHUNK_BYTES):
        yield artifacts_pb2.PutArtifactRequest(chunk=data[start : start + _CHUNK_BYTES])
