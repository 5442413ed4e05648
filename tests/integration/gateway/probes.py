"""What a stranger asks of another tenant's things: every rpc and every route, one by one."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import grpc

from fastvideo.api.artifacts.v1 import artifacts_pb2
from fastvideo.api.common.v1 import request_pb2, work_pb2
from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.api.sessions.v1 import sessions_pb2
from fastvideo.ids import derived_id
from tests.integration.gateway.keyed import Owned, Party
from tests.integration.gateway.worlds import submit_message
from tests.plugins.http import Answer

Probe = Callable[[Party, Owned], Awaitable[Any]]

# As long as A's, and nobody's.
NOBODYS: Final = Owned(
    request_id=derived_id("req", "nobody"),
    session_id=derived_id("ses", "nobody"),
    upload_id=derived_id("art", "nobody"),
    output_id=f"art_of_{derived_id('req', 'nobody')}",
    digest="0" * 64,
)


async def _submit_to_session(b: Party, their: Owned) -> Any:
    return await b.gateway.SubmitRequest(submit_message(session_id=their.session_id))


async def _submit_with_image(b: Party, their: Owned) -> Any:
    message = submit_message(program_id="image_to_video")
    part = request_pb2.ImagePart(role="image", artifact_id=their.upload_id)
    message.inputs.add().image.CopyFrom(part)
    return await b.gateway.SubmitRequest(message)


async def _submit_with_latents(b: Party, their: Owned) -> Any:
    message = submit_message(None, kind=request_pb2.REQUEST_KIND_CONVERSION)
    part = request_pb2.LatentPart(role="latents", artifact_id=their.upload_id)
    message.inputs.add().latent.CopyFrom(part)
    return await b.gateway.SubmitRequest(message)


async def _push_text(b: Party, their: Owned) -> Any:
    request = sessions_pb2.PushTextRequest(
        session_id=their.session_id, role="context", text="and now a seven"
    )
    return await b.sessions.PushText(request)


def _cancel(kind: "work_pb2.CancelScopeKind.ValueType", suffix: str = "") -> Probe:
    async def cancel(b: Party, their: Owned) -> Any:
        is_session = kind == work_pb2.CANCEL_SCOPE_KIND_SESSION
        target = their.session_id if is_session else f"{their.request_id}{suffix}"
        scope = work_pb2.CancelScope(kind=kind, target_id=target)
        return await b.gateway.CancelRequest(gateway_pb2.CancelRequestRequest(scope=scope))

    return cancel


def _of(service: str, method: str, message: type, **names: str) -> Probe:
    """A call with A's ids in the fields of that name."""

    async def ask(b: Party, their: Owned) -> Any:
        fields = {name: getattr(their, what) for name, what in names.items()}
        answer = getattr(getattr(b, service), method)(message(**fields))
        if isinstance(answer, grpc.aio.UnaryStreamCall):
            return [one async for one in answer]
        return await answer

    return ask


NOT_FOUND: Final[Mapping[str, tuple[Probe, ...]]] = {
    "GatewayService/SubmitRequest": (
        _submit_to_session,
        _submit_with_image,
        _submit_with_latents,
    ),
    "GatewayService/GetRequest": (
        _of("gateway", "GetRequest", gateway_pb2.GetRequestRequest, request_id="request_id"),
    ),
    "GatewayService/WatchRequest": (
        _of("gateway", "WatchRequest", gateway_pb2.WatchRequestRequest, request_id="request_id"),
    ),
    "GatewayService/CancelRequest": (
        _cancel(work_pb2.CANCEL_SCOPE_KIND_REQUEST),
        _cancel(work_pb2.CANCEL_SCOPE_KIND_SESSION),
        _cancel(work_pb2.CANCEL_SCOPE_KIND_LOOP, "/denoise"),
        _cancel(work_pb2.CANCEL_SCOPE_KIND_STREAM, "/video"),
    ),
    "GatewayService/DeleteRequest": (
        _of("gateway", "DeleteRequest", gateway_pb2.DeleteRequestRequest, request_id="request_id"),
    ),
    "GatewayService/ExplainRequest": (
        _of(
            "gateway", "ExplainRequest", gateway_pb2.ExplainRequestRequest, request_id="request_id"
        ),
    ),
    "ArtifactService/GetArtifact": (
        _of("artifacts", "GetArtifact", artifacts_pb2.GetArtifactRequest, artifact_id="upload_id"),
        _of("artifacts", "GetArtifact", artifacts_pb2.GetArtifactRequest, artifact_id="output_id"),
    ),
    "ArtifactService/StatArtifact": (
        _of(
            "artifacts", "StatArtifact", artifacts_pb2.StatArtifactRequest, artifact_id="upload_id"
        ),
        _of(
            "artifacts", "StatArtifact", artifacts_pb2.StatArtifactRequest, artifact_id="output_id"
        ),
    ),
    "ArtifactService/ListArtifacts": (
        _of(
            "artifacts",
            "ListArtifacts",
            artifacts_pb2.ListArtifactsRequest,
            request_id="request_id",
        ),
    ),
    "SessionService/GetSession": (
        _of("sessions", "GetSession", sessions_pb2.GetSessionRequest, session_id="session_id"),
    ),
    "SessionService/CloseSession": (
        _of("sessions", "CloseSession", sessions_pb2.CloseSessionRequest, session_id="session_id"),
    ),
    "SessionService/PushText": (_push_text,),
}

# What answers, and with what; each has a test in test_isolation.py.
ANSWERED: Final = {
    "GatewayService/ListRequests",
    "GatewayService/ListModels",
    "GatewayService/DescribeModel",
    "ArtifactService/PutArtifact",
    "ArtifactService/PutBlob",
    "ArtifactService/GetBlob",
    "SessionService/CreateSession",
    "SessionService/ListSessions",
}


_VIDEO: Final = b'{"prompt": "a red three", "model": "moving-digits"%s}'
BODIES: Final[Mapping[str, bytes]] = {
    "POST /v1/videos": _VIDEO % b', "input_reference": {"file_id": "UPLOAD"}',
    "POST /v1/videos/sync": _VIDEO % b', "input_reference": {"file_id": "UPLOAD"}',
    "POST /v1/sessions/{session_id}/texts": b'{"text": "and now a seven"}',
    "POST /v1/sessions": b'{"conditioning": "nonsense"}',
    "POST /api/replays": b'{"kind": "state", "subject_id": "REQUEST"}',
    "POST /v1/images/generations": b'{"prompt": ""}',
}
QUERIES: Final[Mapping[str, str]] = {
    "GET /api/requests/{request_id}/place": "?before=2026-01-01T00:00:00Z",
}

# Routes for tenants that say nothing of a thing with an id. That of /api/live has a test in
# test_keys.py, lists have theirs in test_isolation.py; the others know of nobody's things.
HTTP_ANSWERED: Final = {
    "GET /api/me",
    "GET /api/live",
    "GET /api/models",
    "GET /api/requests",
    "GET /v1/videos",
    "GET /v1/models",
    "GET /v1/models/{model_id:path}",
    "POST /v1/sessions",
    "POST /v1/images/generations",
}


async def ask(party: Party, name: str, their: Owned) -> Answer:
    """A route with A's ids in it."""
    method, _, path = name.partition(" ")
    for part, value in {
        "{request_id}": their.request_id,
        "{video_id}": their.request_id,
        "{artifact_id}": their.output_id,
        "{session_id}": their.session_id,
        "{model_id:path}": "none",
        "{version:int}": "1",
        "{partition:int}": "0",
        "{offset:int}": "1",
    }.items():
        path = path.replace(part, value)
    body = BODIES.get(name)
    if body is not None:
        body = body.replace(b"UPLOAD", their.upload_id.encode())
        body = body.replace(b"REQUEST", their.request_id.encode())
    return await party.http(method, path + QUERIES.get(name, ""), body=body)
