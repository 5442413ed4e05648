"""A scheduler's commands as work on the lanes, each with its span."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from fastvideo.clock import Clock
from fastvideo.engine.executor import Executor
from fastvideo.engine.request_inputs import RequestInputs
from fastvideo.engine.values import Scope
from fastvideo.errors import DeadlineExceeded, FastVideoError, Unavailable
from fastvideo.loops.snapshot_format import Saved
from fastvideo.requests.failures import error_detail
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
    ResidentLoop,
)
from fastvideo.scheduling.work import OFF_STEP_PATH, LoopRef
from fastvideo.telemetry import tracing
from fastvideo_worker.lanes import Lane

T = TypeVar("T")

_SHOWN_UNITS_MAX: Final = 16
# How long the units of a former scheduler may take to their boundary.
_START_OVER_S_MAX: Final = 20.0
# How long a snapshot waits for what was ordered before it.
_BOUNDARY_S_MAX: Final = 120.0


class Commands:
    """Prepares and executes on the right thread: compute on one, the rest beside it.

    Used from the event loop's thread.
    """

    def __init__(
        self,
        *,
        worker_id: str,
        executor: Executor,
        inputs: RequestInputs,
        compute: Lane,
        io: Lane,
        snapshots: Lane,
        clock: Clock,
    ) -> None:
        self._worker_id = worker_id
        self._executor = executor
        self._inputs = inputs
        self._compute = compute
        self._io = io
        self._snapshots = snapshots
        self._clock = clock
        # Batches that wait or run, by the attempts of their units.
        self._queued: Counter[Scope] = Counter()
        self._queue_moved = asyncio.Event()
        self.draining = False

    @property
    def waiting(self) -> int:
        """Commands that have not ended."""
        return self._compute.waiting + self._io.waiting + self._snapshots.waiting

    @property
    def idle(self) -> bool:
        """Whether no loop lives, no value is kept and nothing runs or waits for memory."""
        executor = self._executor
        held = executor.loops or executor.values.scopes() or executor.waiting_for_memory
        return not (self.waiting or held)

    @property
    def resident_loops(self) -> tuple[ResidentLoop, ...]:
        """The loops that live now."""
        return self._executor.resident_loops

    @property
    def scopes(self) -> tuple[tuple[str, int], ...]:
        """The attempts, as (request id, attempt), of which values are kept."""
        return tuple(self._executor.values.scopes())

    async def prepare(
        self, command: PrepareLoop, wanted: Callable[[], bool] = lambda: True
    ) -> LoopPrepared | LoopFailed:
        """Prepare a loop; one that is not wanted any more when its turn comes is not made."""

        saved: Saved | None = None

        def call() -> LoopPrepared | LoopFailed:
            if not wanted():
                return self._failed(command.loop, Unavailable("the scheduler is gone"))
            with tracing.span_from(
                command.traceparent, "worker.prepare", _loop_attributes(command)
            ) as span:
                event = self._executor.prepare(command, saved)
                if isinstance(event, LoopFailed):
                    span.set_attribute("fastvideo.error.reason", event.error.reason)
                return event

        try:
            self._check_draining(command.loop)
            scope = (command.loop.request_id, command.loop.attempt)
            granted = self._executor.claim_memory(command)
            if not granted.done():
                await asyncio.wrap_future(granted)
            if (restore := command.restore) is not None:
                saved = await self._snapshots.run(
                    self._transfer("restore", scope, lambda: self._executor.fetch(restore))
                )
            elif self._inputs.needed(command):
                given = command
                command = await self._io.run(
                    self._transfer("fetch", scope, lambda: self._inputs.fetch(given))
                )
            return await self._compute.run(call)
        except FastVideoError as error:
            self._executor.abandon(command.loop)
            return self._failed(command.loop, error)

    async def execute(
        self, command: ExecuteBatch, wanted: Callable[[], bool] = lambda: True
    ) -> BatchExecuted:
        """Run a batch. Raises what `Executor.execute` raises for one that may not be."""
        given_s = self._clock.monotonic_s()

        def call() -> BatchExecuted:
            if not wanted():
                raise Unavailable("the scheduler is gone")
            waited_s = self._clock.monotonic_s() - given_s
            with tracing.span_from(
                command.traceparent, "worker.batch", _batch_attributes(command)
            ) as span:
                executed = replace(self._executor.execute(command), waited_seconds=waited_s)
                tracing.set_attributes(span, _result_attributes(executed))
                failure = next((r.error for r in executed.results if r.error is not None), None)
                if failure is not None:
                    tracing.fail(span, failure.reason, failure.message)
                return executed

        lane = self._io if command.kind in OFF_STEP_PATH else self._compute
        scopes = self._executor.scopes_of(command.unit_ids)
        self._queued.update(scopes)
        try:
            return await lane.run(call)
        finally:
            self._queued.subtract(scopes)
            self._queued = +self._queued
            self._queue_moved.set()

    def refused(self, command: ExecuteBatch, error: Exception) -> BatchExecuted:
        """The answer to a batch that could not be run at all."""
        return self._executor.refused(command, error)

    def with_notes(self, report: BatchExecuted | LoopPrepared) -> BatchExecuted | LoopPrepared:
        """The report with what was noted here since the last one."""
        return self._executor.noting.with_notes(report)

    def yield_batch(self, batch_id: str) -> None:
        """End a batch's window at its next boundary."""
        self._executor.yield_batch(batch_id)

    async def snapshot(self, command: SnapshotLoops) -> RequestSnapshotted:
        """Save what an attempt has here; the answer says why when it cannot be saved.

        What was ordered of the attempt before comes first, when it is to be freed; its windows
        end at their next boundary.
        """
        scope = (command.request_id, command.attempt)
        try:
            if command.release:
                self._executor.pause(scope)
                async with asyncio.timeout(_BOUNDARY_S_MAX):
                    while self._queued[scope]:
                        self._queue_moved.clear()
                        await self._queue_moved.wait()
            return await self._snapshots.run(
                self._transfer("save", scope, lambda: self._executor.snapshot(command))
            )
        except TimeoutError:
            self._executor.pause(scope, pausing=False)
            error: FastVideoError = DeadlineExceeded(
                f"steps of {command.request_id} did not end within {_BOUNDARY_S_MAX:g} s",
                subject=command.request_id,
            )
        except FastVideoError as refused:
            error = refused
        return RequestSnapshotted(
            worker_id=self._worker_id,
            request_id=command.request_id,
            attempt=command.attempt,
            error=error_detail(error),
        )

    def cancel_stream(self, command: CancelStream) -> None:
        """Write no more of one output of an attempt; its other outputs go on."""
        self._executor.cancel_stream(command)

    def release(self, command: ReleaseLoops) -> None:
        """Free what an attempt holds."""
        self._executor.release(command)

    async def start_over(self) -> None:
        """Free all loops and values, also those of commands that are still on their way.

        A scheduler may come back with attempts that were released under its predecessor, who
        had no time to write them down. Raises Unavailable when a unit does not end in time.
        """
        self._executor.release_all()
        # Behind everything that was queued before.
        await asyncio.gather(
            self._compute.run_alone(self._executor.release_all), self._io.run_alone(lambda: None)
        )
        await asyncio.to_thread(self._executor.start_over, _START_OVER_S_MAX)

    def _transfer(self, what: str, scope: Scope, work: Callable[[], T]) -> Callable[[], T]:
        """The work as a span of its request."""
        attributes: dict[str, tracing.AttributeValue] = {
            "fastvideo.request_id": scope[0],
            "fastvideo.attempt": scope[1],
        }

        def call() -> T:
            traceparent = self._executor.traceparent(scope)
            with tracing.span_from(traceparent, f"worker.{what}", attributes):
                return work()

        return call

    def _check_draining(self, loop: LoopRef) -> None:
        """A draining worker finishes the requests that it has and takes no others."""
        if self.draining and not self._executor.holds(loop.request_id, loop.attempt):
            raise Unavailable(f"{self._worker_id} is draining", reason="DRAINING")

    def _failed(self, loop: LoopRef, error: FastVideoError) -> LoopFailed:
        return LoopFailed(worker_id=self._worker_id, loop=loop, error=error_detail(error))


def _loop_attributes(command: PrepareLoop) -> dict[str, tracing.AttributeValue]:
    return {
        "fastvideo.request_id": command.loop.request_id,
        "fastvideo.node_id": command.loop.node_id,
        "fastvideo.attempt": command.loop.attempt,
        "fastvideo.loop_id": command.loop_id,
        "fastvideo.model_instance_id": command.model_instance_id,
    }


def _batch_attributes(command: ExecuteBatch) -> dict[str, tracing.AttributeValue]:
    shown = command.unit_ids[:_SHOWN_UNITS_MAX]
    return {
        "fastvideo.batch_id": command.batch_id,
        "fastvideo.batch.kind": command.kind.value,
        "fastvideo.batch.size": len(command.unit_ids),
        "fastvideo.batch.window": command.window,
        "fastvideo.batch.unit_ids": ",".join(shown),
    }


def _result_attributes(executed: BatchExecuted) -> dict[str, tracing.AttributeValue]:
    requests = dict.fromkeys(result.loop.request_id for result in executed.results)
    failed = [result for result in executed.results if result.error is not None]
    return {
        "fastvideo.batch.forwards": executed.forwards,
        "fastvideo.batch.units": len(executed.results),
        "fastvideo.batch.waited_seconds": executed.waited_seconds,
        "fastvideo.batch.yielded": executed.yielded,
        "fastvideo.batch.request_ids": ",".join(list(requests)[:_SHOWN_UNITS_MAX]),
        "fastvideo.batch.failed_units": len(failed),
    }
