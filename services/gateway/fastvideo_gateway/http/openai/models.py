"""/v1/models: what can be asked for."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fastvideo_gateway.http.answers import json_answer
from fastvideo_gateway.http.openai.objects import ModelList, model_object, servable_object
from fastvideo_gateway.http.queries import without_query
from fastvideo_gateway.models import ModelDirectory


class OpenAiModels:
    """The catalog: models, and behind each its programs and workflows."""

    def __init__(self, models: ModelDirectory) -> None:
        self._models = models

    @property
    def routes(self) -> list[Route]:
        """What is under /v1/models."""
        return [
            Route("/v1/models", without_query(self._list)),
            Route("/v1/models/{model_id:path}", without_query(self._get)),
        ]

    async def _list(self, _: Request) -> Response:
        # A model that no deployment serves cannot be asked for.
        statuses = [one for one in await self._models.list() if not one.entry.unavailable_reason]
        listed = [
            told
            for status in statuses
            for told in (
                model_object(status),
                *(servable_object(status, servable) for servable in status.servables),
            )
        ]
        return json_answer(ModelList(data=tuple(listed)))

    async def _get(self, request: Request) -> Response:
        status, servable = await self._models.find(str(request.path_params["model_id"]))
        if servable is not None:
            return json_answer(servable_object(status, servable))
        return json_answer(model_object(status))
