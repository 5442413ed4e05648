"""ArtifactService over gRPC: protobuf outside, the domain inside."""

from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from fastvideo import wire
from fastvideo.api.artifacts.v1 import artifacts_pb2, artifacts_pb2_grpc
from fastvideo.artifacts.events import BufferRef
from fastvideo.artifacts.types import ArtifactRecord
from fastvideo.clock import Clock
from fastvideo.errors import InvalidField
from fastvideo.rpc.callers import tenant_of
from fastvideo.rpc.incoming import incoming, next_message, require_present
from fastvideo.rpc.unknown_fields import refuse_unknown_fields
from fastvideo.telemetry import logging, metrics
from fastvideo.telemetry.instruments import BYTES_IN, BYTES_OUT, STORED
from fastvideo_artifacts.catalog import Catalog
from fastvideo_artifacts.headers import record_of, require_id
from fastvideo_artifacts.plain_blobs import PlainBlobs
from fastvideo_artifacts.uploads import Uploads

ARTIFACT: Final = MappingProxyType({STORED: "artifact"})
BLOB: Final = MappingProxyType({STORED: "blob"})

Put = TypeVar("Put", artifacts_pb2.PutArtifactRequest, artifacts_pb2.PutBlobRequest)


class ArtifactServicer(artifacts_pb2_grpc.ArtifactServiceServicer):
    """Put, get, stat and list artifacts; put and get blobs without a record."""

    def __init__(self, catalog: Catalog, uploads: Uploads, blobs: PlainBlobs, clock: Clock) -> None:
        self._catalog = catalog
        self._uploads = uploads
        self._blobs = blobs
        self._clock = clock
        self._received = metrics.counter(BYTES_IN)
        self._sent = metrics.counter(BYTES_OUT)

    async def PutArtifact(
        self,
        request_iterator: AsyncIterator[artifacts_pb2.PutArtifactRequest],
        context: Any,
    ) -> artifacts_pb2.PutArtifactResponse:
        async with incoming(request_iterator) as messages:
            header = (await _first(messages)).header
            artifact = record_of(header, self._clock.now())
            with logging.bound(
                artifact_id=artifact.artifact_id, request_id=artifact.producer.request_id
            ):
                preview = await self._preview(artifact, header.preview_artifact_id)
                record = await self._uploads.put(
                    artifact,
                    self._taken(messages, context, ARTIFACT),
                    header.expected_digest,
                    preview,
                )
        return artifacts_pb2.PutArtifactResponse(record=wire.to_proto(record))

    async def GetArtifact(
        self, request: artifacts_pb2.GetArtifactRequest, context: Any
    ) -> AsyncIterator[artifacts_pb2.GetArtifactResponse]:
        refuse_unknown_fields(request)
        require_id("artifact_id", request.artifact_id)
        record = await self._catalog.find_whole(request.artifact_id, tenant_of(context))
        chunks = self._catalog.read(record, request.start, request.stop)
        yield artifacts_pb2.GetArtifactResponse(record=wire.to_proto(record))
        async for chunk in chunks:
            self._sent.add(len(chunk), ARTIFACT)
            yield artifacts_pb2.GetArtifactResponse(chunk=chunk)

    async def StatArtifact(
        self, request: artifacts_pb2.StatArtifactRequest, context: Any
    ) -> artifacts_pb2.StatArtifactResponse:
        refuse_unknown_fields(request)
        require_id("artifact_id", request.artifact_id)
        record = await self._catalog.find(request.artifact_id, tenant_of(context))
        return artifacts_pb2.StatArtifactResponse(record=wire.to_proto(record))

    async def ListArtifacts(
        self, request: artifacts_pb2.ListArtifactsRequest, context: Any
    ) -> artifacts_pb2.ListArtifactsResponse:
        refuse_unknown_fields(request)
        require_id("request_id", request.request_id)
        page = await self._catalog.list(
            request.request_id, request.page_size, request.page_token, tenant_of(context)
        )
        return artifacts_pb2.ListArtifactsResponse(
            records=[wire.to_proto(record) for record in page.records],
            next_page_token=page.next_page_token,
        )

    async def PutBlob(
        self, request_iterator: AsyncIterator[artifacts_pb2.PutBlobRequest], context: Any
    ) -> artifacts_pb2.PutBlobResponse:
        async with incoming(request_iterator) as messages:
            header = (await _first(messages)).header
            blob = await self._blobs.put(header, self._taken(messages, context, BLOB))
        return artifacts_pb2.PutBlobResponse(digest=blob.digest, size_bytes=blob.size_bytes)

    async def GetBlob(
        self, request: artifacts_pb2.GetBlobRequest, context: Any
    ) -> AsyncIterator[artifacts_pb2.GetBlobResponse]:
        refuse_unknown_fields(request)
        async for chunk in self._blobs.read(request.digest):
            self._sent.add(len(chunk), BLOB)
            yield artifacts_pb2.GetBlobResponse(chunk=chunk)

    async def _taken(
        self, messages: AsyncIterator[Put], context: Any, stored: Mapping[str, str]
    ) -> AsyncIterator[bytes]:
        async for chunk in _chunks(messages, context):
            self._received.add(len(chunk), stored)
            yield chunk

    async def _preview(self, artifact: ArtifactRecord, artifact_id: str) -> BufferRef | None:
        """The stored preview that a header names, of the same request."""
        if not artifact_id:
            return None
        require_id("header.preview_artifact_id", artifact_id)
        record = await self._catalog.find_whole(artifact_id)
        if record.producer.request_id != artifact.producer.request_id:
            raise InvalidField(
                "header.preview_artifact_id", artifact_id, "an artifact of the same request"
            )
        return BufferRef(buffer_id=artifact_id, size_bytes=record.size_bytes)


async def _first(messages: AsyncIterator[Put]) -> Put:
    """The message with the header."""
    first = await next_message(messages)
    if first is None or first.WhichOneof("message") != "header":
        given = None if first is None else first.WhichOneof("message")
        raise InvalidField("message", given, "a header first, then chunks")
    return first


async def _chunks(messages: AsyncIterator[Put], context: Any) -> AsyncIterator[bytes]:
    """The bytes; ends only when the client has ended its stream, not when it has gone."""
    while (message := await next_message(messages)) is not None:
        if message.WhichOneof("message") != "chunk":
            given = message.WhichOneof("message")
            raise InvalidField("message", given, "chunks after the header")
        yield message.chunk
    await require_present(context)
