"""A link to a worker that refuses it: told once, and nothing left behind."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable

import pytest

from fastvideo.api.worker.v1 import worker_pb2, worker_pb2_grpc
from fastvideo.clock import SystemClock
from fastvideo.errors import Fenced
from fastvideo.rpc.server import Server, Service
from fastvideo_scheduler.link import LinkInput, LinkTerms, WorkerLink
from fastvideo_scheduler.stream import WorkerAddress


class Refusing(worker_pb2_grpc.WorkerServiceServicer):
    """A worker that has seen a newer epoch."""

    async def Attach(
        self, request_iterator: AsyncIterator[worker_pb2.AttachRequest], context: object
    ) -> AsyncIterator[worker_pb2.AttachResponse]:
        async for _ in request_iterator:
            raise Fenced("epoch 1 is over, 2 has begun")
        yield worker_pb2.AttachResponse()


async def test_a_refused_link_ends_without_a_trace(caplog: pytest.LogCaptureFixture) -> None:
    service = Service.of(
        worker_pb2.DESCRIPTOR,
        "WorkerService",
        worker_pb2_grpc.add_WorkerServiceServicer_to_server,
        Refusing(),
    )
    taken: list[LinkInput] = []

    async def take(report: LinkInput, committed: Callable[[], None]) -> None:
        taken.append(report)

    async with Server("127.0.0.1:0", [service], grace_s=0) as server:
        terms = LinkTerms(scheduler_id="sch_1", epoch=1, timeout_s=2.0)
        worker = WorkerAddress("worker-1", server.address, "inc_1")
        for _ in range(5):
            await asyncio.wait_for(WorkerLink(worker, terms, take, SystemClock()).run(), 30)
            gc.collect()
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        gc.collect()
    assert taken == []
    assert "never retrieved" not in caplog.text
