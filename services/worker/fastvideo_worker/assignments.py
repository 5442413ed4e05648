"""What a scheduler has given this worker, and what the worker owes it.

It outlives streams: a command goes on when the stream that brought it ends, and its report
waits. The same scheduler or its successor comes back for both; when none does for too long,
everything is freed. Used from the event loop's thread.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, Protocol

from fastvideo.errors import FastVideoError, ResourceExhausted
from fastvideo.scheduling.commands import (
    CancelStream,
    ExecuteBatch,
    PrepareLoop,
    ReleaseLoops,
    SnapshotLoops,
)
from fastvideo.scheduling.events import (
    BatchExecuted,
    LoopPrepared,
    ResidentLoop,
    WorkerDraining,
    WorkerReattached,
)
from fastvideo.scheduling.work import LoopRef
from fastvideo.telemetry.logging import get_logger
from fastvideo_worker.commands import Commands
from fastvideo_worker.outbox import Outbox, Report

_LOG: Final = get_logger(__name__)

Command = PrepareLoop | ExecuteBatch | ReleaseLoops | SnapshotLoops | CancelStream


class Stream(Protocol):
    """The stream to whoever leads."""

    def send(self, event: Report | WorkerReattached) -> None:
        """Queue an event."""
        ...

    def end(self, error: FastVideoError | None = None) -> None:
        """Close it."""
        ...


class Assignments:
    """Runs commands in the order in which they come, and reports on each."""

    def __init__(
        self, commands: Commands, *, worker_id: str, incarnation: str, keep_s: float
    ) -> None:
        self._commands = commands
        # How long all is kept while no scheduler is there.
        self._keep_s = keep_s
        self._worker_id = worker_id
        self._incarnation = incarnation
        self._outbox = Outbox()
        self._stream: Stream | None = None
        # Whether a scheduler's work is here that it, or another, may go on with.
        self._going = False
        # Rises when everything is freed: what was begun before has nobody to report to.
        self._generation = 0
        self._preparing: dict[LoopRef, PrepareLoop] = {}
        self._batches: dict[str, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._expiry: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing is here and all that was begun is reported."""
        return self._commands.idle and not self._tasks

    # -- streams -------------------------------------------------------------------------

    def can_resume(self, incarnation: str, after: int) -> bool:
        """Whether a scheduler that has taken in the reports up to `after` can go on."""
        return (
            self._going and incarnation == self._incarnation and self._outbox.has_all_after(after)
        )

    def begin(self, stream: Stream) -> None:
        """A scheduler attached that begins from nothing; `start_over` came before."""
        self._hold(stream)
        self._going = True

    def resume(self, stream: Stream, after: int) -> None:
        """A scheduler goes on: tell it what it has not taken in, then what is here."""
        self._hold(stream)
        for report in self._outbox.after(after):
            stream.send(report)
        stream.send(self._inventory())

    def detach(self, stream: Stream) -> None:
        """The stream ended; what is here is kept for a while."""
        if self._stream is not stream:
            return
        self._stream = None
        if self._going:
            self._expiry = asyncio.get_running_loop().create_task(self._expire())

    def acknowledge(self, number: int) -> None:
        """The log has the reports up to this one."""
        self._outbox.acknowledge(number)

    async def start_over(self) -> None:
        """Free everything, also what is on its way. Raises Unavailable when that takes long."""
        self._cancel_expiry()
        self._going = False
        self._generation += 1
        self._outbox.clear()
        self._preparing.clear()
        self._batches.clear()
        await self._commands.start_over()

    def must_begin_anew(self) -> None:
        """The next scheduler cannot go on, since what it knows of this worker has changed."""
        self._going = False

    # -- commands ------------------------------------------------------------------------

    def take(self, command: Command) -> None:
        """Begin what a command asks."""
        match command:
            case PrepareLoop():
                self._preparing[command.loop] = command
                self._spawn(self._prepare(command, self._generation))
            case ExecuteBatch():
                self._batches[command.batch_id] = None
                self._spawn(self._execute(command, self._generation))
            case SnapshotLoops():
                self._spawn(self._snapshot(command, self._generation))
            case CancelStream():
                self._commands.cancel_stream(command)
            case ReleaseLoops():
                for loop in [loop for loop in self._preparing if _covers(command, loop)]:
                    del self._preparing[loop]
                self._commands.release(command)

    def yield_batch(self, batch_id: str) -> None:
        """End a batch's window at its next boundary."""
        self._commands.yield_batch(batch_id)

    def drain(self, reason: str) -> None:
        """Say that this worker takes no new request."""
        self._report(WorkerDraining(worker_id=self._worker_id, reason=reason), self._generation)

    async def _prepare(self, command: PrepareLoop, generation: int) -> None:
        def wanted() -> bool:
            return self._preparing.get(command.loop) is command

        event = await self._commands.prepare(command, wanted)
        if wanted():
            del self._preparing[command.loop]
            self._report(event, generation)
        elif generation == self._generation and command.loop not in self._preparing:
            # It was released while it was made.
            loop = command.loop
            self._commands.release(
                ReleaseLoops(
                    request_id=loop.request_id,
                    attempt=loop.attempt,
                    node_ids=(loop.node_id,),
                    forget=True,
                )
            )

    async def _execute(self, command: ExecuteBatch, generation: int) -> None:
        try:
            executed = await self._commands.execute(command, lambda: generation == self._generation)
        except FastVideoError as error:
            executed = self._commands.refused(command, error)
        if generation == self._generation:
            self._batches.pop(command.batch_id, None)
            self._report(executed, generation)

    async def _snapshot(self, command: SnapshotLoops, generation: int) -> None:
        self._report(await self._commands.snapshot(command), generation)

    def _report(self, event: Report, generation: int) -> None:
        if generation != self._generation:
            return
        if isinstance(event, BatchExecuted | LoopPrepared):
            event = self._commands.with_notes(event)
        try:
            numbered = self._outbox.add(event)
        except ResourceExhausted as error:
            self._break(error)
            return
        if self._stream is not None:
            self._stream.send(numbered)

    def _inventory(self) -> WorkerReattached:
        made = {resident.loop: resident for resident in self._commands.resident_loops}
        for loop, command in self._preparing.items():
            made[loop] = ResidentLoop(
                loop=loop,
                loop_id=command.loop_id,
                model_instance_id=command.model_instance_id,
                preparing=True,
            )
        return WorkerReattached(
            worker_id=self._worker_id,
            incarnation=self._incarnation,
            loops=tuple(made.values()),
            batch_ids=tuple(self._batches),
            scopes=tuple(f"{name}/{attempt}" for name, attempt in self._commands.scopes),
            report=self._outbox.last,
        )

    # -- time ----------------------------------------------------------------------------

    def _hold(self, stream: Stream) -> None:
        self._cancel_expiry()
        self._stream = stream

    def _cancel_expiry(self) -> None:
        if self._expiry is not None and self._expiry is not asyncio.current_task():
            self._expiry.cancel()
        self._expiry = None

    async def _expire(self) -> None:
        await asyncio.sleep(self._keep_s)
        _LOG.warning("no scheduler came back", kept_s=self._keep_s)
        try:
            await self.start_over()
        except FastVideoError as error:
            _LOG.error("what nobody wants could not be freed", error=error.message)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Its report will never come.
            _LOG.error("a command broke", exc_info=error)
            self._break(FastVideoError("a command broke"))

    def _break(self, error: FastVideoError) -> None:
        """Whatever was begun cannot be gone on with."""
        _LOG.error("assignments are given up", error=error.message)
        self._going = False
        if self._stream is not None:
            self._stream.end(error)


def _covers(command: ReleaseLoops, loop: LoopRef) -> bool:
    return (command.request_id, command.attempt) == (loop.request_id, loop.attempt) and (
        not command.node_ids or loop.node_id in command.node_ids
    )
