"""/api/artifacts: records, and bytes with ranges, so that a video can be sought in."""

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import grpc
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from fastvideo import wire
from fastvideo.api.artifacts.v1 import artifacts_pb2
from fastvideo.artifacts.types import ArtifactRecord
from fastvideo.errors import InvalidField, Unavailable
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.rpc.names import require_name
from fastvideo_gateway.http.answers import error_record, json_answer
from fastvideo_gateway.http.refusals import refusal
from fastvideo_gateway.http.views import ArtifactView

if TYPE_CHECKING:
    from fastvideo.api.artifacts.v1.artifacts_pb2_grpc import ArtifactServiceAsyncStub

STAT_TIMEOUT_S: Final = 10.0
# Whoever takes longer for a file asks for the rest of it.
READ_TIMEOUT_S: Final = 600.0
NOT_SATISFIABLE: Final = 416

_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
# What a browser may show; all else is only for saving.
_SHOWN: Final = re.compile(r"(video|audio|image)/(?!svg)[\w.+-]+")
_HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Accept-Ranges": "bytes",
        # The same id has the same bytes; whether they are there still is asked every time.
        "Cache-Control": "private, no-cache",
        # Of two who share a browser, one does not get what was kept for the other.
        "Vary": "Authorization, Cookie",
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
)


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes from `start` to before `stop`."""

    start: int
    stop: int


class ArtifactRoutes:
    """Reads of artifacts."""

    def __init__(self, stub: "ArtifactServiceAsyncStub") -> None:
        self._stub = stub

    @property
    def routes(self) -> list[Route]:
        """What is under /api/artifacts."""
        one = "/api/artifacts/{artifact_id}"
        return [
            Route(one, self._get),
            Route(f"{one}/content", self._content, name="artifact_content"),
        ]

    async def _get(self, request: Request) -> Response:
        record = await self._record(str(request.path_params["artifact_id"]))
        return json_answer(ArtifactView(record))

    async def _content(self, request: Request) -> Response:
        return await self.content(request, str(request.path_params["artifact_id"]))

    async def content(self, request: Request, artifact_id: str) -> Response:
        """An artifact's bytes, or the range of them that the request asks for.

        Raises Gone for what has expired or was deleted, FailedPrecondition for what is not stored
        yet, before anything is sent.
        """
        record = await self._stored(artifact_id)
        headers = {**_HEADERS, **_headers_of(record)}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        size = record.size_bytes
        asked = request.headers.get("range", "")
        if request.headers.get("if-range", headers["ETag"]) != headers["ETag"]:
            asked = ""
        try:
            span = span_of(asked, size)
        except InvalidField as error:
            refused = refusal(request.url.path, error_record(error), NOT_SATISFIABLE)
            refused.headers["Content-Range"] = f"bytes */{size}"
            return refused
        part = span or Span(0, size)
        headers["Content-Length"] = str(part.stop - part.start)
        if span is not None:
            headers["Content-Range"] = f"bytes {span.start}-{span.stop - 1}/{size}"
        if request.method == "HEAD" or part.stop == part.start:
            return Response(status_code=206 if span else 200, headers=headers)
        return StreamingResponse(
            self._bytes(record.artifact_id, part), 206 if span else 200, headers=headers
        )

    async def read(self, artifact_id: str) -> bytes:
        """All of an artifact's bytes; for small ones."""
        record = await self._stored(artifact_id)
        return b"".join([one async for one in self._bytes(artifact_id, Span(0, record.size_bytes))])

    async def _record(self, artifact_id: str) -> ArtifactRecord:
        require_name("artifact_id", artifact_id, "the id of an artifact")
        asked = artifacts_pb2.StatArtifactRequest(artifact_id=artifact_id)
        try:
            answer = await self._stub.StatArtifact(asked, timeout=STAT_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        return wire.from_proto(ArtifactRecord, answer.record)

    async def _stored(self, artifact_id: str) -> ArtifactRecord:
        """The record of an artifact whose bytes may be read."""
        require_name("artifact_id", artifact_id, "the id of an artifact")
        asked = artifacts_pb2.GetArtifactRequest(artifact_id=artifact_id, stop=1)
        call = self._stub.GetArtifact(asked, timeout=STAT_TIMEOUT_S)
        try:
            async for answer in call:
                return wire.from_proto(ArtifactRecord, answer.record)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        finally:
            call.cancel()
        raise Unavailable(f"artifact {artifact_id} came without its record")

    async def _bytes(self, artifact_id: str, part: Span) -> AsyncIterator[bytes]:
        asked = artifacts_pb2.GetArtifactRequest(
            artifact_id=artifact_id, start=part.start, stop=part.stop
        )
        call = self._stub.GetArtifact(asked, timeout=READ_TIMEOUT_S)
        try:
            async for answer in call:
                if answer.WhichOneof("message") == "chunk":
                    yield answer.chunk
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        finally:
            call.cancel()


def span_of(header: str, size: int) -> Span | None:
    """The bytes that a Range header asks for; None when it asks for all, or in a way not known.

    Raises InvalidField for a range outside of the file.
    """
    found = _RANGE.fullmatch(header.strip())
    if found is None or found.group(0) == "bytes=-":
        return None
    first, last = found.groups()
    if not first:
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), min(size, int(last) + 1) if last else size
    if start >= stop:
        raise InvalidField("Range", header, f"within {size} bytes")
    return Span(start, stop)


def _headers_of(record: ArtifactRecord) -> dict[str, str]:
    shown = _SHOWN.fullmatch(record.content_type) is not None
    name = quote(record.name or record.artifact_id, safe="")
    return {
        "Content-Type": record.content_type if shown else "application/octet-stream",
        "Content-Disposition": f"{'inline' if shown else 'attachment'}; filename*=UTF-8''{name}",
        "ETag": f'"{record.digest}"',
    }
