"""What the page reads, in the table of the OpenAPI document."""

from collections.abc import Mapping
from typing import Final

from fastvideo_gateway.http import events, live, replays, requests, views
from fastvideo_gateway.http.login import CallerView, LoginGiven
from fastvideo_gateway.http.openapi.operations import (
    FILE_ANSWERS,
    FILE_HEADERS,
    RESUMED,
    Answer,
    Operation,
    streamed,
    told,
)

_TAG: Final = "What the page reads"

READS: Final[Mapping[str, Operation]] = {
    "POST /api/login": Operation(
        operation_id="login",
        tag=_TAG,
        says="Give the page a key; it is kept in a cookie that no script sees.",
        body=LoginGiven,
        answers={200: told(CallerView, "Who that is.", Set_Cookie="The key.")},
        refusals=(401,),
    ),
    "POST /api/logout": Operation(
        operation_id="logout",
        tag=_TAG,
        says="Take the key away again.",
        answers={204: Answer("It is gone.", {}, {"Set-Cookie": "None."})},
    ),
    "GET /api/me": Operation(
        operation_id="getCaller",
        tag=_TAG,
        says="Who calls.",
        answers={200: told(CallerView, "The caller.")},
    ),
    "GET /api/live": Operation(
        operation_id="watchRequests",
        tag=_TAG,
        says="The lines of requests as they change, for as long as one listens.",
        answers={200: streamed("The changes.")},
        refusals=(429,),
    ),
    "GET /api/models": Operation(
        operation_id="listCards",
        tag=_TAG,
        says="Every model of the catalog.",
        answers={200: told(views.ModelRows, "All of them.")},
    ),
    "GET /api/requests": Operation(
        operation_id="searchRequests",
        tag=_TAG,
        says="The caller's requests, newest first.",
        query=requests.ListGiven,
        answers={200: told(views.RequestList, "A page of them.")},
    ),
    "GET /api/requests/{request_id}": Operation(
        operation_id="getRequest",
        tag=_TAG,
        says="One request, with everything that is known of it.",
        answers={200: told(views.RequestView, "The request.")},
        refusals=(404,),
    ),
    "GET /api/requests/{request_id}/explanation": Operation(
        operation_id="explainRequest",
        tag=_TAG,
        says="Where a request's time went, also while it runs.",
        query=requests.ExplanationGiven,
        answers={200: told(views.ExplanationView, "The explanation, with a page of its units.")},
        refusals=(404,),
    ),
    "GET /api/requests/{request_id}/events": Operation(
        operation_id="listRequestEvents",
        tag=_TAG,
        says="The events of a request.",
        query=requests.EventsGiven,
        answers={200: told(views.EventList, "A page of them.")},
        refusals=(404,),
    ),
    "GET /api/requests/{request_id}/events/{version:int}": Operation(
        operation_id="getRequestEvent",
        tag=_TAG,
        says="One event of a request.",
        answers={200: told(views.EventView, "The event.")},
        refusals=(404,),
    ),
    "GET /api/requests/{request_id}/states/{version:int}": Operation(
        operation_id="getPastState",
        tag=_TAG,
        says="What a request was after one of its events.",
        answers={200: told(views.PastView, "The state, and what the event changed.")},
        refusals=(404,),
    ),
    "GET /api/requests/{request_id}/place": Operation(
        operation_id="getPlace",
        tag=_TAG,
        says="Which event was the last before a moment.",
        query=requests.PlaceGiven,
        answers={200: told(views.PlaceView, "Its version.")},
        refusals=(404,),
    ),
    "GET /api/requests/{request_id}/live": Operation(
        operation_id="watchRequest",
        tag=_TAG,
        says="The lines of a request's events, replayed and then live, until it has ended.",
        query=live.WatchGiven,
        headers=(RESUMED,),
        answers={200: streamed("The events.")},
        refusals=(429,),
    ),
    "GET /api/artifacts/{artifact_id}": Operation(
        operation_id="getArtifact",
        tag=_TAG,
        says="What is known of a file.",
        answers={200: told(views.ArtifactView, "Its record.")},
        refusals=(404, 410),
    ),
    "GET /api/artifacts/{artifact_id}/content": Operation(
        operation_id="getArtifactContent",
        tag=_TAG,
        says="A file.",
        headers=FILE_HEADERS,
        answers=FILE_ANSWERS,
        refusals=(404, 410, 416),
    ),
    "GET /api/events": Operation(
        operation_id="searchEvents",
        tag=_TAG,
        says="The whole log, filtered.",
        query=events.EventsGiven,
        answers={200: told(views.LogPage, "A page of it.")},
    ),
    "GET /api/events/{partition:int}/{offset:int}": Operation(
        operation_id="getEvent",
        tag=_TAG,
        says="One event of the log.",
        answers={200: told(views.EventView, "The event.")},
        refusals=(404,),
    ),
    "POST /api/replays": Operation(
        operation_id="replay",
        tag=_TAG,
        says="Run something again from the log and compare; whoever leaves stops it.",
        body=replays.ReplayGiven,
        examples={"state": {"kind": "state"}},
        answers={200: streamed("`progress`, `comparison` and a last `report`.")},
        refusals=(429,),
    ),
}
