"""/v1/videos: create, wait, list, watch, cancel and fetch."""

import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import lru_cache
from typing import Annotated, Final, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fastvideo.artifacts.types import ArtifactKind, ArtifactRecord
from fastvideo.errors import Conflict, FastVideoError, InvalidField, NotFound
from fastvideo.events.records import StoredEvent
from fastvideo.events.views import event_for_view
from fastvideo.requests.lifetimes import require_media
from fastvideo.requests.state import STREAM_PREFIX, is_terminal
from fastvideo.requests.types import RequestState, RequestStatus
from fastvideo.rpc.identity import current_tenant
from fastvideo.rpc.names import require_name
from fastvideo_gateway.http.answers import json_answer, to_record
from fastvideo_gateway.http.artifacts import ArtifactRoutes
from fastvideo_gateway.http.openai.asked import Asked, submit_message
from fastvideo_gateway.http.openai.choosing import chosen_model
from fastvideo_gateway.http.openai.errors import openai_failed
from fastvideo_gateway.http.openai.objects import VideoDeleted, VideoList, video_object
from fastvideo_gateway.http.openai.waiting import Submit, Waiting, require_completed
from fastvideo_gateway.http.queries import Given, read_query, without_query
from fastvideo_gateway.http.streams import Streams, message
from fastvideo_gateway.service import GatewayParts
from fastvideo_gateway.uploads import InputUploads
from fastvideo_gateway.watching import WATCHED_EVENTS_MAX

UPLOAD_TIMEOUT_S: Final = 60.0
POLL_AFTER_MS: Final = 500

# Variant of the content to the artifact that it is.
_VARIANTS: Final = {
    "video": "video.mp4",
    "thumbnail": "image.png",
    "spritesheet": "sheet.png",
}


class ListGiven(Given):
    """Which videos to list."""

    after: str = ""
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"


class ContentGiven(Given):
    """Which file of a video."""

    variant: Literal["video", "thumbnail", "spritesheet"] = "video"


class OpenAiVideos:
    """Videos, which are requests."""

    def __init__(
        self,
        gateway: GatewayParts,
        artifacts: ArtifactRoutes,
        uploads: InputUploads,
        streams: Streams,
        waiting: Waiting,
    ) -> None:
        self._gateway = gateway
        self._artifacts = artifacts
        self._uploads = uploads
        self._streams = streams
        self._waiting = waiting
        # Many may watch one video.
        self._message = lru_cache(WATCHED_EVENTS_MAX)(_message)

    @property
    def routes(self) -> list[Route]:
        """What is under /v1/videos."""
        one = "/v1/videos/{video_id}"
        return [
            Route("/v1/videos", without_query(self._create), methods=["POST"]),
            Route("/v1/videos", self._list, methods=["GET"]),
            Route("/v1/videos/sync", without_query(self._sync), methods=["POST"]),
            Route(one, without_query(self._get), methods=["GET"]),
            Route(one, without_query(self._delete), methods=["DELETE"]),
            Route(f"{one}/cancel", without_query(self._cancel), methods=["POST"]),
            Route(f"{one}/content", self._content, methods=["GET"]),
            Route(f"{one}/events", without_query(self._events), methods=["GET"]),
        ]

    async def _create(self, request: Request) -> Response:
        submit = await self._asked(request)
        made = await self._gateway.submitter.submit(submit, current_tenant())
        return json_answer(video_object(made.state), 202)

    async def _get(self, request: Request) -> Response:
        state = await self._waiting.state(_id_of(request))
        answer = json_answer(video_object(state))
        if not is_terminal(state):
            answer.headers["openai-poll-after-ms"] = str(POLL_AFTER_MS)
        return answer

    async def _delete(self, request: Request) -> Response:
        video_id = _id_of(request)
        deleting = self._gateway.deleter.delete(video_id, current_tenant(), subject="video_id")
        await self._waiting.unless_stopping(deleting)
        return json_answer(VideoDeleted(id=video_id))

    async def _list(self, request: Request) -> Response:
        given = read_query(request, ListGiven)
        found = await self._gateway.lister.videos(
            current_tenant(),
            after_id=given.after,
            limit=given.limit,
            oldest_first=given.order == "asc",
        )
        data = tuple(video_object(state) for state in found.states)
        page = VideoList(
            data=data,
            first_id=data[0].id if data else None,
            last_id=data[-1].id if data else None,
            has_more=found.has_more,
        )
        return json_answer(page)

    async def _cancel(self, request: Request) -> Response:
        return json_answer(video_object(await self._waiting.cancelled(_id_of(request))))

    async def _content(self, request: Request) -> Response:
        video_id = _id_of(request)
        variant = read_query(request, ContentGiven).variant
        state = await self._waiting.state(video_id)
        if state.status is not RequestStatus.COMPLETED:
            raise Conflict(
                f"video {video_id} is {video_object(state).status}; it has no content",
                reason="VIDEO_NOT_COMPLETED",
                subject="video_id",
            )
        record = _artifact(state, variant)
        require_media(state, "video_id")
        return await self._artifacts.content(request, record.artifact_id)

    async def _events(self, request: Request) -> Response:
        video_id = _id_of(request)
        resumed = request.headers.get("last-event-id", "")
        if resumed and (not resumed.isdecimal() or len(resumed) > 18):
            raise InvalidField("Last-Event-ID", resumed, "the id of an event of this video")
        state = await self._waiting.state(video_id)
        if int(resumed or 0) > state.last_sequence:
            raise InvalidField("Last-Event-ID", resumed, f"0 to {state.last_sequence}")
        return self._streams.answer(self._told(video_id, int(resumed or 0)), openai_failed)

    async def _told(self, video_id: str, after: int) -> AsyncGenerator[bytes, None]:
        watched = self._gateway.watches.watch(video_id, after, current_tenant())
        async with aclosing(watched) as events:
            async for stored in events:
                yield self._message(stored)

    async def _sync(self, request: Request) -> Response:
        """Submit and wait; a caller that goes away takes its request with it."""
        if "text/event-stream" in request.headers.get("accept", ""):
            return await self._streamed(request)
        (state,) = await self._waiting.all_of(request, [await self._asked(request)])
        require_completed(state)
        if "application/json" in request.headers.get("accept", ""):
            return json_answer(video_object(state))
        answer = await self._artifacts.content(request, _artifact(state, "video").artifact_id)
        answer.headers["X-Video-Id"] = state.spec.request_id
        return answer

    async def _streamed(self, request: Request) -> Response:
        events = await self._waiting.told(request, await self._asked(request))
        try:
            return self._streams.answer(self._ending(events), openai_failed)
        except FastVideoError:
            await events.aclose()
            raise

    async def _ending(
        self, events: AsyncGenerator[StoredEvent | None, None]
    ) -> AsyncGenerator[bytes, None]:
        """What happens to a request, and at its end the object `video`."""
        request_id = ""
        async with aclosing(events):
            async for stored in events:
                if stored is None:
                    continue
                request_id = stored.stream_id.removeprefix(STREAM_PREFIX)
                yield _message(stored)
        yield message("video", video_object(await self._waiting.state(request_id)))

    async def _asked(self, request: Request) -> Submit:
        asked = await Asked.read(request)
        chosen = await chosen_model(self._gateway.models, asked.video.model)
        image_id = ""
        reference = asked.video.input_reference
        if asked.image is not None:
            record = await self._uploads.put_bytes(
                ArtifactKind.IMAGE, asked.image, current_tenant(), UPLOAD_TIMEOUT_S
            )
            image_id = record.artifact_id
        elif reference is not None and reference.file_id is not None:
            image_id = reference.file_id
        key = request.headers.get("idempotency-key", "") or uuid.uuid4().hex
        return submit_message(asked, chosen, image_id, key)


def _message(stored: StoredEvent) -> bytes:
    event = event_for_view(stored, "videos")
    record = {"sequence": stored.stream_version, "type": stored.type}
    if event is None:
        return message("unknown", record, str(stored.stream_version))
    record |= {"at": event.recorded_at.isoformat(), "data": to_record(event.payload)}
    return message(event.name, record, str(stored.stream_version))


def _artifact(state: RequestState, variant: str) -> ArtifactRecord:
    name = _VARIANTS[variant]
    found = next((record for record in state.artifacts if record.name == name), None)
    if found is None:
        raise NotFound(
            f"video {state.spec.request_id} has no {variant}: it was not asked for",
            subject="variant",
        )
    return found


def _id_of(request: Request) -> str:
    video_id = str(request.path_params["video_id"])
    require_name("video_id", video_id, "the id of a video")
    return video_id
