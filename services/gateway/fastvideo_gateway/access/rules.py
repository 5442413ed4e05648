"""Who may call what: every method of the gateway's gRPC and every route of its HTTP.

What is not named here is refused: a method is for operators, and an application with a route that
is not named does not start.

PUBLIC tells nothing of anybody. TENANT is for whoever has a key, and shows what is its tenant's;
what is another's does not exist for it. OPERATOR sees or changes what is everybody's.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fastvideo.rpc.identity import Access

_METHODS: Final[Mapping[str, Mapping[str, Access]]] = {
    "fastvideo.gateway.v1.GatewayService": {
        "SubmitRequest": Access.TENANT,
        "GetRequest": Access.TENANT,
        "ListRequests": Access.TENANT,
        "WatchRequest": Access.TENANT,
        "CancelRequest": Access.TENANT,
        "DeleteRequest": Access.TENANT,
        "ExplainRequest": Access.TENANT,
        "ListModels": Access.TENANT,
        "DescribeModel": Access.TENANT,
        "GetDeployment": Access.OPERATOR,
        "RecordParity": Access.OPERATOR,
    },
    "fastvideo.gateway.v1.KeyService": {
        "CreateKey": Access.OPERATOR,
        "ListKeys": Access.OPERATOR,
        "RevokeKey": Access.OPERATOR,
        "SetTenantPolicy": Access.OPERATOR,
        "GetTenantPolicy": Access.OPERATOR,
    },
    "fastvideo.artifacts.v1.ArtifactService": {
        "PutArtifact": Access.TENANT,
        "GetArtifact": Access.TENANT,
        "StatArtifact": Access.TENANT,
        "ListArtifacts": Access.TENANT,
        # Between services; the gateway refuses both for everybody.
        "PutBlob": Access.TENANT,
        "GetBlob": Access.TENANT,
    },
    "fastvideo.sessions.v1.SessionService": {
        "CreateSession": Access.TENANT,
        "GetSession": Access.TENANT,
        "ListSessions": Access.TENANT,
        "CloseSession": Access.TENANT,
        "PushText": Access.TENANT,
    },
    "fastvideo.events.v1.EventLogService": {
        "ReadStream": Access.OPERATOR,
        "ReadLog": Access.OPERATOR,
        "SubscribeEvents": Access.OPERATOR,
        "GetLogStats": Access.OPERATOR,
        "VerifyLog": Access.OPERATOR,
        "ListBehaviors": Access.OPERATOR,
    },
    "fastvideo.events.v1.ProjectionService": {
        "ListProjections": Access.OPERATOR,
        "RebuildProjection": Access.OPERATOR,
    },
    "fastvideo.replay.v1.ReplayService": {
        "Replay": Access.OPERATOR,
        "GetLoggedRun": Access.OPERATOR,
    },
}

METHODS: Final[Mapping[str, Access]] = MappingProxyType(
    {
        f"/{service}/{method}": access
        for service, methods in _METHODS.items()
        for method, access in methods.items()
    }
)
"""By gRPC's full name of a method."""

ROUTES: Final[Mapping[str, Access]] = MappingProxyType(
    {
        "GET /": Access.PUBLIC,
        "GET /requests/{request_id}": Access.PUBLIC,
        "GET /page": Access.PUBLIC,
        "GET /health/live": Access.PUBLIC,
        "GET /health/ready": Access.PUBLIC,
        "GET /openapi.json": Access.PUBLIC,
        "GET /metrics": Access.OPERATOR,
        "POST /api/login": Access.PUBLIC,
        "POST /api/logout": Access.PUBLIC,
        "GET /api/me": Access.TENANT,
        "GET /api/live": Access.TENANT,
        "GET /api/models": Access.TENANT,
        "GET /api/requests": Access.TENANT,
        "GET /api/requests/{request_id}": Access.TENANT,
        "GET /api/requests/{request_id}/explanation": Access.TENANT,
        "GET /api/requests/{request_id}/events": Access.TENANT,
        "GET /api/requests/{request_id}/events/{version:int}": Access.TENANT,
        "GET /api/requests/{request_id}/states/{version:int}": Access.TENANT,
        "GET /api/requests/{request_id}/place": Access.TENANT,
        "GET /api/requests/{request_id}/live": Access.TENANT,
        "GET /api/artifacts/{artifact_id}": Access.TENANT,
        "GET /api/artifacts/{artifact_id}/content": Access.TENANT,
        "GET /api/events": Access.OPERATOR,
        "GET /api/events/{partition:int}/{offset:int}": Access.OPERATOR,
        "POST /api/replays": Access.OPERATOR,
        "POST /v1/videos": Access.TENANT,
        "GET /v1/videos": Access.TENANT,
        "POST /v1/videos/sync": Access.TENANT,
        "GET /v1/videos/{video_id}": Access.TENANT,
        "DELETE /v1/videos/{video_id}": Access.TENANT,
        "POST /v1/videos/{video_id}/cancel": Access.TENANT,
        "GET /v1/videos/{video_id}/content": Access.TENANT,
        "GET /v1/videos/{video_id}/events": Access.TENANT,
        "POST /v1/images/generations": Access.TENANT,
        "POST /v1/sessions": Access.TENANT,
        "GET /v1/sessions/{session_id}": Access.TENANT,
        "POST /v1/sessions/{session_id}/close": Access.TENANT,
        "POST /v1/sessions/{session_id}/texts": Access.TENANT,
        "GET /v1/models": Access.TENANT,
        "GET /v1/models/{model_id:path}": Access.TENANT,
    }
)
"""By method and path of a route; HEAD goes with GET. Of a mount, the path that is below it."""
