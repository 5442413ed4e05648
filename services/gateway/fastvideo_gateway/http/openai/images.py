"""POST /v1/images/generations: n images, each a request of its own with a seed of its own."""

import base64
import hashlib
import time
import uuid

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fastvideo.errors import InvalidField, NotFound
from fastvideo.requests.sampling import SEED_MAX
from fastvideo.requests.types import RequestState
from fastvideo_gateway.http.answers import json_answer
from fastvideo_gateway.http.artifacts import ArtifactRoutes
from fastvideo_gateway.http.openai.asked import ImagesAsked, image_message
from fastvideo_gateway.http.openai.choosing import chosen_model
from fastvideo_gateway.http.openai.numbers import SEED_MAX as API_SEED_MAX
from fastvideo_gateway.http.openai.objects import Image, ImageList
from fastvideo_gateway.http.openai.waiting import Waiting, require_completed
from fastvideo_gateway.http.queries import read_body, without_query
from fastvideo_gateway.service import GatewayParts


class OpenAiImages:
    """Images, which are videos of one frame."""

    def __init__(self, gateway: GatewayParts, artifacts: ArtifactRoutes, waiting: Waiting) -> None:
        self._gateway = gateway
        self._artifacts = artifacts
        self._waiting = waiting

    @property
    def routes(self) -> list[Route]:
        """What is under /v1/images."""
        generate = without_query(self._generate)
        return [Route("/v1/images/generations", generate, methods=["POST"])]

    async def _generate(self, request: Request) -> Response:
        asked = await read_body(request, ImagesAsked)
        chosen = await chosen_model(self._gateway.models, asked.model)
        key = request.headers.get("idempotency-key", "") or uuid.uuid4().hex
        first = _first_seed(asked, key)
        submits = [image_message(asked, chosen, first + i, f"{key}-{i}") for i in range(asked.n)]
        ended = await self._waiting.all_of(request, submits)
        for state in ended:
            require_completed(state)
        data = [await self._image(request, state, asked.response_format) for state in ended]
        return json_answer(ImageList(created=int(time.time()), data=tuple(data)))

    async def _image(self, request: Request, state: RequestState, form: str) -> Image:
        record = next((one for one in state.artifacts if one.name == "image.png"), None)
        if record is None:
            raise NotFound(f"request {state.spec.request_id} has no image")
        image = Image(id=state.spec.request_id, seed=state.spec.sampling.seed)
        if form == "url":
            url = request.url_for("artifact_content", artifact_id=record.artifact_id)
            return image.model_copy(update={"url": str(url)})
        data = await self._artifacts.read(record.artifact_id)
        return image.model_copy(update={"b64_json": base64.b64encode(data).decode()})


def _first_seed(asked: ImagesAsked, key: str) -> int:
    """The given seed, else one that follows from the key, so that a repeat asks for the same.

    Raises InvalidField when the last image's would be too large.
    """
    if asked.seed is None:
        return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) % (SEED_MAX - asked.n)
    if asked.seed > API_SEED_MAX - asked.n + 1:
        raise InvalidField("seed", asked.seed, f"at most {API_SEED_MAX - asked.n + 1} for n images")
    return asked.seed
