"""The calls of a client that are about sessions."""

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastvideo import wire
from fastvideo.api.common.v1 import session_pb2
from fastvideo.api.sessions.v1 import sessions_pb2
from fastvideo.client import cards
from fastvideo.client.calls import Calls
from fastvideo.client.generation import same_fields
from fastvideo.client.submission import filled, member
from fastvideo.client.types import DEFAULT_MODEL_ID, Page
from fastvideo.errors import InvalidField
from fastvideo.sessions.types import PushedText, SessionConditioning, SessionState

if TYPE_CHECKING:
    from fastvideo.api.sessions.v1.sessions_pb2_grpc import SessionServiceAsyncStub


class SessionInfo(SessionState):
    """A `SessionState` that a prompt and a notebook show in a few lines."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SessionState):
            return NotImplemented
        return same_fields(self, other, SessionState)

    __hash__ = SessionState.__hash__

    def __repr__(self) -> str:
        return cards.session_text(self)

    def _repr_html_(self) -> str:
        return cards.text_html(cards.session_text(self))


class SessionCalls:
    """Sessions: contexts that requests may name."""

    _calls: Calls
    _sessions: "SessionServiceAsyncStub"

    async def create_session(
        self,
        *,
        model_ids: Sequence[str] = (DEFAULT_MODEL_ID,),
        user_id: str = "",
        inactivity_timeout_s: int = 0,
        prompt_memory_limit: int = 0,
        conditioning: SessionConditioning | str = SessionConditioning.INDEPENDENT,
        idempotency_key: str | None = None,
    ) -> SessionInfo:
        """Open a session; zeros take the service's defaults (30 minutes, 20 prompts).

        `conditioning` says what joins the prompts of its requests: "independent" nothing,
        "pushed" the texts that `push_text` gave, "memory" those and the prompts of its earlier
        requests. Raises InvalidField naming the argument, and NotFound for a model.
        """
        mode = member("conditioning", conditioning, SessionConditioning).upper()
        request = filled(
            sessions_pb2.CreateSessionRequest(
                model_ids=_model_ids(model_ids),
                conditioning=session_pb2.SessionConditioning.Value(f"SESSION_CONDITIONING_{mode}"),
            ),
            user_id=user_id,
            inactivity_timeout_s=inactivity_timeout_s,
            prompt_memory_limit=prompt_memory_limit,
            idempotency_key=idempotency_key or uuid.uuid4().hex,
        )
        return _session((await self._calls(self._sessions.CreateSession, request)).state)

    async def push_text(
        self,
        session_id: str,
        text: str,
        *,
        role: str = "context",
        idempotency_key: str | None = None,
    ) -> PushedText:
        """Give a session a text of 1 to 2,000 characters; it is durable when this returns.

        A "context" stands before all prompts of the session's later requests, a "prompt" is
        remembered as if a request had asked it. What they change is what the session's
        conditioning says. Raises InvalidField naming `role` or `text`, NotFound, and
        FailedPrecondition, SESSION_CLOSED.
        """
        request = filled(
            sessions_pb2.PushTextRequest(),
            session_id=session_id,
            role=role,
            text=text,
            idempotency_key=idempotency_key or uuid.uuid4().hex,
        )
        answer = await self._calls(self._sessions.PushText, request)
        return wire.from_proto(PushedText, answer.pushed)

    async def get_session(self, session_id: str) -> SessionInfo:
        """Where a session stands. Raises NotFound."""
        request = filled(sessions_pb2.GetSessionRequest(), session_id=session_id)
        return _session((await self._calls(self._sessions.GetSession, request)).state)

    async def list_sessions(self, *, page_size: int = 0, page_token: str = "") -> Page[SessionInfo]:
        """Sessions, newest first; a page size of 0 takes the server's."""
        request = filled(
            sessions_pb2.ListSessionsRequest(), page_size=page_size, page_token=page_token
        )
        answer = await self._calls(self._sessions.ListSessions, request)
        return Page(tuple(map(_session, answer.states)), answer.next_page_token)

    async def close_session(self, session_id: str) -> SessionInfo:
        """Close a session; what it remembered is let go. A second time changes nothing.

        Raises NotFound.
        """
        request = filled(sessions_pb2.CloseSessionRequest(), session_id=session_id)
        return _session((await self._calls(self._sessions.CloseSession, request)).state)


def _model_ids(given: Sequence[str]) -> Sequence[str]:
    # A text is a sequence of texts, too.
    if isinstance(given, str) or not all(isinstance(one, str) for one in given):
        raise InvalidField("model_ids", given, "a list of the ids of models")
    return given


def _session(message: Any) -> SessionInfo:
    return wire.from_proto(SessionInfo, message)
