"""A replay beside a worker that dies: begun again elsewhere only while nothing was compared."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from fastvideo import wire
from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.api.replay.v1 import replay_pb2
from fastvideo.api.worker.v1 import worker_pb2, worker_pb2_grpc
from fastvideo.client import AsyncClient
from fastvideo.deployment.catalog import Catalog
from fastvideo.errors import Unavailable
from fastvideo.replay.types import Comparison, Promise, ReplayKind, ReplayReport
from fastvideo.rpc.server import Server, Service
from fastvideo.scheduling.events import WorkerAttached
from fastvideo.scheduling.stream import shard_stream
from fastvideo.scheduling.work import ModelState
from tests.integration.gateway.worlds import MODEL, World
from tests.plugins.waiting import eventually

EQUAL = ReplayReport(kind=ReplayKind.EXECUTION, equal=True, promise=Promise(kind="bits"))


@dataclass
class ScriptedReplays:
    """Tells some comparisons; then it is gone, or has its report."""

    comparisons: tuple[Comparison, ...] = ()
    report: ReplayReport | None = None
    asked: list[str] = field(default_factory=list)

    async def Replay(
        self, request: worker_pb2.ReplayRequest, context: object
    ) -> AsyncIterator[worker_pb2.ReplayResponse]:
        self.asked.append(request.replay.subject_id)
        for one in self.comparisons:
            told = replay_pb2.ReplayResponse(comparison=wire.to_proto(one))
            yield worker_pb2.ReplayResponse(response=told)
        if self.report is None:
            raise Unavailable("the replay's process ended with status -9", reason="REPLAY_DIED")
        told = replay_pb2.ReplayResponse(report=wire.to_proto(self.report))
        yield worker_pb2.ReplayResponse(response=told)


@asynccontextmanager
async def attached(world: World, *workers: ScriptedReplays) -> AsyncIterator[None]:
    """Workers of which the first is the one most like the one that ran the request."""
    digest = Catalog.load([MODEL]).get(MODEL).card_digest
    async with AsyncExitStack() as stack:
        told = []
        for number, replays in enumerate(workers):
            # Its other calls are as nobody wrote them.
            servicer: Any = cast(Any, worker_pb2_grpc.WorkerServiceServicer)()
            servicer.Replay = replays.Replay
            service = Service.of(
                worker_pb2.DESCRIPTOR,
                "WorkerService",
                worker_pb2_grpc.add_WorkerServiceServicer_to_server,
                servicer,
            )
            server = await stack.enter_async_context(Server("127.0.0.1:0", [service], grace_s=0.1))
            one = WorkerAttached(
                worker_id=f"worker-{number}",
                address=server.address,
                instances=(ModelState(model_id=MODEL, card_digest=digest),),
                fingerprint={"machine": "another"} if number else {},
            )
            told.append(one)
        await world.append(shard_stream("0"), *told)

        async def known() -> bool:
            answer = await world.stub.ListModels(gateway_pb2.ListModelsRequest())
            return any(model.ready for model in answer.models)

        await eventually(known)
        yield


async def test_one_that_died_before_it_compared_anything_runs_elsewhere(world: World) -> None:
    first, second = ScriptedReplays(), ScriptedReplays(report=EQUAL)
    request_id = await world.submit()
    async with attached(world, first, second), AsyncClient(world.gateway.address) as client:
        report = await client.replay(ReplayKind.EXECUTION, request_id)
    assert report.equal
    assert first.asked == second.asked == [request_id]


async def test_a_difference_is_not_replayed_until_it_is_gone(world: World) -> None:
    differs = Comparison(subject="denoise 1/20", equal=False, expected="a", found="b")
    first, second = ScriptedReplays((differs,)), ScriptedReplays(report=EQUAL)
    request_id = await world.submit()
    told: list[object] = []
    async with attached(world, first, second), AsyncClient(world.gateway.address) as client:
        with pytest.raises(Unavailable) as caught:
            await client.replay(ReplayKind.EXECUTION, request_id, on_told=told.append)
    assert caught.value.reason == "REPLAY_DIED"
    assert differs in told
    assert second.asked == []
