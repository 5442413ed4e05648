"""One stream to a worker: commands out, reports in, heartbeats both ways.

A command counts as taken when the worker's heartbeat says so. One that is not taken within the
time that silence may last ends the stream: heartbeats must not hide a dead path of assignment.
"""

import asyncio
from collections import deque
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
from fastvideo.rpc.tls import ClientTls
from fastvideo.scheduling.commands import (
    CancelStream,
    ExecuteBatch,
    PrepareLoop,
    ReleaseLoops,
    SnapshotLoops,
    YieldBatch,
)
from fastvideo.scheduling.effects import WorkerCommand
from fastvideo.scheduling.events import (
    BatchExecuted,
    LoopFailed,
    LoopPrepared,
    RequestSnapshotted,
    WorkerAttached,
    WorkerDraining,
    WorkerReattached,
)
from fastvideo_scheduler.credits import Credits

if TYPE_CHECKING:
    from fastvideo.api.worker.v1.worker_pb2_grpc import WorkerServiceAsyncStub

# Commands that a slow worker has not taken yet.
OUTGOING_MAX: Final = 4_096
BEATS_PER_TIMEOUT: Final = 4
# Missed heartbeats after which the worker is dialled again; that costs no loop.
BEATS_MISSED_MAX: Final = 2

NOT_TAKEN: Final = "COMMANDS_NOT_TAKEN"
WORKER_REPLACED: Final = "WORKER_REPLACED"

StreamInput = (
    WorkerAttached
    | WorkerReattached
    | WorkerDraining
    | LoopPrepared
    | LoopFailed
    | BatchExecuted
    | RequestSnapshotted
)
"""What a worker says on its stream."""

Receive = Callable[[StreamInput], Awaitable[None]]

_EVENTS: Final[dict[str, type[StreamInput]]] = {
    "attached": WorkerAttached,
    "reattached": WorkerReattached,
    "loop_prepared": LoopPrepared,
    "loop_failed": LoopFailed,
    "batch_executed": BatchExecuted,
    "request_snapshotted": RequestSnapshotted,
}

COMMANDS: Final[Mapping[type, str]] = {
    PrepareLoop: "prepare_loop",
    ExecuteBatch: "execute_batch",
    ReleaseLoops: "release_loops",
    SnapshotLoops: "snapshot_loops",
    YieldBatch: "yield_batch",
    CancelStream: "cancel_stream",
}
"""Commands of workers, and where each goes in a message."""


@dataclass(frozen=True, slots=True)
class WorkerAddress:
    """Where a worker said that it can be dialled."""

    worker_id: str
    address: str
    incarnation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTerms:
    """Who dials, under which epoch, and how long silence may last."""

    scheduler_id: str
    epoch: int
    timeout_s: float
    # Silence between dialling and the worker's first word.
    attach_s_max: float
    # The worker's incarnation and last report, when its loops shall go on.
    resume: tuple[str, int] | None = None
    tls: ClientTls | None = None


class WorkerStream:
    """Holds one stream from dialling to its end."""

    def __init__(
        self,
        worker: WorkerAddress,
        terms: StreamTerms,
        receive: Receive,
        acknowledged: Callable[[], int],
        clock: Clock,
    ) -> None:
        self._worker = worker
        self._terms = terms
        self._receive = receive
        self._acknowledged = acknowledged
        self._clock = clock
        # Whether the worker has said who it is.
        self.attached = False
        self._credits = Credits()
        self._outgoing: asyncio.Queue[worker_pb2.AttachRequest | None] = asyncio.Queue()
        # When each command was sent that was not taken yet, and how many were.
        self._untaken: deque[float] = deque()
        self._taken = 0
        self._heard_s = clock.monotonic_s()
        self._busy = False
        self._failure: FastVideoError | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the worker is attached and was heard of within two of its heartbeats."""
        silence_s = self._clock.monotonic_s() - self._heard_s
        return self.attached and silence_s <= 2.5 * self._terms.timeout_s / BEATS_PER_TIMEOUT

    @property
    def heard_s(self) -> float:
        """When the worker was heard of last, by the monotonic clock."""
        return self._heard_s

    def send(self, command: WorkerCommand) -> None:
        """Queue a command; one that finds the queue full ends the stream."""
        for ready in self._credits.give(command):
            self._send(ready)

    async def run(self) -> FastVideoError:
        """Dial and stay until either side ends it; gives the error that ended it."""
        try:
            async with open_channel(self._worker.address, tls=self._terms.tls) as channel:
                stub: WorkerServiceAsyncStub = worker_pb2_grpc.WorkerServiceStub(channel)
                await self._attach(stub)
            return self._failure or Unavailable("the worker ended the stream")
        except grpc.RpcError as error:
            return self._failure or from_rpc_error(error)
        except FastVideoError as error:
            return error
        finally:
            self.attached = False

    async def _attach(self, stub: "WorkerServiceAsyncStub") -> None:
        call = stub.Attach(self._requests())
        watching = asyncio.create_task(self._watch(call))
        try:
            async for response in call:
                self._heard_s = self._clock.monotonic_s()
                await self._take(response)
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
        incarnation, after = self._terms.resume or ("", 0)
        hello = worker_pb2.Hello(
            scheduler_id=self._terms.scheduler_id,
            heartbeat_timeout_seconds=self._terms.timeout_s,
            resume_incarnation=incarnation,
            resume_after=after,
        )
        yield worker_pb2.AttachRequest(epoch=self._terms.epoch, hello=hello)
        while (request := await self._outgoing.get()) is not None:
            yield request

    # -- reports -------------------------------------------------------------------------

    async def _take(self, response: worker_pb2.AttachResponse) -> None:
        if response.epoch != self._terms.epoch:
            raise Fenced(f"the worker answers in epoch {response.epoch}", subject="epoch")
        kind = response.WhichOneof("message")
        if kind == "heartbeat":
            while self._untaken and self._taken < response.heartbeat.acknowledged:
                self._untaken.popleft()
                self._taken += 1
            return
        event = self._event(response, kind)
        self._busy = True
        try:
            await self._receive(event)
            for ready in self._credits.take_back(event):
                self._send(ready)
        finally:
            # While a report waits to be taken, the worker's heartbeats are not read.
            self._busy = False
            self._heard_s = self._clock.monotonic_s()

    def _event(self, response: worker_pb2.AttachResponse, kind: str | None) -> StreamInput:
        if kind == "draining":
            return WorkerDraining(
                worker_id=self._worker.worker_id,
                reason=response.draining.reason,
                report=response.draining.report,
            )
        if kind not in _EVENTS:
            raise Unavailable(f"the worker sent {kind}", subject=self._worker.worker_id)
        event = wire.from_proto(_EVENTS[kind], getattr(response, kind))
        if isinstance(event, WorkerAttached | WorkerReattached):
            self._check_identity(event)
            self.attached = True
        return event

    def _check_identity(self, event: WorkerAttached | WorkerReattached) -> None:
        told = (event.worker_id, event.incarnation)
        if told != (self._worker.worker_id, self._worker.incarnation):
            raise Unavailable(
                f"{self._worker.address} is worker {event.worker_id}, another process than "
                f"the one that announced itself as {self._worker.worker_id}",
                reason=WORKER_REPLACED,
                subject=self._worker.worker_id,
            )

    # -- commands and time ---------------------------------------------------------------

    def _send(self, command: WorkerCommand) -> None:
        request = worker_pb2.AttachRequest()
        target = getattr(request, COMMANDS[type(command)])
        target.SetInParent()
        wire.fill_proto(command, target)
        self._untaken.append(self._clock.monotonic_s())
        self._put(request)

    async def _watch(self, call: grpc.aio.StreamStreamCall[Any, Any]) -> None:
        """Beat, and end the stream of a worker that is silent or takes no command."""
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
                self._untaken = deque(now_s for _ in self._untaken)
            self._failure = self._fault(now_s, begun_s)
            if self._failure is not None:
                break
            sequence += 1
            beat = worker_pb2.Heartbeat(sequence=sequence, acknowledged=self._acknowledged())
            self._put(worker_pb2.AttachRequest(heartbeat=beat))
        call.cancel()

    def _fault(self, now_s: float, begun_s: float) -> FastVideoError | None:
        """Why the stream is of no use, if it is not."""
        if self._failure is not None or self._busy:
            return self._failure
        timeout_s = self._terms.timeout_s
        if not self.attached:
            silence_s, limit_s = now_s - begun_s, self._terms.attach_s_max
        else:
            silence_s = now_s - self._heard_s
            limit_s = BEATS_MISSED_MAX * timeout_s / BEATS_PER_TIMEOUT
        if silence_s > limit_s:
            return Unavailable(f"the worker was silent for {silence_s:.1f} s", reason="SILENT")
        if self._untaken and now_s - self._untaken[0] > timeout_s:
            waited_s = now_s - self._untaken[0]
            return Unavailable(
                f"the worker has taken no command for {waited_s:.1f} s", reason=NOT_TAKEN
            )
        return None

    def _put(self, request: worker_pb2.AttachRequest) -> None:
        if self._outgoing.qsize() >= OUTGOING_MAX:
            self._failure = Unavailable(f"{OUTGOING_MAX} commands wait to be taken")
            return
        request.epoch = self._terms.epoch
        self._outgoing.put_nowait(request)
