"""Health over HTTP, from memory: the answers come at once, whatever the workers do.

GET /health/live    200 while the process answers
GET /health/ready   200 while the event log answers, else 503; lists the models with a worker
"""

import json
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fastvideo_gateway.health import Readiness


def health_routes(readiness: Readiness) -> list[Route]:
    """The two paths."""

    async def live(_: Request) -> Response:
        return _answer(200, {"status": "live"})

    async def ready(_: Request) -> Response:
        record = {
            "status": "ready" if readiness.ready else "not ready",
            "models": dict(readiness.models),
        }
        return _answer(200 if readiness.ready else 503, record)

    return [Route("/health/live", live), Route("/health/ready", ready)]


def _answer(status: int, record: Mapping[str, object]) -> Response:
    body = json.dumps(record)
    headers = {"Cache-Control": "no-store"}
    return Response(body, status, headers=headers, media_type="application/json")
