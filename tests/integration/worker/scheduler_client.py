"""The scheduler's end of a worker's stream."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

import grpc

from fastvideo import wire
from fastvideo.api.worker.v1 import worker_pb2, worker_pb2_grpc
from fastvideo.rpc.channel import open_channel
from fastvideo.scheduling.commands import (
    CancelStream,
    ExecuteBatch,
    PrepareLoop,
    ReleaseLoops,
    SnapshotLoops,
)
from fastvideo.scheduling.events import (
    BatchExecuted,
    LoopFailed,
    LoopPrepared,
    RequestSnapshotted,
    WorkerAttached,
    WorkerReattached,
)
from fastvideo.scheduling.work import WorkPlan

WAIT_S_MAX = 120.0


class SchedulerClient:
    """The scheduler's end of Attach: sends commands and waits for what they give."""

    def __init__(
        self,
        address: str,
        epoch: int,
        timeout_s: float = 10.0,
        resume: tuple[str, int] | None = None,
    ) -> None:
        self.epoch = epoch
        self.attached: WorkerAttached | None = None
        # Of a client that goes on: what came again, and what the worker says that it holds.
        self.again: list[Any] = []
        self.reattached: WorkerReattached | None = None
        # The number of the last report.
        self.reported = 0
        self._resume = resume
        self.draining = asyncio.Event()
        self.heartbeats = 0
        self._timeout_s = timeout_s
        self._channel = open_channel(address)
        self.stub: Any = worker_pb2_grpc.WorkerServiceStub(self._channel)
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        # Through an iterator: a direct write to a stream that the worker has just ended hides
        # the worker's status behind an INTERNAL of the client's own.
        self._requests: asyncio.Queue[worker_pb2.AttachRequest] = asyncio.Queue()
        self._beats = True

    async def __aenter__(self) -> Self:
        self._call: Any = self.stub.Attach(self._outgoing())
        await self.write(
            hello=worker_pb2.Hello(
                scheduler_id="scheduler-1",
                heartbeat_timeout_seconds=self._timeout_s,
                resume_incarnation=self._resume[0] if self._resume else "",
                resume_after=self._resume[1] if self._resume else 0,
            )
        )
        self._reader = asyncio.create_task(self._read())
        self._beater = asyncio.create_task(self._beat())
        while True:
            event = await self.next(object)
            if isinstance(event, WorkerAttached):
                self.attached = event
                return self
            if isinstance(event, WorkerReattached):
                self.reattached = event
                return self
            self.again.append(event)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._beater.cancel()
        self._call.cancel()
        self._reader.cancel()
        await asyncio.gather(self._reader, self._beater, return_exceptions=True)
        await self._channel.close()

    async def write(self, *, epoch: int | None = None, **message: Any) -> None:
        await self._requests.put(
            worker_pb2.AttachRequest(epoch=self.epoch if epoch is None else epoch, **message)
        )

    async def _outgoing(self) -> AsyncIterator[worker_pb2.AttachRequest]:
        while True:
            yield await self._requests.get()

    async def next(self, kind: type) -> Any:
        """The next event, which must be of this kind. Raises what ended the stream."""
        event = await asyncio.wait_for(self._events.get(), WAIT_S_MAX)
        if isinstance(event, Exception):
            raise event
        assert isinstance(event, kind), event
        return event

    async def prepare(self, command: PrepareLoop) -> WorkPlan:
        await self.write(prepare_loop=wire.to_proto(command))
        prepared: LoopPrepared = await self.next(LoopPrepared)
        return prepared.plan

    async def dispatch(self, *plans: WorkPlan, batch_id: str = "b", window: int = 1) -> None:
        """Send a batch and wait for nothing."""
        units = [unit for plan in plans for unit in plan.units]
        await self.write(
            execute_batch=wire.to_proto(
                ExecuteBatch(
                    batch_id=batch_id,
                    kind=units[0].kind,
                    unit_ids=tuple(unit.unit_id for unit in units),
                    window=window,
                )
            )
        )

    async def execute(
        self, *plans: WorkPlan, batch_id: str = "b", window: int = 1
    ) -> BatchExecuted:
        await self.dispatch(*plans, batch_id=batch_id, window=window)
        executed: BatchExecuted = await self.next(BatchExecuted)
        return executed

    async def release(self, request_id: str, attempt: int = 1) -> None:
        command = ReleaseLoops(request_id=request_id, attempt=attempt)
        await self.write(release_loops=wire.to_proto(command))

    async def snapshot(
        self, request_id: str, attempt: int = 1, *, release: bool = True
    ) -> RequestSnapshotted:
        await self.order_snapshot(request_id, attempt, release=release)
        snapshotted: RequestSnapshotted = await self.next(RequestSnapshotted)
        return snapshotted

    async def order_snapshot(
        self, request_id: str, attempt: int = 1, *, release: bool = True
    ) -> None:
        command = SnapshotLoops(request_id=request_id, attempt=attempt, release=release)
        await self.write(snapshot_loops=wire.to_proto(command))

    async def cancel_stream(self, request_id: str, name: str, attempt: int = 1) -> None:
        command = CancelStream(request_id=request_id, attempt=attempt, name=name)
        await self.write(cancel_stream=wire.to_proto(command))

    def stop_beating(self) -> None:
        self._beats = False

    async def _read(self) -> None:
        kinds = {
            "attached": WorkerAttached,
            "reattached": WorkerReattached,
            "loop_prepared": LoopPrepared,
            "loop_failed": LoopFailed,
            "batch_executed": BatchExecuted,
            "request_snapshotted": RequestSnapshotted,
        }
        try:
            async for response in self._call:
                assert response.epoch == self.epoch
                kind = response.WhichOneof("message")
                if kind == "heartbeat":
                    self.heartbeats += 1
                elif kind == "draining":
                    self.draining.set()
                else:
                    event: Any = wire.from_proto(kinds[kind], getattr(response, kind))
                    self.reported = max(self.reported, getattr(event, "report", 0))
                    self._events.put_nowait(event)
            self._events.put_nowait(EOFError("the stream ended"))
        except grpc.aio.AioRpcError as error:
            self._events.put_nowait(error)

    async def _beat(self) -> None:
        for sequence in itertools.count(1):
            # Not right behind Hello: a write to a stream that was refused hides why.
            await asyncio.sleep(self._timeout_s / 4)
            if self._beats:
                await self.write(heartbeat=worker_pb2.Heartbeat(sequence=sequence))
