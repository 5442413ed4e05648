"""The one stream of a scheduler: commands in, results out, heartbeats both ways."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Final

from fastvideo import wire
from fastvideo.api.worker.v1 import worker_pb2
from fastvideo.clock import Clock
from fastvideo.errors import FastVideoError, Fenced, InvalidField, ResourceExhausted, Unavailable
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
    WorkerDraining,
    WorkerReattached,
)
from fastvideo.telemetry.logging import get_logger
from fastvideo_worker.assignments import Assignments, Command
from fastvideo_worker.outbox import Report

_LOG: Final = get_logger(__name__)

# Answers that a slow scheduler has not read yet, beside those that it did not hear of before.
_OUTGOING_MAX: Final = 4_096
# Heartbeats in the time of silence after which the peer gives up.
_BEATS_PER_TIMEOUT: Final = 4
TIMEOUT_S_MIN: Final = 0.2
TIMEOUT_S_MAX: Final = 300.0

_FIELDS: Final = {
    WorkerAttached: "attached",
    WorkerReattached: "reattached",
    LoopPrepared: "loop_prepared",
    LoopFailed: "loop_failed",
    BatchExecuted: "batch_executed",
    RequestSnapshotted: "request_snapshotted",
}

_COMMANDS: Final[dict[str, type[Command]]] = {
    "prepare_loop": PrepareLoop,
    "execute_batch": ExecuteBatch,
    "release_loops": ReleaseLoops,
    "snapshot_loops": SnapshotLoops,
    "cancel_stream": CancelStream,
}


class Attachment:
    """One attached scheduler, from its Hello to the end of its stream."""

    def __init__(
        self, epoch: int, hello: worker_pb2.Hello, assignments: Assignments, clock: Clock
    ) -> None:
        timeout_s = hello.heartbeat_timeout_seconds
        if not TIMEOUT_S_MIN <= timeout_s <= TIMEOUT_S_MAX:
            raise InvalidField(
                "hello.heartbeat_timeout_seconds", timeout_s, f"{TIMEOUT_S_MIN} to {TIMEOUT_S_MAX}"
            )
        self.epoch = epoch
        self.scheduler_id = hello.scheduler_id
        self._timeout_s = timeout_s
        self._assignments = assignments
        self._clock = clock
        self._heard_s = clock.monotonic_s()
        self._outgoing: asyncio.Queue[worker_pb2.AttachResponse | None] = asyncio.Queue()
        self._error: FastVideoError | None = None
        # Set when the stream is to end between two requests: the error, and the latest moment.
        self._renewal: tuple[FastVideoError, float] | None = None
        self._open = True
        # Commands of this stream that were taken.
        self._taken = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def end(self, error: FastVideoError | None = None) -> None:
        """Close the stream: with an error, or because it is done."""
        if self._open:
            self._open = False
            self._error = error
            self._outgoing.put_nowait(None)

    def end_when_idle(self, error: FastVideoError, within_s: float) -> None:
        """Close the stream once the worker holds no request, and after that time anyway."""
        if self._renewal is None:
            self._renewal = (error, self._clock.monotonic_s() + within_s)
        self._renew()

    def send(self, event: WorkerAttached | WorkerReattached | Report) -> None:
        """Queue an event for the scheduler."""
        response = worker_pb2.AttachResponse()
        if isinstance(event, WorkerDraining):
            response.draining.reason = event.reason
            response.draining.report = event.report
        else:
            wire.fill_proto(event, getattr(response, _FIELDS[type(event)]))
        self._put(response)

    async def serve(
        self, requests: AsyncIterator[worker_pb2.AttachRequest]
    ) -> AsyncIterator[worker_pb2.AttachResponse]:
        """Work off the stream until either side ends it. Raises the error that ended it."""
        self._spawn(self._read(requests))
        self._spawn(self._beat())
        try:
            while (response := await self._outgoing.get()) is not None:
                yield response
            if self._error is not None:
                raise self._error
        finally:
            self._open = False
            for task in self._tasks:
                task.cancel()

    def _renew(self) -> None:
        if self._renewal is not None:
            error, latest_s = self._renewal
            if self._assignments.idle or self._clock.monotonic_s() > latest_s:
                self.end(error)

    def _put(self, response: worker_pb2.AttachResponse) -> None:
        if not self._open:
            return
        if self._outgoing.qsize() >= _OUTGOING_MAX:
            self.end(
                ResourceExhausted(
                    f"{_OUTGOING_MAX} answers wait to be read, which is the most",
                    subject="outgoing",
                )
            )
            return
        response.epoch = self.epoch
        self._outgoing.put_nowait(response)

    async def _read(self, requests: AsyncIterator[worker_pb2.AttachRequest]) -> None:
        try:
            async for request in requests:
                self._heard_s = self._clock.monotonic_s()
                self._handle(request)
        except FastVideoError as error:
            self.end(error)
        else:
            self.end()

    def _handle(self, request: worker_pb2.AttachRequest) -> None:
        """Begin what a message asks; tasks run in the order in which they are begun."""
        if request.epoch != self.epoch:
            raise Fenced(f"epoch {request.epoch} on a stream of epoch {self.epoch}")
        kind = request.WhichOneof("message")
        if kind == "heartbeat":
            self._assignments.acknowledge(request.heartbeat.acknowledged)
            return
        if kind in _COMMANDS:
            self._assignments.take(wire.from_proto(_COMMANDS[kind], getattr(request, kind)))
        elif kind == "yield_batch":
            self._assignments.yield_batch(request.yield_batch.batch_id)
        else:
            raise InvalidField("message", kind, "a command or a heartbeat; Hello comes once")
        self._taken += 1

    async def _beat(self) -> None:
        sequence = 0
        while True:
            await asyncio.sleep(self._timeout_s / _BEATS_PER_TIMEOUT)
            silence_s = self._clock.monotonic_s() - self._heard_s
            if silence_s > self._timeout_s:
                self.end(
                    Unavailable(f"the scheduler was silent for {silence_s:.1f} s", reason="SILENT")
                )
                return
            self._renew()
            sequence += 1
            beat = worker_pb2.Heartbeat(sequence=sequence, acknowledged=self._taken)
            self._put(worker_pb2.AttachResponse(heartbeat=beat))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.error("the attachment broke", exc_info=error, epoch=self.epoch)
            self.end(FastVideoError("the attachment broke"))
