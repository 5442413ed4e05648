"""The scheduling core and the executor in one process: decisions in, compute, events out."""

import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar

from fastvideo.clock import Clock
from fastvideo.engine.claims import Granted
from fastvideo.engine.executor import Executor
from fastvideo.engine.failures import failure_detail
from fastvideo.engine.request_inputs import RequestInputs
from fastvideo.errors import FastVideoError, ResourceExhausted, Unavailable
from fastvideo.requests.types import RequestMetrics, RequestSpec
from fastvideo.scheduling import effects
from fastvideo.scheduling.commands import (
    CancelStream,
    PrepareLoop,
    ReleaseLoops,
    SnapshotLoops,
    YieldBatch,
)
from fastvideo.scheduling.core import SchedulerCore
from fastvideo.scheduling.events import (
    AssignLoop,
    BatchExecuted,
    CancelRequest,
    CompleteRequest,
    Decision,
    DispatchBatch,
    FailRequest,
    LoopFailed,
    LoopPrepared,
    ReleaseRequest,
    ReportProgress,
    WorkerAttached,
)
from fastvideo.scheduling.inputs import (
    CancelRequested,
    RequestSubmitted,
    SchedulerInput,
    Tick,
)
from fastvideo.scheduling.notes import requests_of, take_notes
from fastvideo.scheduling.traces import TraceNote
from fastvideo.scheduling.work import OFF_STEP_PATH, LoopRef
from fastvideo.telemetry import tracing
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)

T = TypeVar("T")

Terminal = CompleteRequest | FailRequest | CancelRequest

_INBOX_MAX: Final = 100_000
_IO_THREADS: Final = 2


@dataclass(slots=True, kw_only=True)
class _Running:
    """A request that has not ended."""

    spec: RequestSpec
    traceparent: str
    on_progress: Callable[[float], None]
    # Given the decision that ended it and the values that its loops left.
    on_end: Callable[[Terminal, Mapping[str, Any]], None]
    on_notes: Callable[[Sequence[TraceNote]], None]
    values: Mapping[str, Any] = field(default_factory=dict)


class LocalDriver:
    """One thread that decides and computes in turn, as a scheduler and a worker do together.

    `start` runs on that thread first; it gives the worker that the core then knows. What users
    ask is looked at between any two steps, so a cancel lands at the next boundary.
    """

    def __init__(
        self,
        *,
        core: SchedulerCore,
        executor: Executor,
        inputs: RequestInputs,
        clock: Clock,
        start: Callable[[], WorkerAttached],
    ) -> None:
        self._core = core
        self._executor = executor
        self._inputs = inputs
        self._clock = clock
        self._start = start
        self._inbox: queue.Queue[SchedulerInput | None] = queue.Queue(_INBOX_MAX)
        self._running: dict[str, _Running] = {}
        # Loops that wait for the memory of their requests, in order.
        self._unprepared: dict[LoopRef, tuple[PrepareLoop, Granted]] = {}
        self._lock = threading.Lock()
        # The core has one user at a time.
        self._deciding = threading.Lock()
        self._io = ThreadPoolExecutor(_IO_THREADS, thread_name_prefix="engine-io")
        # The batch that computes now.
        self._computing = ""
        self._started: queue.Queue[BaseException | None] = queue.Queue(1)
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Load on the driver's thread. Raises what `start` raised there."""
        self._thread.start()
        error = self._started.get()
        if error is not None:
            raise error

    def submit(
        self,
        spec: RequestSpec,
        on_progress: Callable[[float], None],
        on_end: Callable[[Terminal, Mapping[str, Any]], None],
        on_notes: Callable[[Sequence[TraceNote]], None] = lambda notes: None,
    ) -> None:
        """Queue a request. Raises Unavailable when closed, ResourceExhausted when full."""
        with self._lock:
            if self._closed:
                raise Unavailable("the engine is closed", subject="engine")
            self._running[spec.request_id] = _Running(
                spec=spec,
                traceparent=tracing.current_traceparent(),
                on_progress=on_progress,
                on_end=on_end,
                on_notes=on_notes,
            )
        try:
            self._put(RequestSubmitted(spec=spec))
        except queue.Full:
            with self._lock:
                del self._running[spec.request_id]
            raise ResourceExhausted(
                f"{_INBOX_MAX} calls wait, which is the most", subject="requests"
            ) from None

    def cancel(self, request: CancelRequested) -> None:
        """Queue a cancellation. Raises queue.Full for too many calls."""
        self._put(request)

    def look(self, read: Callable[[], T]) -> T:
        """What somebody reads of the core, between two of its decisions."""
        with self._deciding:
            return read()

    def close(self) -> None:
        """Stop after the step that runs; requests that have not ended fail as Unavailable."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._put(None)
        self._thread.join()
        self._io.shutdown()
        self._executor.release_all()
        self._fail_all(Unavailable("the engine was closed", subject="engine"))

    def _put(self, event: SchedulerInput | None) -> None:
        """Queue an event, and have the window that computes end at its next boundary."""
        self._inbox.put_nowait(event)
        if batch_id := self._computing:
            self._executor.yield_batch(batch_id)

    # -- on the driver's thread ------------------------------------------------------------

    def _run(self) -> None:
        try:
            attached = self._start()
        except BaseException as error:  # noqa: BLE001 - it is raised where `start` was called
            self._started.put(error)
            return
        self._started.put(None)
        try:
            self._work(attached)
        except Exception as error:  # noqa: BLE001 - nobody may wait for a thread that is gone
            _LOG.error("the engine broke", exc_info=error)
            self._fail_all(error)

    def _work(self, attached: WorkerAttached) -> None:
        events: deque[SchedulerInput] = deque([attached])
        batches: deque[DispatchBatch | SnapshotLoops] = deque()
        while self._take_in(events, wait=not (events or batches)):
            while events:
                event = self._without_notes(events.popleft())
                with self._deciding:
                    decisions = self._core.decide(event, self._clock.now())
                for decision in decisions:
                    self._carry_out(decision, events, batches)
                # What was released, here or on another thread, may be what others waited for.
                events.extend(self._prepare_granted())
            if batches:
                events.extend(self._compute(batches.popleft()))

    def _without_notes(self, event: SchedulerInput) -> SchedulerInput:
        """The event as the core sees it; its notes go to whoever asked for their requests."""
        if not isinstance(event, BatchExecuted | LoopPrepared):
            return event
        report, notes = take_notes(event)
        for note in notes:
            for request_id in requests_of(note):
                running = self._running.get(request_id)
                if running is not None:
                    running.on_notes((note,))
        return report

    def _take_in(self, events: deque[SchedulerInput], *, wait: bool) -> bool:
        """Put what users asked before what the last step gave; False when it is time to end."""
        asked: list[SchedulerInput] = []
        if wait:
            try:
                event = self._inbox.get(timeout=self._seconds_to_deadline())
            except queue.Empty:
                event = Tick()
            if event is None:
                return False
            asked.append(event)
        while True:
            try:
                event = self._inbox.get_nowait()
            except queue.Empty:
                break
            if event is None:
                return False
            asked.append(event)
        events.extendleft(reversed(asked))
        return True

    def _seconds_to_deadline(self) -> float | None:
        deadline: datetime | None = self._core.next_deadline()
        if deadline is None:
            return None
        return max(0.0, (deadline - self._clock.now()).total_seconds())

    def _carry_out(
        self,
        decision: Decision,
        events: deque[SchedulerInput],
        batches: deque[DispatchBatch | SnapshotLoops],
    ) -> None:
        match decision:
            case AssignLoop():
                self._assign(decision, events)
            case DispatchBatch() if decision.kind in OFF_STEP_PATH:
                self._io.submit(self._beside, self._execute, decision)
            case DispatchBatch():
                batches.append(decision)
            case ReleaseRequest():
                self._release(decision)
            case ReportProgress():
                running = self._running.get(decision.request_id)
                if running is not None:
                    running.on_progress(decision.fraction)
            case CompleteRequest() | FailRequest() | CancelRequest():
                self._end(decision)
            case _:
                self._command(decision, batches)

    def _command(self, decision: Decision, batches: deque[DispatchBatch | SnapshotLoops]) -> None:
        """Carry out what a worker is told in its own words."""
        _, command = effects.worker_command(decision) or ("", None)
        match command:
            case SnapshotLoops():
                # Behind what was dispatched of the attempt before.
                batches.append(command)
            case ReleaseLoops():
                self._executor.release(command)
            case YieldBatch():
                self._executor.yield_batch(command.batch_id)
            case CancelStream():
                self._executor.cancel_stream(command)

    def _compute(self, work: DispatchBatch | SnapshotLoops) -> list[SchedulerInput]:
        """Run a batch to the end of its window, which is near as soon as somebody asks."""
        if isinstance(work, SnapshotLoops):
            self._io.submit(self._beside, self._snapshot, work)
            return []
        self._computing = work.batch_id
        if not self._inbox.empty():
            self._executor.yield_batch(work.batch_id)
        try:
            return self._execute(work)
        finally:
            self._computing = ""

    def _assign(self, decision: AssignLoop, events: deque[SchedulerInput]) -> None:
        """Let a loop be prepared, at once or when its request's memory is free."""
        running = self._running[decision.loop.request_id]
        inputs = self._core.loop_inputs(decision.loop)
        command = effects.prepare_loop(decision, running.spec, inputs, running.traceparent)
        try:
            self._unprepared[command.loop] = (command, self._executor.claim_memory(command))
        except FastVideoError as error:
            events.append(_failed(decision.worker_id, command.loop, error))

    def _prepare_granted(self) -> list[SchedulerInput]:
        ready = [ref for ref, (_, granted) in self._unprepared.items() if granted.done()]
        return [self._prepare(*self._unprepared.pop(ref)) for ref in ready]

    def _prepare(self, command: PrepareLoop, granted: Granted) -> LoopPrepared | LoopFailed:
        with tracing.span_from(
            command.traceparent,
            "engine.prepare",
            {
                "fastvideo.request_id": command.loop.request_id,
                "fastvideo.loop_id": command.loop_id,
            },
        ):
            try:
                granted.result()
                if command.restore is not None:
                    saved = self._executor.fetch(command.restore)
                    return self._executor.prepare(command, saved)
                return self._executor.prepare(self._inputs.fetch(command))
            except FastVideoError as error:
                self._executor.abandon(command.loop)
                return _failed(self._executor.worker_id, command.loop, error)

    def _execute(self, decision: DispatchBatch) -> list[SchedulerInput]:
        traceparent = self._traceparent(decision)
        command = effects.execute_batch(decision, traceparent)
        with tracing.span_from(
            traceparent,
            "engine.batch",
            {
                "fastvideo.batch.kind": decision.kind.value,
                "fastvideo.batch.size": len(decision.unit_ids),
            },
        ):
            try:
                return [self._executor.noting.with_notes(self._executor.execute(command))]
            except FastVideoError as error:
                return [self._executor.refused(command, error)]

    def _snapshot(self, command: SnapshotLoops) -> list[SchedulerInput]:
        return [self._executor.snapshot(command)]

    def _beside(self, work: Callable[[T], list[SchedulerInput]], given: T) -> None:
        """On a thread beside compute; what it gives is looked at between two steps."""
        for event in work(given):
            self._put(event)

    def _traceparent(self, decision: DispatchBatch) -> str:
        """The trace of the first request of a batch."""
        running = self._running.get(decision.loops[0].request_id) if decision.loops else None
        return running.traceparent if running is not None else ""

    def _release(self, decision: ReleaseRequest) -> None:
        """Free the attempt; what its loops left goes along with the end that follows."""
        running = self._running.get(decision.request_id)
        if running is not None:
            running.values = self._executor.values.all((decision.request_id, decision.attempt))
        self._executor.release(effects.release_loops(decision))

    def _end(self, decision: Terminal) -> None:
        with self._lock:
            running = self._running.pop(decision.request_id)
        running.on_end(decision, running.values)

    def _fail_all(self, error: Exception) -> None:
        """End every request with the error, and take no more."""
        with self._lock:
            self._closed = True
            going, self._running = list(self._running.values()), {}
        for running in going:
            end = FailRequest(
                request_id=running.spec.request_id,
                error=failure_detail(error),
                metrics=RequestMetrics(),
            )
            running.on_end(end, {})


def _failed(worker_id: str, loop: LoopRef, error: FastVideoError) -> LoopFailed:
    return LoopFailed(worker_id=worker_id, loop=loop, error=failure_detail(error))
