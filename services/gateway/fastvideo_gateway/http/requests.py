"""/api/requests: the list, one request, why it took its time, its events and its past states."""

from datetime import datetime
from typing import Annotated, Final

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fastvideo.errors import InvalidField, NotFound
from fastvideo.events.reading.entries import entry_of
from fastvideo.explain.lanes import lanes
from fastvideo.requests.state import is_terminal
from fastvideo.requests.types import RequestStatus
from fastvideo.rpc.identity import current_tenant
from fastvideo.rpc.names import check_name, require_name
from fastvideo_gateway.explaining import Explainer
from fastvideo_gateway.http.answers import json_answer, to_record
from fastvideo_gateway.http.leaves import changed_leaves
from fastvideo_gateway.http.queries import Given, Moment, read_query
from fastvideo_gateway.http.rows import event_row, request_row
from fastvideo_gateway.http.views import (
    EventList,
    EventView,
    ExplanationView,
    PastView,
    PlaceView,
    RequestList,
    RequestView,
)
from fastvideo_gateway.listing import Lister
from fastvideo_gateway.past import RequestPast

VERSION_MAX: Final = 2**62

Version = Annotated[int, Field(ge=0, le=VERSION_MAX)]


class ListGiven(Given):
    """What to list."""

    search: str = ""
    status: RequestStatus | None = None
    model: str = ""
    session: str = ""
    limit: int = 0
    cursor: str = ""


class ExplanationGiven(Given):
    """Which units of an explanation."""

    limit: int = 0
    cursor: str = ""


class EventsGiven(Given):
    """Which events of a request."""

    after: Version = 0
    limit: int = 0


class PlaceGiven(Given):
    """A moment in a request's stream."""

    before: Moment


class RequestRoutes:
    """Reads of requests."""

    def __init__(self, lister: Lister, explainer: Explainer, past: RequestPast) -> None:
        self._lister = lister
        self._explainer = explainer
        self._past = past

    @property
    def routes(self) -> list[Route]:
        """What is under /api/requests."""
        one = "/api/requests/{request_id}"
        return [
            Route("/api/requests", self._list),
            Route(one, self._get),
            Route(f"{one}/explanation", self._explanation),
            Route(f"{one}/events", self._events),
            Route(f"{one}/events/{{version:int}}", self._event),
            Route(f"{one}/states/{{version:int}}", self._state),
            Route(f"{one}/place", self._place),
        ]

    async def _list(self, request: Request) -> Response:
        given = read_query(request, ListGiven)
        check_name("model", given.model)
        check_name("session", given.session)
        page = await self._lister.page(
            current_tenant(),
            page_size=given.limit,
            token=given.cursor,
            status=given.status,
            session_id=given.session,
            model_id=given.model,
            search=given.search,
        )
        rows = tuple(map(request_row, page.states))
        return json_answer(RequestList(rows, page.next_page_token))

    async def _get(self, request: Request) -> Response:
        request_id = _id_of(request)
        found = await self._lister.find(current_tenant(), (request_id,))
        if not found:
            raise NotFound(f"request {request_id} does not exist", subject="request_id")
        fresh = is_terminal(found[0]) or await self._lister.is_fresh()
        return json_answer(RequestView(request_row(found[0]), found[0], fresh))

    async def _explanation(self, request: Request) -> Response:
        request_id = _id_of(request)
        given = read_query(request, ExplanationGiven)
        explained = await self._explainer.explain(
            request_id, current_tenant(), page_size=given.limit, token=given.cursor
        )
        drawn = tuple(lanes(explained.explanation))
        view = ExplanationView(explained.explanation, drawn, explained.next_page_token)
        return json_answer(view)

    async def _events(self, request: Request) -> Response:
        request_id = _id_of(request)
        given = read_query(request, EventsGiven)
        page = await self._past.events(
            request_id, current_tenant(), after=given.after, limit=given.limit
        )
        rows = tuple(event_row(found) for found in page.events)
        return json_answer(EventList(rows, page.stream_version))

    async def _event(self, request: Request) -> Response:
        version = int(request.path_params["version"])
        found = await self._past.event(_id_of(request), current_tenant(), _bounded(version))
        return json_answer(EventView(event_row(found), entry_of(found)))

    async def _state(self, request: Request) -> Response:
        version = _bounded(int(request.path_params["version"]))
        past = await self._past.state_at(_id_of(request), current_tenant(), version)
        state = to_record(past.state)
        before = to_record(past.before) if past.before is not None else {}
        view = PastView(
            version=version,
            partition=past.event.partition,
            offset=past.event.offset,
            recorded_at=past.event.recorded_at,
            type=past.event.type,
            name=past.event.name,
            event=past.event,
            state=state,
            differences=changed_leaves(before, state),
        )
        return json_answer(view)

    async def _place(self, request: Request) -> Response:
        """Which event was the last before a moment."""
        moment: datetime = read_query(request, PlaceGiven).before
        version = await self._past.version_at(_id_of(request), current_tenant(), moment)
        return json_answer(PlaceView(version))


def _id_of(request: Request) -> str:
    request_id = str(request.path_params["request_id"])
    require_name("request_id", request_id, "the id of a request")
    return request_id


def _bounded(version: int) -> int:
    if version > VERSION_MAX:
        raise InvalidField("version", version, f"at most {VERSION_MAX}")
    return version
