"""A simulated worker: it obeys the contract of the real one, with time instead of tensors.

It prepares loops, runs batches with their windows, yields, saves and restores loops, releases,
numbers its reports and keeps them until they are acknowledged, and goes on with its loops under
another leader's stream.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Final, Protocol

from fastvideo.requests.types import ErrorDetail, RequestSpec
from fastvideo.scheduling.events import (
    AssignLoop,
    CancelLoop,
    CancelStream,
    DispatchBatch,
    LoopFailed,
    LoopPrepared,
    PreemptRequest,
    ReleaseRequest,
    SnapshotRequest,
    WorkerAttached,
    WorkerDraining,
    YieldBatch,
)
from fastvideo.scheduling.work import LoopRef, ModelState, WorkPlan
from fastvideo.simulation.agenda import Agenda, microseconds
from fastvideo.simulation.batches import BatchRun
from fastvideo.simulation.lane import Lane
from fastvideo.simulation.loops import SimulatedLoop, first_digest, source_digests
from fastvideo.simulation.models import SimulatedModels
from fastvideo.simulation.process import Process
from fastvideo.simulation.snapshots import Saving, SnapshotStore, restored
from fastvideo.simulation.trace import FaultsTrace, PoolTrace

Command = (
    AssignLoop
    | DispatchBatch
    | ReleaseRequest
    | YieldBatch
    | SnapshotRequest
    | PreemptRequest
    | CancelLoop
    | CancelStream
)
"""What a leader tells a worker."""

DRAINING: Final = "DRAINING"


class Meter(Protocol):
    """Sees what workers really do."""

    def worked(self, worker: "SimulatedWorker", run: BatchRun, seconds: float) -> None:
        """A step of a batch has run; it is not taken in yet."""
        ...


class SimulatedWorker:
    """One worker of a pool, over all the processes that it is after each other."""

    def __init__(
        self,
        worker_id: str,
        pool_name: str,
        pool: PoolTrace,
        speed: float,
        *,
        agenda: Agenda,
        models: SimulatedModels,
        store: SnapshotStore,
        faults: FaultsTrace,
        noise: float,
        random: Random,
        meter: Meter,
        specs: dict[str, RequestSpec],
    ) -> None:
        self.worker_id = worker_id
        self.pool_name = pool_name
        self.pool = pool
        self.speed = speed
        # Everything takes this many times as long.
        self.slowness = 1.0
        self.process: Process | None = None
        # It stands still until then.
        self.paused_until_us = 0
        # Takes reports to the leader of the latest stream, open or not.
        self.send: Callable[[Any], None] | None = None
        self._agenda = agenda
        self._models = models
        self._store = store
        self._faults = faults
        self._noise = noise
        self._random = random
        self._meter = meter
        self._specs = specs
        self._births = 0

    # -- life ----------------------------------------------------------------------------

    def start(self) -> None:
        """A process begins, with nothing."""
        self._births += 1
        self.slowness = 1.0
        self.paused_until_us = 0
        self.process = Process(
            incarnation=f"{self.worker_id}#{self._births}",
            compute=Lane(self.pool.compute_slots),
            io=Lane(self.pool.io_slots),
        )

    def kill(self) -> None:
        """The process is gone with all that it had."""
        self.process = None
        self.send = None

    def attached(self) -> WorkerAttached:
        """What it says of itself at the beginning of a stream."""
        assert self.process is not None
        return WorkerAttached(
            worker_id=self.worker_id,
            address=f"{self.worker_id}:1",
            incarnation=self.process.incarnation,
            instances=tuple(
                ModelState(model_instance_id=f"{self.worker_id}/{model}", model_id=model)
                for model in self.pool.models
            ),
            memory_bytes=self.pool.memory_bytes,
            compute_slots=self.pool.compute_slots,
            io_slots=self.pool.io_slots,
            role=self.pool.role,
            snapshots=True,
        )

    def start_over(self) -> None:
        """Free everything; a leader begins from nothing."""
        assert self.process is not None
        self.process.start_over()

    def can_resume(self, keep_s: float) -> bool:
        """Whether it still has its loops from the stream before."""
        process = self.process
        if process is None or process.alone_since_us is None:
            return False
        return self._agenda.now_us - process.alone_since_us <= microseconds(keep_s)

    def left_alone(self) -> None:
        """Its stream has ended; it keeps its loops for a while."""
        if self.process is not None and self.process.alone_since_us is None:
            self.process.alone_since_us = self._agenda.now_us

    def resume(self, after: int) -> tuple[Any, ...]:
        """What is sent under a new stream: the reports after one, and what is here."""
        assert self.process is not None
        return self.process.resume(self.worker_id, after)

    def acknowledge(self, report: int) -> None:
        """Reports up to this one are in the log."""
        if self.process is not None:
            self.process.acknowledge(report)

    def drain(self) -> None:
        """It takes no new request and will end."""
        if self.process is not None and not self.process.draining:
            self.process.draining = True
            self._report(WorkerDraining(worker_id=self.worker_id, reason="told to end"))

    @property
    def is_idle(self) -> bool:
        """Whether it holds nothing and nothing runs."""
        return not self.held()

    def held(self) -> tuple[str, ...]:
        """The attempts that it holds, and loops and batches that are on their way."""
        return self.process.held() if self.process is not None else ()

    # -- commands ------------------------------------------------------------------------

    def receive(self, command: Command) -> None:
        """Take a command from the leader whose stream is open."""
        process = self.process
        if process is not None:
            self._take(process, process.streams, command)

    def _take(self, process: Process, stream: int, command: Command) -> None:
        if process is not self.process or process.streams != stream:
            # It came while the process stood still, on a stream that another has replaced.
            return
        if self._agenda.now_us < self.paused_until_us:
            self._later(lambda: self._take(process, stream, command))
            return
        match command:
            case AssignLoop():
                self._assign(process, command)
            case DispatchBatch():
                run = BatchRun(command, self._agenda.now_us)
                process.batches[command.batch_id] = run
                lane = process.compute if command.kind != "artifact_write" else process.io
                lane.put(lambda ended: self._begin_batch(process, run, ended))
            case YieldBatch():
                process.yields.add(command.batch_id)
            case SnapshotRequest():
                self._save(process, Saving(command.request_id, command.attempt, release=False))
            case PreemptRequest():
                self._save(process, Saving(command.request_id, command.attempt, release=True))
            case ReleaseRequest():
                self._release(process, command)
            case CancelLoop():
                ref = command.loop
                process.free((ref.request_id, ref.attempt), (ref.node_id,))
            case CancelStream():
                pass

    def _assign(self, process: Process, command: AssignLoop) -> None:
        ref = command.loop
        if process.draining and (ref.request_id, ref.attempt) not in process.scopes:
            self._fail_loop(ref, DRAINING, "it will end")
            return
        process.preparing[ref] = command
        process.compute.put(lambda ended: self._prepare(process, command, ended))

    def _prepare(self, process: Process, command: AssignLoop, ended: Callable[[], None]) -> None:
        if process.preparing.get(command.loop) is not command:
            ended()
            return
        spec = self._specs[command.loop.request_id]
        seconds = self._scatter(self._models.prepare_s(spec.model_id))
        if command.restore is not None:
            seconds += self._store.seconds(command.restore.size_bytes)

        def prepared() -> None:
            ended()
            if process.preparing.get(command.loop) is command:
                del process.preparing[command.loop]
                self._prepared(process, command, seconds)

        self._work(process, seconds, prepared)

    def _prepared(self, process: Process, command: AssignLoop, seconds: float) -> None:
        ref = command.loop
        spec = self._specs[ref.request_id]
        if self._happens(self._faults.failing_loop):
            self._fail_loop(ref, "SIMULATED", "the loop fails as the trace wants it")
            return
        loops = process.scopes.setdefault((ref.request_id, ref.attempt), {})
        run = self._models.run(spec, ref.node_id)
        if command.restore is not None:
            loop = restored(self._store, command.restore, spec, ref, run, command.model_instance_id)
        else:
            digest = first_digest(spec, ref.node_id, source_digests(run, loops))
            loop = SimulatedLoop(spec, ref, run, command.model_instance_id, digest)
        loops[ref.node_id] = loop
        made = WorkPlan(loop=ref, state_version=loop.position)
        if loop.result is None:
            made = loop.next_plan()
        self._report(LoopPrepared(worker_id=self.worker_id, plan=made, seconds=seconds))

    def _fail_loop(self, ref: LoopRef, reason: str, message: str) -> None:
        error = ErrorDetail(reason=reason, message=message, subject=ref.node_id)
        self._report(LoopFailed(worker_id=self.worker_id, loop=ref, error=error))

    # -- batches -------------------------------------------------------------------------

    def _begin_batch(self, process: Process, run: BatchRun, ended: Callable[[], None]) -> None:
        if run.batch_id not in process.batches:
            # It was given under a leader that is gone.
            ended()
            return
        run.begin(process.scopes, self._agenda.now_us)
        self._begin_step(process, run, ended)

    def _begin_step(self, process: Process, run: BatchRun, ended: Callable[[], None]) -> None:
        seconds = self._scatter(run.seconds())
        self._work(process, seconds, lambda: self._end_step(process, run, seconds, ended))

    def _end_step(
        self, process: Process, run: BatchRun, seconds: float, ended: Callable[[], None]
    ) -> None:
        if process.batches.get(run.batch_id) is not run:
            ended()
            return
        self._meter.worked(self, run, seconds)
        run.end_step(seconds, self._failing)
        if run.goes_on(run.batch_id in process.yields):
            self._begin_step(process, run, ended)
            return
        process.yields.discard(run.batch_id)
        del process.batches[run.batch_id]
        self._report(run.executed(self.worker_id, self._agenda.now_us))
        run.let_go()
        for saving in tuple(process.saving):
            self._try_saving(process, saving)
        ended()

    def _failing(self) -> ErrorDetail | None:
        if self._happens(self._faults.failing_unit):
            return ErrorDetail(reason="SIMULATED", message="the unit fails as the trace wants it")
        return None

    # -- snapshots and releases ------------------------------------------------------------

    def _save(self, process: Process, saving: Saving) -> None:
        process.saving.append(saving)
        if saving.release:
            # Windows of the attempt end at their next boundary.
            process.yields.update(run.batch_id for run in process.batches_of(saving.scope))
        self._try_saving(process, saving)

    def _try_saving(self, process: Process, saving: Saving) -> None:
        """Save an attempt; one that shall be freed once all that was ordered of it has run."""
        if saving.begun or (saving.release and process.batches_of(saving.scope)):
            return
        saving.begun = True
        saved = self._store.save(process.scopes.get(saving.scope, {}).values())
        if saving.release and saved:
            process.free(saving.scope)
        seconds = self._store.seconds(sum(snapshot.size_bytes for snapshot in saved))
        done = saving.report(self.worker_id, saved, seconds)
        self._work(process, seconds, lambda: self._saved(process, saving, done))

    def _saved(self, process: Process, saving: Saving, done: Any) -> None:
        if saving in process.saving:
            process.saving.remove(saving)
            self._report(done)

    def _release(self, process: Process, command: ReleaseRequest) -> None:
        scope = (command.request_id, command.attempt)
        process.free(scope, command.node_ids)
        process.saving = [saving for saving in process.saving if saving.scope != scope]

    # -- time and reports ----------------------------------------------------------------

    def _work(self, process: Process, seconds: float, then: Callable[[], None]) -> None:
        self._agenda.after(seconds, self._finish, process, then)

    def _finish(self, process: Process, then: Callable[[], None]) -> None:
        if process is not self.process:
            return
        if self._agenda.now_us < self.paused_until_us:
            self._later(lambda: self._finish(process, then))
            return
        then()

    def _later(self, call: Callable[[], None]) -> None:
        """When it moves again, in the order in which things came."""
        self._agenda.at(self.paused_until_us, call)

    def _report(self, report: Any) -> None:
        process = self.process
        assert process is not None
        process.reported += 1
        numbered = replace(report, report=process.reported)
        process.reports[process.reported] = numbered
        if self.send is not None:
            self.send(numbered)

    def _scatter(self, seconds: float) -> float:
        scattered = 1.0 + self._noise * self._random.uniform(-1.0, 1.0)
        return seconds * scattered * self.slowness / self.speed

    def _happens(self, share: float) -> bool:
        return share > 0 and self._random.random() < share
