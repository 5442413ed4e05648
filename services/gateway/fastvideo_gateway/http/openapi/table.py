"""The table: every route that programs call, by method and path.

A route that is in neither of these fails a test, as does one here that is not served.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fastvideo_gateway.http import health, sessions, views
from fastvideo_gateway.http.openai import asked, objects, videos
from fastvideo_gateway.http.openapi.operations import (
    FILE,
    FILE_ANSWERS,
    FILE_HEADERS,
    JSON,
    RESUMED,
    TEXT,
    Answer,
    Header,
    Operation,
    streamed,
    told,
)
from fastvideo_gateway.http.openapi.reads import READS

PAGE: Final = frozenset({"GET /", "GET /requests/{request_id}", "GET /page"})
"""What browsers show to people."""

VIDEOS: Final = "Videos and images"
SESSIONS: Final = "Sessions"
MODELS: Final = "Models"
PROBES: Final = "Probes"

_KEY: Final = Header(
    "Idempotency-Key",
    "A repeat with the same key and the same content is answered with the first.",
    {"type": "string", "maxLength": 200},
)
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
        headers=(_KEY, *FILE_HEADERS),
        answers={
            **FILE_ANSWERS,
            200: Answer(
                "The video, once it is there.",
                {JSON: objects.Video, "text/event-stream": None, **FILE},
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
        headers=FILE_HEADERS,
        answers=FILE_ANSWERS,
        refusals=(404, 409, 410, 416),
    ),
    "GET /v1/videos/{video_id}/events": Operation(
        operation_id="watchVideo",
        tag=VIDEOS,
        says=(
            "Its events, replayed and then live, until it has ended: `id:` is the sequence number, "
            "`event:` the name, `data:` an object of `sequence`, `type`, `at` and `data`."
        ),
        headers=(RESUMED,),
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

_SESSIONS: Final[Mapping[str, Operation]] = {
    "POST /v1/sessions": Operation(
        operation_id="createSession",
        tag=SESSIONS,
        says="Open a session, which requests for videos may name.",
        body=sessions.SessionAsked,
        examples={"shortest": {}, "memory": {"conditioning": "memory"}},
        headers=(_KEY,),
        answers={201: told(sessions.Session, "The session.")},
        refusals=(404, 409),
        next={
            "getSession": "session_id",
            "pushSessionText": "session_id",
            "closeSession": "session_id",
        },
    ),
    "GET /v1/sessions/{session_id}": Operation(
        operation_id="getSession",
        tag=SESSIONS,
        says="One session as it stands.",
        answers={200: told(sessions.Session, "The session.")},
        refusals=(404,),
    ),
    "POST /v1/sessions/{session_id}/texts": Operation(
        operation_id="pushSessionText",
        tag=SESSIONS,
        says="Give an open session a text; it is durable when the answer comes.",
        body=sessions.TextAsked,
        examples={
            "context": {"text": "black background"},
            "prompt": {"text": "a blue two", "role": "prompt"},
        },
        headers=(_KEY,),
        answers={201: told(sessions.SessionText, "The text as it was taken.")},
        refusals=(404, 409),
    ),
    "POST /v1/sessions/{session_id}/close": Operation(
        operation_id="closeSession",
        tag=SESSIONS,
        says="Close a session; it remembers nothing after that.",
        answers={200: told(sessions.Session, "The session, which is closed.")},
        refusals=(404, 409),
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
        query=health.ReadyGiven,
        answers={
            200: told(views.Ready, "It is ready."),
            503: told(views.Ready, "It is not."),
        },
        refusals=(404,),
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

OPERATIONS: Final[Mapping[str, Operation]] = MappingProxyType(
    {**_OPENAI, **_SESSIONS, **_PROBES, **READS}
)
"""By method and path, as a route has it."""
