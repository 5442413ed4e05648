"""One worker's stream: commands out, reports in, heartbeats both ways."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import grpc

from fastvideo import wire
from fastvideo.api.worker.v1 import worker_pb2, worker_pb2_grpc
from fastvideo.clock import Clock
from fastvideo.errors import FastVideoError, Fenced, Unavailable
from fastvideo.rpc.channel import open_channel
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.scheduling.commands import (
    CancelStream,
    ExecuteBatch,
    PrepareLoop,
    ReleaseLoops,
    YieldBatch,
)
from fastvideo.scheduling.effects import WorkerCommand
from fastvideo.scheduling.events import (
    BatchExecuted,
    LoopFailed,
    LoopPrepared,
    WorkerAttached,
    WorkerDraining,
    WorkerLost,
)
from fastvideo.telemetry.logging import get_logger

if TYPE_CHECKING:
    from fastvideo.api.worker.v1.worker_pb2_grpc import WorkerServiceAsyncStub

_LOG: Final = get_logger(__name__)

# Commands that a slow worker has not taken yet.
OUTGOING_MAX: Final = 4_096
BEATS_PER_TIMEOUT: Final = 4
# A worker that loads a model while it is dialled answers late.
ATTACH_S_MAX: Final = 30.0

COMMANDS: Final[Mapping[type, str]] = {
    PrepareLoop: "prepare_loop",
    ExecuteBatch: "execute_batch",
    ReleaseLoops: "release_loops",
    YieldBatch: "yield_batch",
    CancelStream: "cancel_stream",
}
"""Commands of workers, and where each goes in a message."""

LinkInput = WorkerAttached | WorkerDraining | WorkerLost | LoopPrepared | LoopFailed | BatchExecuted
Take = Callable[[LinkInput], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class WorkerAddress:
    """Where a worker said that it can be dialled."""

    worker_id: str
    address: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class LinkTerms:
    """Who dials, under which epoch, and how long silence may last."""

    scheduler_id: str
    epoch: int
    timeout_s: float


class WorkerLink:
    """Holds the stream to one worker from dialling to its end.

    `take` gets the worker's reports in order, first WorkerAttached, last WorkerLost.
    """

    def __init__(self, worker: WorkerAddress, terms: LinkTerms, take: Take, clock: Clock) -> None:
        self.worker = worker
        self.attached = False
        self._terms = terms
        self._take = take
        self._clock = clock
        self._outgoing: asyncio.Queue[worker_pb2.AttachRequest | None] = asyncio.Queue()
        self._heard_s = clock.monotonic_s()
        self._busy = False
        self._failure: FastVideoError | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the worker is attached and was heard of within two of its heartbeats."""
        silence_s = self._clock.monotonic_s() - self._heard_s
        return self.attached and silence_s <= 2.5 * self._terms.timeout_s / BEATS_PER_TIMEOUT

    def send(self, command: WorkerCommand) -> None:
        """Queue a command; one that finds the queue full ends the link."""
        request = worker_pb2.AttachRequest()
        target = getattr(request, COMMANDS[type(command)])
        target.SetInParent()
        wire.fill_proto(command, target)
        self._put(request)

    async def run(self) -> None:
        """Dial and stay until either side ends it; does not raise for a worker's failure."""
        try:
            async with open_channel(self.worker.address) as channel:
                stub: WorkerServiceAsyncStub = worker_pb2_grpc.WorkerServiceStub(channel)
                await self._attach(stub)
            reason = self._failure.message if self._failure else "the worker ended the stream"
        except grpc.RpcError as error:
            failure = self._failure or from_rpc_error(error)
            reason = failure.message
        except FastVideoError as error:
            reason = error.message
        await self.lose(reason)

    async def lose(self, reason: str) -> None:
        """Report the worker's loss, unless it never attached or was reported lost before."""
        _LOG.info("worker link ended", worker_id=self.worker.worker_id, reason=reason)
        if self.attached:
            self.attached = False
            await self._take(
                WorkerLost(
                    worker_id=self.worker.worker_id,
                    incarnation=self.worker.incarnation,
                    reason=reason,
                )
            )

    async def _attach(self, stub: "WorkerServiceAsyncStub") -> None:
        call = stub.Attach(self._requests())
        watching = asyncio.create_task(self._watch(call))
        try:
            async for response in call:
                self._heard_s = self._clock.monotonic_s()
                await self._receive(response)
        except asyncio.CancelledError:
            # A call that was cancelled here looks as if this task were.
            task = asyncio.current_task()
            if self._failure is None or task is None or task.cancelling():
                raise
        finally:
            watching.cancel()
            call.cancel()
            # gRPC goes on asking for requests after the end of a call; this is the last one.
            self._outgoing.put_nowait(None)
            await asyncio.gather(watching, return_exceptions=True)

    async def _requests(self) -> AsyncIterator[worker_pb2.AttachRequest]:
        hello = worker_pb2.Hello(
            scheduler_id=self._terms.scheduler_id,
            heartbeat_timeout_seconds=self._terms.timeout_s,
        )
        yield worker_pb2.AttachRequest(epoch=self._terms.epoch, hello=hello)
        while (request := await self._outgoing.get()) is not None:
            yield request

    async def _receive(self, response: worker_pb2.AttachResponse) -> None:
        if response.epoch != self._terms.epoch:
            raise Fenced(f"the worker answers in epoch {response.epoch}", subject="epoch")
        kind = response.WhichOneof("message")
        if kind == "heartbeat":
            return
        event = self._event(response, kind)
        self._busy = True
        try:
            await self._take(event)
        finally:
            # While a report waits to be taken, the worker's heartbeats are not read.
            self._busy = False
            self._heard_s = self._clock.monotonic_s()

    def _event(self, response: worker_pb2.AttachResponse, kind: str | None) -> LinkInput:
        match kind:
            case "attached":
                attached = wire.from_proto(WorkerAttached, response.attached)
                self._check_identity(attached)
                self.attached = True
                return attached
            case "loop_prepared":
                return wire.from_proto(LoopPrepared, response.loop_prepared)
            case "loop_failed":
                return wire.from_proto(LoopFailed, response.loop_failed)
            case "batch_executed":
                return wire.from_proto(BatchExecuted, response.batch_executed)
            case "draining":
                return WorkerDraining(worker_id=self.worker.worker_id)
            case _:
                raise Unavailable(f"the worker sent {kind}", subject=self.worker.worker_id)

    def _check_identity(self, attached: WorkerAttached) -> None:
        told = (attached.worker_id, attached.incarnation)
        if told != (self.worker.worker_id, self.worker.incarnation):
            raise Unavailable(
                f"{self.worker.address} is worker {attached.worker_id}, another process than "
                f"the one that announced itself as {self.worker.worker_id}",
                subject=self.worker.worker_id,
            )

    async def _watch(self, call: grpc.aio.StreamStreamCall[Any, Any]) -> None:
        """Beat, and end the stream of a worker that is silent."""
        sequence = 0
        begun_s = self._heard_s = self._clock.monotonic_s()
        every_s = self._terms.timeout_s / BEATS_PER_TIMEOUT
        while self._failure is None:
            slept_from_s = self._clock.monotonic_s()
            await asyncio.sleep(every_s)
            now_s = self._clock.monotonic_s()
            if now_s - slept_from_s > 2 * every_s:
                # It was this process that stood still: first read what has come meanwhile.
                self._heard_s = now_s
            if self.attached:
                silence_s, limit_s = now_s - self._heard_s, self._terms.timeout_s
            else:
                silence_s, limit_s = now_s - begun_s, ATTACH_S_MAX
            if silence_s > limit_s and not self._busy:
                self._failure = Unavailable(f"the worker was silent for {silence_s:.1f} s")
                break
            sequence += 1
            self._put(worker_pb2.AttachRequest(heartbeat=worker_pb2.Heartbeat(sequence=sequence)))
        call.cancel()

    def _put(self, request: worker_pb2.AttachRequest) -> None:
        if self._outgoing.qsize() >= OUTGOING_MAX:
            self._failure = Unavailable(f"{OUTGOING_MAX} commands wait to be taken")
            return
        request.epoch = self._terms.epoch
        self._outgoing.put_nowait(request)
