"""/api/replays: start a replay, and get its comparisons as they are made.

The answer is the replay: it ends with it, and a caller that leaves stops it.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Annotated, Final

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fastvideo.errors import FailedPrecondition
from fastvideo.replay.telling import Told
from fastvideo.replay.types import Comparison, ReplayKind, ReplayProgress, ReplayRequest
from fastvideo.rpc.names import check_name
from fastvideo_gateway.http.queries import Given, read_body
from fastvideo_gateway.http.streams import Streams, message

POLICY_CHARACTERS_MAX: Final = 100_000
COMPARISONS_MAX: Final = 10_000

Replays = Callable[[ReplayRequest], AsyncGenerator[Told, None]]
"""Runs a replay; closing it stops the replay."""


class ReplayGiven(Given):
    """What to run again; see `ReplayRequest`."""

    kind: ReplayKind
    subject_id: str = ""
    until: Mapping[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0, le=2**62)]] = Field(
        default_factory=dict
    )
    policy: Annotated[str, Field(max_length=POLICY_CHARACTERS_MAX)] = ""
    sample: Annotated[float, Field(ge=0, le=1)] = 0.0
    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    detail: bool = False
    comparisons_max: Annotated[int, Field(ge=0, le=COMPARISONS_MAX)] = 0


class ReplayRoutes:
    """Starts replays."""

    def __init__(self, replays: Replays | None, streams: Streams) -> None:
        self._replays = replays
        self._streams = streams

    @property
    def routes(self) -> list[Route]:
        """What is under /api/replays."""
        return [Route("/api/replays", self._start, methods=["POST"])]

    async def _start(self, request: Request) -> Response:
        given = await read_body(request, ReplayGiven)
        check_name("subject_id", given.subject_id)
        if self._replays is None:
            raise FailedPrecondition("this gateway runs no replays", reason="NO_REPLAYS")
        asked = ReplayRequest(**given.model_dump())
        return self._streams.answer(_messages(self._replays(asked)))


async def _messages(told: AsyncGenerator[Told, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(told) as values:
        async for value in values:
            yield message(_event_of(value), value)


def _event_of(value: Told) -> str:
    match value:
        case ReplayProgress():
            return "progress"
        case Comparison():
            return "comparison"
        case _:
            return "report"
