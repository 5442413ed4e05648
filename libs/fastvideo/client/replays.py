"""The past run again and compared: a replay to its report, and what it runs again."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from fastvideo import wire
from fastvideo.api.replay.v1 import replay_pb2
from fastvideo.client.calls import Calls, typed_errors
from fastvideo.client.submission import filled
from fastvideo.errors import Unavailable
from fastvideo.replay.types import (
    Comparison,
    LoggedRun,
    ReplayProgress,
    ReplayReport,
    ReplayRequest,
)

if TYPE_CHECKING:
    from fastvideo.api.replay.v1.replay_pb2_grpc import ReplayServiceAsyncStub

# The server may have to read much of the log.
READ_S_MIN: Final = 60.0

OnTold = Callable[[ReplayProgress | Comparison], None]
"""Is given how far a replay is, and each comparison as it is made."""


async def run_replay(
    stub: "ReplayServiceAsyncStub", request: ReplayRequest, on_told: OnTold | None
) -> ReplayReport:
    """The report, however long it takes."""
    with typed_errors():
        async for response in stub.Replay(wire.to_proto(request)):
            report = taken(response, on_told)
            if report is not None:
                return report
    raise Unavailable("the replay ended without a report", reason="NO_REPORT")


def taken(response: replay_pb2.ReplayResponse, on_told: OnTold | None) -> ReplayReport | None:
    """Hand on what a replay tells; gives the report when that is it."""
    match response.WhichOneof("message"):
        case "progress" if on_told is not None:
            on_told(wire.from_proto(ReplayProgress, response.progress))
        case "comparison" if on_told is not None:
            on_told(wire.from_proto(Comparison, response.comparison))
        case "report":
            return wire.from_proto(ReplayReport, response.report)
    return None


async def logged_run(stub: "ReplayServiceAsyncStub", request_id: str, calls: Calls) -> LoggedRun:
    """What the log says of a request's run."""
    asked = filled(replay_pb2.GetLoggedRunRequest(), request_id=request_id)
    answer = await calls(stub.GetLoggedRun, asked, max(calls.policy.timeout_s, READ_S_MIN))
    return wire.from_proto(LoggedRun, answer.run)
