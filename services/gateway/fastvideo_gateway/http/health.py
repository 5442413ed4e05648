"""Health over HTTP, from memory: the answers come at once, whatever the workers do.

GET /health/live    200 while the process answers; tells the version
GET /health/ready   200 while the event log answers, else 503; lists the models with a worker
"""

from typing import Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fastvideo.version import program_version
from fastvideo_gateway.health import Readiness
from fastvideo_gateway.http.answers import json_answer
from fastvideo_gateway.http.views import Alive, Ready


def health_routes(readiness: Readiness) -> list[Route]:
    """The two paths."""

    async def live(_: Request) -> Response:
        return json_answer(Alive(program_version()))

    async def ready(_: Request) -> Response:
        status: Literal["ready", "not ready"] = "ready" if readiness.ready else "not ready"
        view = Ready(status, program_version(), readiness.models, readiness.quotas())
        return json_answer(view, 200 if readiness.ready else 503)

    return [Route("/health/live", live), Route("/health/ready", ready)]
