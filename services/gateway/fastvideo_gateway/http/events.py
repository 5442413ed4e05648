"""/api/events: the whole log, filtered and page by page, and any one event of it."""

import json
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Field, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fastvideo.errors import InvalidField, NotFound
from fastvideo.events.reading.entries import entry_of, read_offsets
from fastvideo.events.reading.filters import EventFilter
from fastvideo.events.reading.reader import LogReader
from fastvideo.rpc.names import check_name
from fastvideo_gateway.http.answers import json_answer
from fastvideo_gateway.http.queries import Given, Moment, read_query
from fastvideo_gateway.http.rows import event_row
from fastvideo_gateway.http.views import EventView, LogPage

CURSOR_CHARACTERS_MAX: Final = 4_000
OFFSET_MAX: Final = 2**62
_CURSOR_ALLOWED: Final = "the next_cursor of a page"
# Offset by partition.
_POSITIONS: Final = TypeAdapter(
    dict[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0, le=OFFSET_MAX)]]
)


class EventsGiven(Given):
    """Which events of the log; what is left out lets all through."""

    request: str = ""
    session: str = ""
    model: str = ""
    worker: str = ""
    type: str = ""
    stream: str = ""
    since: Moment | None = None
    until: Moment | None = None
    newest_first: bool = False
    limit: int = 0
    cursor: str = ""


class EventRoutes:
    """Reads of the log."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader

    @property
    def routes(self) -> list[Route]:
        """What is under /api/events."""
        return [
            Route("/api/events", self._list),
            Route("/api/events/{partition:int}/{offset:int}", self._get),
        ]

    async def _list(self, request: Request) -> Response:
        given = read_query(request, EventsGiven)
        page = await self._reader.read_log(
            _filter(given),
            after=_positions(given.cursor),
            page_size=given.limit,
            newest_first=given.newest_first,
        )
        rows = tuple(event_row(found, given.request) for found in page.entries)
        cursor = json.dumps({str(p): at for p, at in page.next_after.items()})
        return json_answer(LogPage(rows, cursor, page.complete))

    async def _get(self, request: Request) -> Response:
        partition = int(request.path_params["partition"])
        offset = int(request.path_params["offset"])
        heads = await self._reader.log.heads()
        if not 1 <= offset <= heads.get(partition, 0):
            raise NotFound(f"there is no event {partition}:{offset}", subject="offset")
        found = await read_offsets(self._reader.log, partition, offset - 1, 1)
        return json_answer(EventView(event_row(found[0]), entry_of(found[0])))


def _filter(given: EventsGiven) -> EventFilter:
    def named(field: str, value: str) -> tuple[str, ...]:
        check_name(field, value)
        return (value,) if value else ()

    return EventFilter(
        request_ids=named("request", given.request),
        session_ids=named("session", given.session),
        model_ids=named("model", given.model),
        worker_ids=named("worker", given.worker),
        types=named("type", given.type),
        stream_ids=named("stream", given.stream),
        since=given.since,
        until=given.until,
    )


def _positions(cursor: str) -> Mapping[int, int]:
    """The positions of a cursor: offset by partition."""
    if not cursor:
        return {}
    if len(cursor) > CURSOR_CHARACTERS_MAX:
        raise InvalidField("cursor", f"{len(cursor)} characters", _CURSOR_ALLOWED)
    try:
        return _POSITIONS.validate_json(cursor)
    except ValidationError as error:
        raise InvalidField("cursor", cursor, _CURSOR_ALLOWED) from error
