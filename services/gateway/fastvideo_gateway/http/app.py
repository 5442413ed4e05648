"""The HTTP application put together."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from fastvideo.errors import FastVideoError
from fastvideo.events.reading.reader import LogReader
from fastvideo_gateway.access.door import Door, OpenDoor
from fastvideo_gateway.access.rules import ROUTES
from fastvideo_gateway.health import Readiness
from fastvideo_gateway.http.answers import json_answer
from fastvideo_gateway.http.artifacts import ArtifactRoutes
from fastvideo_gateway.http.entrance import guarded
from fastvideo_gateway.http.events import EventRoutes
from fastvideo_gateway.http.guard import Guard
from fastvideo_gateway.http.health import health_routes
from fastvideo_gateway.http.live import LiveRoutes
from fastvideo_gateway.http.login import login_routes
from fastvideo_gateway.http.metrics import metrics_routes
from fastvideo_gateway.http.openai.images import OpenAiImages
from fastvideo_gateway.http.openai.models import OpenAiModels
from fastvideo_gateway.http.openai.videos import OpenAiVideos
from fastvideo_gateway.http.openai.waiting import Waiting
from fastvideo_gateway.http.openapi.routes import document_routes
from fastvideo_gateway.http.page import page_routes
from fastvideo_gateway.http.refusals import http_error, typed_error, unexpected_error
from fastvideo_gateway.http.replays import ReplayRoutes, Replays
from fastvideo_gateway.http.requests import RequestRoutes
from fastvideo_gateway.http.sessions import SessionRoutes
from fastvideo_gateway.http.streams import Streams
from fastvideo_gateway.http.tracing import Traced
from fastvideo_gateway.http.views import ModelRow, ModelRows
from fastvideo_gateway.models import ModelDirectory
from fastvideo_gateway.past import RequestPast
from fastvideo_gateway.service import GatewayParts
from fastvideo_gateway.uploads import InputUploads

if TYPE_CHECKING:
    from fastvideo.api.artifacts.v1.artifacts_pb2_grpc import ArtifactServiceAsyncStub
    from fastvideo.api.sessions.v1.sessions_pb2_grpc import SessionServiceAsyncStub


@dataclass(frozen=True, slots=True)
class HttpParts:
    """What the application is made of."""

    gateway: GatewayParts
    past: RequestPast
    reader: LogReader
    # None where none are run.
    replays: Replays | None
    artifacts: "ArtifactServiceAsyncStub"
    uploads: InputUploads
    sessions: "SessionServiceAsyncStub"
    readiness: Readiness
    # Set when the gateway stops.
    closing: asyncio.Event
    door: Door = field(default_factory=OpenDoor)
    # How much of all places one tenant may have.
    share: float = 1.0


def http_app(parts: HttpParts, listen: str) -> ASGIApp:
    """Everything that is under the gateway's HTTP address."""
    gateway = parts.gateway
    streams = Streams(parts.closing, parts.door.check_still, share=parts.share)
    artifacts = ArtifactRoutes(parts.artifacts)
    waiting = Waiting(gateway, parts.door.check_still, parts.closing, share=parts.share)
    routes: Sequence[BaseRoute] = (
        *health_routes(parts.readiness),
        *metrics_routes(),
        *LiveRoutes(gateway.watches, gateway.lister, streams).routes,
        *RequestRoutes(gateway.lister, gateway.explainer, parts.past).routes,
        *EventRoutes(parts.reader).routes,
        *ReplayRoutes(parts.replays, streams).routes,
        *artifacts.routes,
        *OpenAiVideos(gateway, artifacts, parts.uploads, streams, waiting).routes,
        *OpenAiImages(gateway, artifacts, waiting).routes,
        *OpenAiModels(gateway.models).routes,
        *SessionRoutes(parts.sessions, gateway.models).routes,
        _models(gateway.models),
        *login_routes(parts.door),
        *document_routes(),
        *page_routes(),
    )
    app = Starlette(
        routes=guarded(routes, ROUTES, parts.door),
        exception_handlers={
            FastVideoError: typed_error,
            HTTPException: http_error,
            Exception: unexpected_error,
        },
    )
    return Traced(Guard(app, listen))


def _models(models: ModelDirectory) -> Route:
    async def listed(_: Request) -> Response:
        rows = [ModelRow(one.entry.card.model_id, one.ready) for one in await models.list()]
        return json_answer(ModelRows(tuple(rows)))

    return Route("/api/models", listed)
