"""/v1/sessions: contexts that requests for videos may name, and the texts that are pushed to them.

What is taken and what it changes, the session service decides, as for those who ask over gRPC.
"""

import uuid
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import grpc
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fastvideo import wire
from fastvideo.api.common.v1 import session_pb2
from fastvideo.api.sessions.v1 import sessions_pb2
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.rpc.names import require_name
from fastvideo.sessions.types import PushedText, SessionConditioning, SessionState
from fastvideo_gateway.http.answers import json_answer
from fastvideo_gateway.http.openai.choosing import chosen_model
from fastvideo_gateway.http.openai.objects import Told
from fastvideo_gateway.http.queries import Given, read_body, without_query
from fastvideo_gateway.models import ModelDirectory

if TYPE_CHECKING:
    from fastvideo.api.sessions.v1.sessions_pb2_grpc import SessionServiceAsyncStub

TIMEOUT_S: Final = 30.0
_UINT32_MAX: Final = 2**32 - 1

Amount = Annotated[int, Field(ge=0, le=_UINT32_MAX)]


class SessionAsked(Given):
    """The body of POST /v1/sessions; `{}` takes every default."""

    model: str = ""
    """The id of a model; may be left out where only one is served."""
    conditioning: SessionConditioning = SessionConditioning.INDEPENDENT
    """What joins the prompts of its videos: nothing, the texts that were pushed, or those and the
    prompts of earlier videos."""
    inactivity_timeout_s: Amount = 0
    """Seconds without a request or a push until it is closed; 0 takes the default."""
    prompt_memory_limit: Amount = 0
    """Texts and prompts that it keeps, of each kind; 0 takes the default."""


class TextAsked(Given):
    """The body of POST /v1/sessions/{session_id}/texts."""

    text: str
    """1 to 2,000 characters."""
    role: str = "context"
    """`context` stands before all prompts of its later videos, `prompt` is remembered as if a
    video had asked it."""


class SessionText(Told):
    """A text that was pushed."""

    id: str
    object: Literal["session.text"] = "session.text"
    role: str
    text: str
    created_at: int


class SessionPrompt(Told):
    """A prompt that is remembered."""

    video_id: str | None
    """The request that asked it; null when it was pushed."""
    prompt: str


class Session(Told):
    """A session as it stands."""

    id: str
    object: Literal["session"] = "session"
    status: Literal["open", "closed"]
    model: str
    conditioning: SessionConditioning
    inactivity_timeout_s: int
    prompt_memory_limit: int
    created_at: int
    """Unix seconds, as all times here."""
    closed_at: int | None
    close_reason: str
    texts: tuple[SessionText, ...]
    """Those of the role `context`, the oldest first."""
    prompts: tuple[SessionPrompt, ...]
    """The oldest first."""


class SessionRoutes:
    """Sessions over HTTP."""

    def __init__(self, stub: "SessionServiceAsyncStub", models: ModelDirectory) -> None:
        self._stub = stub
        self._models = models

    @property
    def routes(self) -> list[Route]:
        """What is under /v1/sessions."""
        one = "/v1/sessions/{session_id}"
        return [
            Route("/v1/sessions", without_query(self._create), methods=["POST"]),
            Route(one, without_query(self._get), methods=["GET"]),
            Route(f"{one}/close", without_query(self._close), methods=["POST"]),
            Route(f"{one}/texts", without_query(self._push), methods=["POST"]),
        ]

    async def _create(self, request: Request) -> Response:
        asked = await read_body(request, SessionAsked)
        chosen = await chosen_model(self._models, asked.model)
        mode = f"SESSION_CONDITIONING_{asked.conditioning.upper()}"
        message = sessions_pb2.CreateSessionRequest(
            model_ids=[chosen.entry.card.model_id],
            conditioning=session_pb2.SessionConditioning.Value(mode),
            inactivity_timeout_s=asked.inactivity_timeout_s,
            prompt_memory_limit=asked.prompt_memory_limit,
            idempotency_key=_key_of(request),
        )
        return _answer(await _called(self._stub.CreateSession, message), 201)

    async def _get(self, request: Request) -> Response:
        message = sessions_pb2.GetSessionRequest(session_id=_id_of(request))
        return _answer(await _called(self._stub.GetSession, message))

    async def _close(self, request: Request) -> Response:
        message = sessions_pb2.CloseSessionRequest(session_id=_id_of(request))
        return _answer(await _called(self._stub.CloseSession, message))

    async def _push(self, request: Request) -> Response:
        session_id = _id_of(request)
        asked = await read_body(request, TextAsked)
        message = sessions_pb2.PushTextRequest(
            session_id=session_id,
            role=asked.role,
            text=asked.text,
            idempotency_key=_key_of(request),
        )
        answer = await _called(self._stub.PushText, message)
        return json_answer(text_object(wire.from_proto(PushedText, answer.pushed)), 201)


def session_object(state: SessionState) -> Session:
    """A session as an object."""
    return Session(
        id=state.session_id,
        status=state.status.value,
        model=state.model_bindings[0].model_id if state.model_bindings else "",
        conditioning=state.conditioning or SessionConditioning.INDEPENDENT,
        inactivity_timeout_s=state.inactivity_timeout_s,
        prompt_memory_limit=state.prompt_memory_limit,
        created_at=_unix(state.created_at),
        closed_at=None if state.closed_at is None else _unix(state.closed_at),
        close_reason=state.close_reason,
        texts=tuple(map(text_object, state.context_texts)),
        prompts=tuple(
            SessionPrompt(video_id=entry.request_id or None, prompt=entry.prompt)
            for entry in state.prompt_memory
        ),
    )


def text_object(text: PushedText) -> SessionText:
    """A pushed text as an object."""
    return SessionText(id=text.push_id, role=text.role, text=text.text, created_at=_unix(text.at))


def _unix(moment: datetime) -> int:
    return int(moment.timestamp())


async def _called(method: Callable[..., Any], message: Any) -> Any:
    try:
        return await method(message, timeout=TIMEOUT_S)
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error


def _answer(answer: Any, status: int = 200) -> Response:
    return json_answer(session_object(wire.from_proto(SessionState, answer.state)), status)


def _key_of(request: Request) -> str:
    return request.headers.get("idempotency-key", "") or uuid.uuid4().hex


def _id_of(request: Request) -> str:
    session_id = str(request.path_params["session_id"])
    require_name("session_id", session_id, "the id of a session")
    return session_id
