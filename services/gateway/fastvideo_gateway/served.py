"""What the system serves now, for those who compare it with the log."""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

import grpc

from fastvideo import wire
from fastvideo.api.artifacts.v1 import artifacts_pb2
from fastvideo.api.sessions.v1 import sessions_pb2
from fastvideo.artifacts.types import ArtifactRecord
from fastvideo.errors import NotFound, Unavailable
from fastvideo.events.projections.projector import Projector
from fastvideo.requests.types import RequestState
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.rpc.identity import DEFAULT_TENANT, Caller, Role, calling
from fastvideo.sessions.types import SessionState
from fastvideo_gateway.index import RequestIndex

if TYPE_CHECKING:
    from fastvideo.api.artifacts.v1.artifacts_pb2_grpc import ArtifactServiceAsyncStub
    from fastvideo.api.sessions.v1.sessions_pb2_grpc import SessionServiceAsyncStub

# How long the lists may take to hold what the log holds.
REACHED_S_MAX: Final = 30.0
CALL_S_MAX: Final = 10.0


class ServedStates:
    """The gateway's own lists, and what the other services answer."""

    def __init__(
        self,
        index: RequestIndex,
        projector: Projector,
        sessions: "SessionServiceAsyncStub",
        artifacts: "ArtifactServiceAsyncStub",
    ) -> None:
        self._index = index
        self._projector = projector
        self._sessions = sessions
        self._artifacts = artifacts

    async def reached(self, heads: Mapping[int, int]) -> None:
        """Wait until the lists hold what was in the log. Raises Unavailable after too long."""
        try:
            async with asyncio.timeout(REACHED_S_MAX):
                await self._projector.reached(heads)
        except TimeoutError as error:
            raise Unavailable(
                f"the lists do not hold the log after {REACHED_S_MAX:.0f} s",
                reason="PROJECTION_FILLING",
            ) from error

    async def requests(
        self, tenant_id: str, request_ids: tuple[str, ...]
    ) -> Mapping[str, RequestState]:
        """The rows of requests; those that the lists do not have are left out."""
        found = await self._index.find_requests(tenant_id, request_ids, deleted_too=True)
        return {state.spec.request_id: state for state in found}

    async def session(self, session_id: str, tenant_id: str) -> SessionState | None:
        """The session of a tenant as its service has it; None when that knows of none."""
        asked = sessions_pb2.GetSessionRequest(session_id=session_id)
        try:
            with _for(tenant_id):
                answer = await self._sessions.GetSession(asked, timeout=CALL_S_MAX)
        except grpc.aio.AioRpcError as error:
            _check_absent(error)
            return None
        return wire.from_proto(SessionState, answer.state)

    async def artifact(self, artifact_id: str, tenant_id: str) -> ArtifactRecord | None:
        """The artifact of a tenant as its service has it; None when that knows of none."""
        asked = artifacts_pb2.StatArtifactRequest(artifact_id=artifact_id)
        try:
            with _for(tenant_id):
                answer = await self._artifacts.StatArtifact(asked, timeout=CALL_S_MAX)
        except grpc.aio.AioRpcError as error:
            _check_absent(error)
            return None
        return wire.from_proto(ArtifactRecord, answer.record)


def _for(tenant_id: str) -> AbstractContextManager[None]:
    """Calls in the name of the tenant that a thing is of: the operator who asks sees them all."""
    return calling(Caller(tenant_id=tenant_id or DEFAULT_TENANT, role=Role.OPERATOR))


def _check_absent(error: grpc.aio.AioRpcError) -> None:
    """Raise what a call failed with, unless that is that there is no such thing."""
    typed = from_rpc_error(error)
    if not isinstance(typed, NotFound):
        raise typed from error
