"""The table: every route that programs call, by method and path.

A route that is in neither of these fails a test, as does one here that is not served.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fastvideo_gateway.http import events, live, replays, requests, views
from fastvideo_gateway.http.login import CallerView, LoginGiven
from fastvideo_gateway.http.openai import asked, objects, videos
from fastvideo_gateway.http.openapi.operations import (
    JSON,
    TEXT,
    Answer,
    Header,
    Operation,
    streamed,
    told,
)

PAGE: Final = frozenset({"GET /", "GET /requests/{request_id}", "GET /page"})
"""What browsers show to people."""

VIDEOS: Final = "Videos and images"
MODELS: Final = "Models"
PROBES: Final = "Probes"
READS: Final = "What the page reads"

_KEY: Final = Header(
    "Idempotency-Key",
    "A repeat with the same key and the same content is answered with the first.",
    {"type": "string", "maxLength": 200},
)
_RESUMED: Final = Header(
    "Last-Event-ID",
    "The sequence number to go on behind.",
    {"type": "string", "pattern": "^[0-9]{0,18}$"},
)
_FILE_HEADERS: Final = (
    Header("Range", "A single range of bytes.", {"type": "string", "examples": ["bytes=0-1023"]}),
    Header("If-Range", "The ETag that the range is of.", {"type": "string"}),
    Header("If-None-Match", "The ETag that the caller has.", {"type": "string"}),
)
_FILE: Final[Mapping[str, None]] = {
    "video/mp4": None,
    "image/png": None,
    "image/jpeg": None,
    "image/webp": None,
    "application/octet-stream": None,
}
_FILE_ANSWERS: Final[Mapping[int, Answer]] = {
    200: Answer("The file.", _FILE, {"ETag": "Its SHA-256."}),
    206: Answer("The range of it.", _FILE, {"Content-Range": "Which bytes, and of how many."}),
    304: Answer("The caller has it already."),
}
_CREATED: Final = {
    "getVideo": "video_id",
    "cancelVideo": "video_id",
    "getVideoContent": "video_id",
    "watchVideo": "video_id",
    "deleteVideo": "video_id",
}
_ASKED: Final[Mapping[str, Mapping[str, object]]] = {
    "shortest": {"prompt": "a red three moving left"},
    "everything": {
        "prompt": "a red three moving left",
        "negative_prompt": "blue",
        "size": "48x48",
        "num_frames": 9,
        "fps": 8,
        "num_inference_steps": 20,
        "guidance_scale": 3.0,
        "flow_shift": 3.0,
        "seed": 7,
    },
}

_OPENAI: Final[Mapping[str, Operation]] = {
    "POST /v1/videos": Operation(
        operation_id="createVideo",
        tag=VIDEOS,
        says="Ask for a video. It is stored before the answer comes, and made behind it.",
        body=asked.VideoAsked,
        form_file="input_reference",
        examples=_ASKED,
        headers=(_KEY,),
        answers={202: told(objects.Video, "The video as it stands.")},
        refusals=(404, 409, 429),
        next=_CREATED,
    ),
    "POST /v1/videos/sync": Operation(
        operation_id="createVideoAndWait",
        tag=VIDEOS,
        says=(
            "Ask for a video and wait for it. With `Accept: application/json` the object is the "
            "answer, with `Accept: text/event-stream` its events as they happen and then the "
            "object as event `video`, else the file. A caller that goes away takes its request "
            "with it."
        ),
        body=asked.VideoAsked,
        form_file="input_reference",
        examples=_ASKED,
        headers=(_KEY, *_FILE_HEADERS),
        answers={
            **_FILE_ANSWERS,
            200: Answer(
                "The video, once it is there.",
                {JSON: objects.Video, "text/event-stream": None, **_FILE},
                {"X-Video-Id": "Its id, where the file is the answer."},
            ),
        },
        refusals=(404, 409, 416, 429, 499),
    ),
    "GET /v1/videos": Operation(
        operation_id="listVideos",
        tag=VIDEOS,
        says="The caller's videos.",
        query=videos.ListGiven,
        answers={200: told(objects.VideoList, "A page of them.")},
    ),
    "GET /v1/videos/{video_id}": Operation(
        operation_id="getVideo",
        tag=VIDEOS,
        says="One video as it stands.",
        answers={
            200: told(
                objects.Video,
                "The video.",
                openai_poll_after_ms="When to ask again, milliseconds; until it has ended.",
            )
        },
        refusals=(404,),
    ),
    "DELETE /v1/videos/{video_id}": Operation(
        operation_id="deleteVideo",
        tag=VIDEOS,
        says="Delete a video; one that is being made is cancelled first.",
        answers={200: told(objects.VideoDeleted, "It is gone.")},
        refusals=(404, 409, 429),
    ),
    "POST /v1/videos/{video_id}/cancel": Operation(
        operation_id="cancelVideo",
        tag=VIDEOS,
        says="Cancel at the next boundary; the answer comes when it has landed.",
        answers={200: told(objects.Video, "The video, which has ended.")},
        refusals=(404, 429),
    ),
    "GET /v1/videos/{video_id}/content": Operation(
        operation_id="getVideoContent",
        tag=VIDEOS,
        says="A file of a completed video.",
        query=videos.ContentGiven,
        headers=_FILE_HEADERS,
        answers=_FILE_ANSWERS,
        refusals=(404, 409, 410, 416),
    ),
    "GET /v1/videos/{video_id}/events": Operation(
        operation_id="watchVideo",
        tag=VIDEOS,
        says=(
            "Its events, replayed and then live, until it has ended: `id:` is the sequence number, "
            "`event:` the name, `data:` an object of `sequence`, `type`, `at` and `data`."
        ),
        headers=(_RESUMED,),
        answers={200: streamed("The events.")},
        refusals=(404, 429),
    ),
    "POST /v1/images/generations": Operation(
        operation_id="createImages",
        tag=VIDEOS,
        says="Ask for images and wait for them. A caller that goes away takes them with it.",
        body=asked.ImagesAsked,
        examples={
            "shortest": {"prompt": "a red three"},
            "three": {"prompt": "a red three", "n": 3, "response_format": "b64_json", "seed": 7},
        },
        headers=(_KEY,),
        answers={200: told(objects.ImageList, "The images.")},
        refusals=(404, 409, 429, 499),
    ),
    "GET /v1/models": Operation(
        operation_id="listModels",
        tag=MODELS,
        says="The models that can be asked for.",
        answers={200: told(objects.ModelList, "All of them.")},
    ),
    "GET /v1/models/{model_id:path}": Operation(
        operation_id="getModel",
        tag=MODELS,
        says="One model, also one that nobody serves.",
        answers={200: told(objects.Model, "The model.")},
        refusals=(404,),
    ),
}

_PROBES: Final[Mapping[str, Operation]] = {
    "GET /health/live": Operation(
        operation_id="isLive",
        tag=PROBES,
        says="Answers while the process does.",
        answers={200: told(views.Alive, "It lives.")},
    ),
    "GET /health/ready": Operation(
        operation_id="isReady",
        tag=PROBES,
        says="Whether the event log answers, and which models a worker serves.",
        answers={
            200: told(views.Ready, "It is ready."),
            503: told(views.Ready, "It is not."),
        },
    ),
    "GET /metrics": Operation(
        operation_id="getMetrics",
        tag=PROBES,
        says="Metrics, for Prometheus to scrape.",
        answers={
            200: Answer("All of them.", {TEXT: None, "application/openmetrics-text": None}),
        },
        refusals=(404,),
    ),
    "GET /openapi.json": Operation(
        operation_id="getDocument",
        tag=PROBES,
        says="This document.",
        answers={200: told(dict, "An OpenAPI document.")},
    ),
}

_READS: Final[Mapping[str, Operation]] = {
    "POST /api/login": Operation(
        operation_id="login",
        tag=READS,
        says="Give the page a key; it is kept in a cookie that no script sees.",
        body=LoginGiven,
        answers={200: told(CallerView, "Who that is.", Set_Cookie="The key.")},
        refusals=(401,),
    ),
    "POST /api/logout": Operation(
        operation_id="logout",
        tag=READS,
        says="Take the key away again.",
        answers={204: Answer("It is gone.", {}, {"Set-Cookie": "None."})},
    ),
    "GET /api/me": Operation(
        operation_id="getCaller",
        tag=READS,
        says="Who calls.",
        answers={200: told(CallerView, "The caller.")},
    ),
    "GET /api/live": Operation(
        operation_id="watchRequests",
        tag=READS,
        says="The lines of requests as they change, for as long as one listens.",
        answers={200: streamed("The changes.")},
        refusals=(429,),
    ),
    "GET /api/models": Operation(
        operation_id="listCards",
        tag=READS,
        says="Every model of the catalog.",
        answers={200: told(views.ModelRows, "All of them.")},
    ),
    "GET /api/requests": Operation(
        operation_id="searchRequests",
        tag=READS,
        says="The caller's requests, newest first.",
        query=requests.ListGiven,
        answers={200: told(views.RequestList, "A page of them.")},
    ),
    "GET /api/requests/{request_id}": Operation(
        operation_id="getRequest",
        tag=READS,
        says="One request, with everything that is known of it.",
        answers={200: told(views.RequestView, "The request.")},
        refusals=(404,),
    ),
    "GET /api/requests/{request_id}/explanation": Operation(
        operation_id="explainRequest",
        tag=READS,
        says="Where a request's time went, also while it runs.",
        query=requests.ExplanationGiven,
        answers={200: told(views.ExplanationView, "The explanation, with a page of its units.")},
        refusals=(404,),
    ),
    "GET /api/requests/{request_id}/events": Operation(
        operation_id="listRequestEvents",
        tag=READS,
        says="The events of a request.",
        query=requests.EventsGiven,
        answers={200: told(views.EventList, "A page of them.")},
        refusals=(404,),
    ),
    "GET /api/requests/{request_id}/events/{version:int}": Operation(
        operation_id="getRequestEvent",
        tag=READS,
        says="One event of a request.",
        answers={200: told(views.EventView, "The event.")},
        refusals=(404,),
    ),
    "GET /api/requests/{request_id}/states/{version:int}": Operation(
        operation_id="getPastState",
        tag=READS,
        says="What a request was after one of its events.",
        answers={200: told(views.PastView, "The state, and what the event changed.")},
        refusals=(404,),
    ),
    "GET /api/requests/{request_id}/place": Operation(
        operation_id="getPlace",
        tag=READS,
        says="Which event was the last before a moment.",
        query=requests.PlaceGiven,
        answers={200: told(views.PlaceView, "Its version.")},
        refusals=(404,),
    ),
    "GET /api/requests/{request_id}/live": Operation(
        operation_id="watchRequest",
        tag=READS,
        says="The lines of a request's events, replayed and then live, until it has ended.",
        query=live.WatchGiven,
        headers=(_RESUMED,),
        answers={200: streamed("The events.")},
        refusals=(429,),
    ),
    "GET /api/artifacts/{artifact_id}": Operation(
        operation_id="getArtifact",
        tag=READS,
        says="What is known of a file.",
        answers={200: told(views.ArtifactView, "Its record.")},
        refusals=(404, 410),
    ),
    "GET /api/artifacts/{artifact_id}/content": Operation(
        operation_id="getArtifactContent",
        tag=READS,
        says="A file.",
        headers=_FILE_HEADERS,
        answers=_FILE_ANSWERS,
        refusals=(404, 410, 416),
    ),
    "GET /api/events": Operation(
        operation_id="searchEvents",
        tag=READS,
        says="The whole log, filtered.",
        query=events.EventsGiven,
        answers={200: told(views.LogPage, "A page of it.")},
    ),
    "GET /api/events/{partition:int}/{offset:int}": Operation(
        operation_id="getEvent",
        tag=READS,
        says="One event of the log.",
        answers={200: told(views.EventView, "The event.")},
        refusals=(404,),
    ),
    "POST /api/replays": Operation(
        operation_id="replay",
        tag=READS,
        says="Run something again from the log and compare; whoever leaves stops it.",
        body=replays.ReplayGiven,
        examples={"state": {"kind": "state"}},
        answers={200: streamed("`progress`, `comparison` and a last `report`.")},
        refusals=(429,),
    ),
}

OPERATIONS: Final[Mapping[str, Operation]] = MappingProxyType({**_OPENAI, **_PROBES, **_READS})
"""By method and path, as a route has it."""
