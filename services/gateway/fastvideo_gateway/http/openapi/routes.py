"""/openapi.json."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fastvideo_gateway.http.answers import json_answer
from fastvideo_gateway.http.openapi.document import document


def document_routes() -> list[Route]:
    """The document; it is made when it is first asked for."""

    async def get(_: Request) -> Response:
        return json_answer(document())

    return [Route("/openapi.json", get, methods=["GET"])]
