"""ReplayService: the gRPC face of replays."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Final

from fastvideo import wire
from fastvideo.api.replay.v1 import replay_pb2, replay_pb2_grpc
from fastvideo.replay.telling import Told
from fastvideo.replay.types import Comparison, ReplayProgress, ReplayReport, ReplayRequest
from fastvideo.rpc.names import check_name, require_name
from fastvideo.rpc.server import Service
from fastvideo.rpc.unknown_fields import refuse_unknown_fields
from fastvideo_gateway.replaying import Replayer

_FIELDS: Final[dict[type, str]] = {
    ReplayProgress: "progress",
    Comparison: "comparison",
    ReplayReport: "report",
}


class ReplayService(replay_pb2_grpc.ReplayServiceServicer):
    """Messages in, messages out; typed errors become statuses in the server's interceptor."""

    def __init__(self, replayer: Replayer) -> None:
        self._replayer = replayer

    async def Replay(
        self, request: replay_pb2.ReplayRequest, context: object
    ) -> AsyncIterator[replay_pb2.ReplayResponse]:
        refuse_unknown_fields(request)
        check_name("subject_id", request.subject_id)
        asked = wire.from_proto(ReplayRequest, request)
        async with aclosing(self._replayer.replay(asked)) as messages:
            async for told in messages:
                yield _response(told)

    async def GetLoggedRun(
        self, request: replay_pb2.GetLoggedRunRequest, context: object
    ) -> replay_pb2.GetLoggedRunResponse:
        refuse_unknown_fields(request)
        require_name("request_id", request.request_id, "the id of a request")
        run = await self._replayer.logged_run(request.request_id)
        return replay_pb2.GetLoggedRunResponse(run=wire.to_proto(run))


def replay_service(replayer: Replayer) -> Service:
    """Replays, as a server hangs them."""
    return Service.of(
        replay_pb2.DESCRIPTOR,
        "ReplayService",
        replay_pb2_grpc.add_ReplayServiceServicer_to_server,
        ReplayService(replayer),
    )


def _response(told: Told) -> replay_pb2.ReplayResponse:
    response = replay_pb2.ReplayResponse()
    getattr(response, _FIELDS[type(told)]).CopyFrom(wire.to_proto(told))
    return response
