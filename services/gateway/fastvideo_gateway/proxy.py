"""Artifacts and sessions on the gateway's own port: users know one address.

Calls are handed on with what is left of their deadline; the trace goes with them.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import grpc

from fastvideo.api.artifacts.v1 import artifacts_pb2, artifacts_pb2_grpc
from fastvideo.api.sessions.v1 import sessions_pb2, sessions_pb2_grpc
from fastvideo.errors import FailedPrecondition
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.rpc.identity import current_tenant
from fastvideo.rpc.incoming import incoming
from fastvideo.rpc.unknown_fields import refuse_unknown_fields
from fastvideo_gateway.uploads import InputUploads

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from fastvideo.api.artifacts.v1.artifacts_pb2_grpc import ArtifactServiceAsyncStub
    from fastvideo.api.sessions.v1.sessions_pb2_grpc import SessionServiceAsyncStub

# For callers that give none.
DEADLINE_S_DEFAULT: Final = 30.0

RequestT = TypeVar("RequestT", bound="Message")
ResponseT = TypeVar("ResponseT")

Context = grpc.aio.ServicerContext[Any, Any]


class ArtifactProxy(artifacts_pb2_grpc.ArtifactServiceServicer):
    """Reads of artifacts, and uploads of inputs; the outputs of requests are put by workers."""

    def __init__(self, stub: "ArtifactServiceAsyncStub", uploads: InputUploads) -> None:
        self._stub = stub
        self._uploads = uploads

    async def PutArtifact(
        self,
        request_iterator: AsyncIterator[artifacts_pb2.PutArtifactRequest],
        context: Context,
    ) -> artifacts_pb2.PutArtifactResponse:
        timeout_s = _left(context) or DEADLINE_S_DEFAULT
        with _typed_errors():
            async with incoming(request_iterator) as messages:
                return await self._uploads.put(messages, context, current_tenant(), timeout_s)

    async def GetArtifact(
        self, request: artifacts_pb2.GetArtifactRequest, context: Context
    ) -> AsyncIterator[artifacts_pb2.GetArtifactResponse]:
        refuse_unknown_fields(request)
        # A download takes as long as its caller allows.
        with _typed_errors():
            async for response in self._stub.GetArtifact(request, timeout=_left(context)):
                yield response

    async def StatArtifact(
        self, request: artifacts_pb2.StatArtifactRequest, context: Context
    ) -> artifacts_pb2.StatArtifactResponse:
        return await _forward(self._stub.StatArtifact, request, context)

    async def ListArtifacts(
        self, request: artifacts_pb2.ListArtifactsRequest, context: Context
    ) -> artifacts_pb2.ListArtifactsResponse:
        return await _forward(self._stub.ListArtifacts, request, context)

    async def PutBlob(
        self, request_iterator: AsyncIterator[artifacts_pb2.PutBlobRequest], context: Context
    ) -> artifacts_pb2.PutBlobResponse:
        raise _between_services("PutBlob")

    async def GetBlob(
        self, request: artifacts_pb2.GetBlobRequest, context: Context
    ) -> AsyncIterator[artifacts_pb2.GetBlobResponse]:
        raise _between_services("GetBlob")
        yield  # Makes it the generator that a server stream is.


class SessionProxy(sessions_pb2_grpc.SessionServiceServicer):
    """All of the session service."""

    def __init__(self, stub: "SessionServiceAsyncStub") -> None:
        self._stub = stub

    async def CreateSession(
        self, request: sessions_pb2.CreateSessionRequest, context: Context
    ) -> sessions_pb2.CreateSessionResponse:
        return await _forward(self._stub.CreateSession, request, context)

    async def GetSession(
        self, request: sessions_pb2.GetSessionRequest, context: Context
    ) -> sessions_pb2.GetSessionResponse:
        return await _forward(self._stub.GetSession, request, context)

    async def ListSessions(
        self, request: sessions_pb2.ListSessionsRequest, context: Context
    ) -> sessions_pb2.ListSessionsResponse:
        return await _forward(self._stub.ListSessions, request, context)

    async def CloseSession(
        self, request: sessions_pb2.CloseSessionRequest, context: Context
    ) -> sessions_pb2.CloseSessionResponse:
        return await _forward(self._stub.CloseSession, request, context)

    async def PushText(
        self, request: sessions_pb2.PushTextRequest, context: Context
    ) -> sessions_pb2.PushTextResponse:
        return await _forward(self._stub.PushText, request, context)


def _between_services(method: str) -> FailedPrecondition:
    """Blobs have no owner, so nobody could say whose they are."""
    return FailedPrecondition(
        f"{method} is between services; users put and get artifacts",
        reason="NOT_FOR_USERS",
        subject=method,
    )


async def _forward(
    method: "grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT]",
    request: RequestT,
    context: Context,
) -> ResponseT:
    refuse_unknown_fields(request)
    with _typed_errors():
        return await method(request, timeout=_left(context) or DEADLINE_S_DEFAULT)


def _left(context: Context) -> float | None:
    """Seconds until the caller's deadline; None when it gave none."""
    left_s = context.time_remaining()
    return None if left_s is None else max(left_s, 0.001)


@contextmanager
def _typed_errors() -> Iterator[None]:
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error
