"""Prepares loops and runs batches of their units, step by step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastvideo.cache.features import TextFeatureCache
from fastvideo.cache.keys import key_digest
from fastvideo.clock import Clock
from fastvideo.engine.batches import check_batch, check_command
from fastvideo.engine.claims import Granted
from fastvideo.engine.failures import failure_detail
from fastvideo.engine.layer_shelf import LayerShelf
from fastvideo.engine.memory_watch import MemoryWatch
from fastvideo.engine.notes import NoteBook
from fastvideo.engine.noting import Noting
from fastvideo.engine.peaks import PeakBook
from fastvideo.engine.preparing import Preparer
from fastvideo.engine.releasing import Releaser
from fastvideo.engine.request_memory import RequestMemory
from fastvideo.engine.reservations import Reservations
from fastvideo.engine.residents import Residents
from fastvideo.engine.sink import BlobShelf
from fastvideo.engine.snapshotting import Snapshots
from fastvideo.engine.stepping import Stepper, log_failure
from fastvideo.engine.streams import CancelledStreams
from fastvideo.engine.values import Scope, ValueStore
from fastvideo.engine.window import Windows
from fastvideo.errors import (
    ContractViolation,
    FailedPrecondition,
    Unavailable,
)
from fastvideo.loops.contract import SharedTier
from fastvideo.loops.snapshot_format import Saved
from fastvideo.memory.pools import MemoryPools
from fastvideo.model.caching import CacheKey
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
from fastvideo.scheduling.work import (
    CancelScope,
    LoopRef,
    LoopSnapshot,
    StepResult,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorLimits:
    """The most that an executor holds or runs at once."""

    loops: int = 256
    units_per_batch: int = 64
    # A longer window is cut; the scheduler grants the rest anew.
    steps_per_batch: int = 64
    values_per_request: int = 64
    # How long a snapshot that frees an attempt waits for the steps that run.
    boundary_s: float = 120.0


class Executor:
    """Owns the live loops and the values between nodes.

    Its methods are synchronous. Batches may run from several threads at the same time, on the
    step path as many as the worker has compute slots, since a loop is in one batch at a time.
    """

    def __init__(
        self,
        *,
        worker_id: str,
        pools: MemoryPools,
        residents: Residents,
        features: TextFeatureCache,
        clock: Clock,
        limits: ExecutorLimits | None = None,
        tier: SharedTier | None = None,
        shelf: BlobShelf | None = None,
        watch_finite: bool = True,
    ) -> None:
        self.worker_id = worker_id
        self._pools = pools
        self._residents = residents
        self.features = features
        features.join(pools)
        self._clock = clock
        book = NoteBook()
        self.noting = Noting(worker_id, book, MemoryWatch(pools, book, worker_id, clock))
        features.watch(self.noting.evicted)
        self._limits = limits or ExecutorLimits()
        self.values = ValueStore(pools, self._limits.values_per_request)
        self._reservations = Reservations(pools)
        self._memory = RequestMemory(pools, self._reservations)
        self._peaks = PeakBook()
        streams = CancelledStreams()
        self._releaser = Releaser(
            pools=pools,
            values=self.values,
            memory=self._memory,
            streams=streams,
            loops_max=self._limits.loops,
        )
        self._loops = self._releaser.loops
        # Layers of traced units on their way to the store.
        self.layers = LayerShelf(shelf) if shelf is not None else None
        self._stepper = Stepper(
            reservations=self._reservations,
            peaks=self._peaks,
            residents=residents,
            features=features,
            values=self.values,
            loops=self._loops,
            clock=clock,
            streams=streams,
            tier=tier,
            watch_finite=watch_finite,
            layers=self.layers,
        )
        self._windows = Windows(self._stepper, self._loops, self._limits.steps_per_batch)
        self._snapshots: Snapshots | None = None
        if shelf is not None:
            self._snapshots = Snapshots(
                worker_id=worker_id,
                loops=self._loops,
                values=self.values,
                residents=residents,
                pools=pools,
                shelf=shelf,
                clock=clock,
                boundary_s_max=self._limits.boundary_s,
            )
        self._preparer = Preparer(
            pools=pools,
            residents=residents,
            values=self.values,
            loops=self._loops,
            memory=self._memory,
            reservations=self._reservations,
            peaks=self._peaks,
            snapshots=self._snapshots,
            forget=self._releaser.forget,
        )

    @property
    def loops(self) -> int:
        """How many loops live now."""
        return len(self._loops)

    @property
    def resident_loops(self) -> tuple[ResidentLoop, ...]:
        """The loops that live now, and where each stands."""
        return self._loops.residents

    def holds(self, request_id: str, attempt: int) -> bool:
        """Whether loops or values of a request's attempt are here."""
        scope = (request_id, attempt)
        return scope in self.values.scopes() or self._loops.has_any(scope)

    @property
    def waiting_for_memory(self) -> int:
        """How many requests wait for the memory that they will keep here."""
        return self._memory.waiting

    def traceparent(self, scope: Scope) -> str:
        """Of the span of a request's attempt; empty when nothing of it is here."""
        return self._memory.traceparent(scope)

    @property
    def places(self) -> int:
        """How many requests of a usual size have room at a time; 0 when that is not known yet."""
        return self._memory.places

    def give_up_waiting(self, error: Exception) -> None:
        """Let no request wait for memory any longer: its loop fails with the error."""
        self._memory.give_up(error)

    def claim_memory(self, command: PrepareLoop) -> Granted:
        """Claim what the loop's request will keep here, once; done at once or when it is free.

        To be waited for before `prepare`, which else fails where it would wait. Raises Cancelled
        when the attempt was released, OutOfMemory when it can never be had, ResourceExhausted
        when too many wait.
        """
        self._loops.check_open((command.loop.request_id, command.loop.attempt))
        return self._memory.take(command)

    def prepare(
        self, command: PrepareLoop, saved: Saved | None = None
    ) -> LoopPrepared | LoopFailed:
        """Make a loop's state and plan its first unit.

        `saved` is what `fetch` gave, for a command that restores.
        """
        started = self._clock.monotonic_s()
        try:
            plan = self._preparer.prepare(command, saved)
        except Exception as error:  # noqa: BLE001 - whatever a model raises is this loop's alone
            log_failure(error, command.loop)
            self.abandon(command.loop)
            return LoopFailed(
                worker_id=self.worker_id, loop=command.loop, error=failure_detail(error)
            )
        seconds = self._clock.monotonic_s() - started
        return LoopPrepared(worker_id=self.worker_id, plan=plan, seconds=seconds)

    def abandon(self, loop: LoopRef) -> None:
        """Give back the claim of a request whose loop is not made, unless it holds something."""
        if not self.holds(loop.request_id, loop.attempt):
            self._releaser.forget((loop.request_id, loop.attempt))

    def execute(self, command: ExecuteBatch) -> BatchExecuted:
        """Run the units in one forward, then the steps that follow them, up to the window.

        A unit that fails carries its error in its own result and harms no other. Raises
        ContractViolation for units that may not share a batch, InvalidField and
        ResourceExhausted for a command that no worker can carry out.
        """
        started = self._clock.monotonic_s()
        check_command(command, self._limits.units_per_batch)
        claims = self._loops.claim(command.unit_ids)
        try:
            units = [claim.unit for claim in claims if claim.unit is not None]
            if units:
                check_batch(command, units)
        except ContractViolation:
            self._loops.finish(claim.loop for claim in claims if claim.loop is not None)
            raise
        run = self._windows.run(command, claims)
        return BatchExecuted(
            worker_id=self.worker_id,
            batch_id=command.batch_id,
            kind=command.kind,
            results=run.results,
            predicted_seconds=command.predicted_seconds,
            measured_seconds=self._clock.monotonic_s() - started,
            forwards=run.forwards,
            peak_bytes=run.peak_bytes,
            yielded=run.yielded,
            notes=self.noting.of_window(run.notes, run.accesses),
        )

    def yield_batch(self, batch_id: str) -> None:
        """End a batch's window at its next boundary; its loops live on."""
        self._windows.yield_batch(batch_id)

    def scopes_of(self, unit_ids: Sequence[str]) -> set[Scope]:
        """The attempts that planned units are of."""
        return self._loops.scopes_of(unit_ids)

    def fetch(self, restore: LoopSnapshot) -> Saved:
        """What a snapshot holds; blocks, beside compute.

        Raises SnapshotGone and SnapshotMismatch, Unavailable and OutOfMemory.
        """
        return self._saving.fetch(restore)

    def pause(self, scope: Scope, *, pausing: bool = True) -> None:
        """End windows with an attempt's loops at their next boundary, until told otherwise."""
        self._loops.pause(scope, pausing=pausing)

    def snapshot(self, command: SnapshotLoops) -> RequestSnapshotted:
        """Save what an attempt has here; blocks, beside compute, which goes on.

        With `release` it waits for the steps that run, and frees what it saved. What goes wrong
        is told in the answer.
        """
        scope = (command.request_id, command.attempt)
        event = self._saving.take(command)
        if event.released:
            self._releaser.forget(scope)
        return event

    def refused(self, command: ExecuteBatch, error: Exception) -> BatchExecuted:
        """The answer to a batch that could not be run at all: its error at every unit."""
        detail = failure_detail(error)
        return BatchExecuted(
            worker_id=self.worker_id,
            batch_id=command.batch_id,
            kind=command.kind,
            results=tuple(
                StepResult(unit_id=unit_id, loop=LoopRef(), error=detail)
                for unit_id in command.unit_ids
            ),
            predicted_seconds=command.predicted_seconds,
        )

    def cancel_stream(self, command: CancelStream) -> None:
        """Write no more of one output of an attempt; its other outputs go on.

        Raises ResourceExhausted for too many streams of one attempt.
        """
        self._releaser.cancel_stream(command)

    def release(self, command: ReleaseLoops) -> tuple[LoopRef, ...]:
        """Free every loop and value of a request's attempt; running ones when their unit has ended.

        The attempt is over: nobody will run its loops on. Who cancels one that goes on gives it
        to `cancel`, or waits for the boundary first, as the scheduler does.
        """
        gone = self._releaser.release(command)
        if not command.node_ids:
            self.noting.memory.reserved()
        return gone

    def cancel(self, scope: CancelScope) -> tuple[LoopRef, ...]:
        """Free the loops that a scope names, each at the next boundary that its plan declares.

        Of a stream, "REQUEST/NAME", nothing more is written; it has no loop of its own. Raises
        InvalidField for a target that cannot be.
        """
        return self._releaser.cancel(scope)

    def release_all(self) -> tuple[LoopRef, ...]:
        """Free every loop and value; running ones at their boundary."""
        return self._releaser.release_all()

    def start_over(self, timeout_s: float) -> None:
        """Free everything and forget what was released, so that any attempt may come again.

        To be called once no command is on its way. Raises Unavailable when units that run do
        not reach their boundary within the time.
        """
        self.release_all()
        if not self._loops.wait_gone(self._loops.refs, timeout_s):
            raise Unavailable(f"units run that did not end within {timeout_s:g} s")
        self._loops.forget()

    def release_model(self, model_instance_id: str) -> tuple[LoopRef, ...]:
        """Free every loop of a model; running ones at their boundary."""
        return self._releaser.release_all(lambda loop: loop.model_instance_id == model_instance_id)

    def check_no_requests(self) -> None:
        """Raise FailedPrecondition (REQUESTS_RUNNING) while a request holds anything here."""
        scopes = {*self.values.scopes(), *self._memory.scopes()}
        if scopes or self.loops:
            raise FailedPrecondition(
                f"{len(scopes)} requests with {self.loops} loops are here",
                reason="REQUESTS_RUNNING",
                subject=self.worker_id,
                attributes={"loops": str(self.loops)},
            )

    def wait_gone(self, refs: Sequence[LoopRef], timeout_s: float) -> bool:
        """Whether these loops were all freed within the time."""
        return self._loops.wait_gone(refs, timeout_s)

    def forget_model(self, model_instance_id: str) -> None:
        """Drop what was measured of a model that is gone."""
        self._peaks.forget(model_instance_id)
        self._memory.forget(model_instance_id)

    def publish(self, key: CacheKey, value: Any) -> bool:
        """Keep a text's features that were computed elsewhere; whether they are kept."""
        self.features.keep(key, value)
        entry = self.features.find(key_digest(key))
        if entry is not None:
            self.noting.published(entry)
        return entry is not None

    @property
    def _saving(self) -> Snapshots:
        if self._snapshots is None:
            raise FailedPrecondition(
                "this worker was given no store of snapshots", reason="SNAPSHOT_UNSUPPORTED"
            )
        return self._snapshots
