"""POST /v1/images/generations: n images, each a request of its own with a seed of its own."""

import base64
import secrets
import time
import uuid
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fastvideo.errors import NotFound
from fastvideo.requests.sampling import SEED_MAX
from fastvideo.requests.types import RequestState
from fastvideo.rpc.identity import DEFAULT_TENANT
from fastvideo_gateway.http.answers import json_answer
from fastvideo_gateway.http.artifacts import ArtifactRoutes
from fastvideo_gateway.http.openai.asked import ImagesAsked, image_message
from fastvideo_gateway.http.openai.choosing import chosen_model
from fastvideo_gateway.http.openai.waiting import Waiting, require_completed
from fastvideo_gateway.http.queries import read_body
from fastvideo_gateway.service import GatewayParts


class OpenAiImages:
    """Images, which are videos of one frame."""

    def __init__(self, gateway: GatewayParts, artifacts: ArtifactRoutes) -> None:
        self._gateway = gateway
        self._artifacts = artifacts
        self._waiting = Waiting(gateway)

    @property
    def routes(self) -> list[Route]:
        """What is under /v1/images."""
        return [Route("/v1/images/generations", self._generate, methods=["POST"])]

    async def _generate(self, request: Request) -> Response:
        asked = await read_body(request, ImagesAsked)
        entry = await chosen_model(self._gateway.models, asked.model)
        key = request.headers.get("idempotency-key", "") or uuid.uuid4().hex
        first = asked.seed if asked.seed is not None else secrets.randbelow(SEED_MAX - asked.n)
        # All are checked before one is accepted: they differ in their seeds alone.
        submits = [image_message(asked, entry, first + i, f"{key}-{i}") for i in range(asked.n)]
        states = [
            (await self._gateway.submitter.submit(submit, DEFAULT_TENANT)).state
            for submit in submits
        ]
        ended = await self._waiting.all_of(request, states)
        for state in ended:
            require_completed(state)
        data = [await self._image(request, state, asked.response_format) for state in ended]
        return json_answer({"created": int(time.time()), "data": data})

    async def _image(self, request: Request, state: RequestState, form: str) -> dict[str, Any]:
        record = next((one for one in state.artifacts if one.name == "image.png"), None)
        if record is None:
            raise NotFound(f"request {state.spec.request_id} has no image")
        image: dict[str, Any] = {"seed": state.spec.sampling.seed, "id": state.spec.request_id}
        if form == "url":
            url = request.url_for("artifact_content", artifact_id=record.artifact_id)
            return {**image, "url": str(url)}
        data = await self._artifacts.read(record.artifact_id)
        return {**image, "b64_json": base64.b64encode(data).decode()}
