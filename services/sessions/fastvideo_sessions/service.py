"""SessionService: the gRPC face of create, get, list, push text and close."""

from dataclasses import dataclass
from typing import Final

from fastvideo import wire
from fastvideo.api.sessions.v1 import sessions_pb2, sessions_pb2_grpc
from fastvideo.events.projections.projector import Projector
from fastvideo.rpc.identity import current_tenant
from fastvideo.rpc.names import require_name
from fastvideo.rpc.paging import PagePosition, checked_page_size, page_position, page_token
from fastvideo.rpc.unknown_fields import refuse_unknown_fields
from fastvideo.sessions.commands import CloseSession
from fastvideo.sessions.types import SessionState
from fastvideo_sessions.book import SessionBook
from fastvideo_sessions.creation import Creator
from fastvideo_sessions.index import ListQuery, SessionIndex
from fastvideo_sessions.pushing import Pusher

# How long a list waits for the index to reach what the log holds when the call comes.
FRESHNESS_WAIT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class SessionParts:
    """What the service is made of."""

    creator: Creator
    pusher: Pusher
    book: SessionBook
    index: SessionIndex
    projector: Projector


class SessionServicer(sessions_pb2_grpc.SessionServiceServicer):
    """Messages in, messages out; typed errors become statuses in the server's interceptor."""

    def __init__(self, parts: SessionParts) -> None:
        self._parts = parts

    async def CreateSession(
        self, request: sessions_pb2.CreateSessionRequest, context: object
    ) -> sessions_pb2.CreateSessionResponse:
        refuse_unknown_fields(request)
        state = await self._parts.creator.create(request, current_tenant())
        return sessions_pb2.CreateSessionResponse(state=wire.to_proto(state))

    async def GetSession(
        self, request: sessions_pb2.GetSessionRequest, context: object
    ) -> sessions_pb2.GetSessionResponse:
        refuse_unknown_fields(request)
        state = await self._read(request.session_id)
        return sessions_pb2.GetSessionResponse(state=wire.to_proto(state))

    async def ListSessions(
        self, request: sessions_pb2.ListSessionsRequest, context: object
    ) -> sessions_pb2.ListSessionsResponse:
        refuse_unknown_fields(request)
        size = checked_page_size(request.page_size)
        filters = ("sessions", current_tenant())
        after = page_position(request.page_token, *filters)
        await self._parts.projector.is_fresh(FRESHNESS_WAIT_S)
        query = ListQuery(tenant_id=current_tenant(), limit=size + 1, after=after)
        found = await self._parts.index.list_sessions(query)
        token = ""
        if len(found) > size:
            last = found[size - 1]
            token = page_token(PagePosition(last.created_at, last.session_id), *filters)
        return sessions_pb2.ListSessionsResponse(
            states=[wire.to_proto(state) for state in found[:size]], next_page_token=token
        )

    async def CloseSession(
        self, request: sessions_pb2.CloseSessionRequest, context: object
    ) -> sessions_pb2.CloseSessionResponse:
        refuse_unknown_fields(request)
        # Another tenant's session is not found before anything is decided.
        await self._read(request.session_id)
        await self._parts.book.tell(request.session_id, CloseSession())
        state = await self._read(request.session_id)
        return sessions_pb2.CloseSessionResponse(state=wire.to_proto(state))

    async def PushText(
        self, request: sessions_pb2.PushTextRequest, context: object
    ) -> sessions_pb2.PushTextResponse:
        refuse_unknown_fields(request)
        require_name("session_id", request.session_id, "the id of a session")
        pushed = await self._parts.pusher.push(request, current_tenant())
        return sessions_pb2.PushTextResponse(
            state=wire.to_proto(pushed.state), pushed=wire.to_proto(pushed.text)
        )

    async def _read(self, session_id: str) -> SessionState:
        require_name("session_id", session_id, "the id of a session")
        return await self._parts.book.read(session_id, current_tenant())
