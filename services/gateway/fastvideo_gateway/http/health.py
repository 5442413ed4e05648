"""Health over HTTP, from memory: the answers come at once, whatever the workers do.

GET /health/live    200 while the process answers; tells the version
GET /health/ready   200 while the event log answers, else 503; lists the models with a worker, and
                    is 503 without one for the model that is asked for
"""

from typing import Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fastvideo.errors import NotFound
from fastvideo.version import program_version
from fastvideo_gateway.health import Readiness
from fastvideo_gateway.http.answers import json_answer
from fastvideo_gateway.http.queries import Given, read_query
from fastvideo_gateway.http.views import Alive, Ready


class ReadyGiven(Given):
    """What must be ready."""

    model: str = ""
    """A worker must serve this model too."""


def health_routes(readiness: Readiness) -> list[Route]:
    """The two paths."""

    async def live(_: Request) -> Response:
        return json_answer(Alive(program_version()))

    async def ready(request: Request) -> Response:
        model, models = read_query(request, ReadyGiven).model, readiness.models
        # Before the first check nothing is known of any model.
        if model and models and model not in models:
            raise NotFound(f"model {model} does not exist", subject="model")
        is_ready = readiness.ready and (not model or models[model])
        status: Literal["ready", "not ready"] = "ready" if is_ready else "not ready"
        view = Ready(status, program_version(), models, readiness.quotas())
        return json_answer(view, 200 if is_ready else 503)

    return [Route("/health/live", live), Route("/health/ready", ready)]
