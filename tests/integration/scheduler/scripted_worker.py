"""A worker behind a real gRPC server whose loops are scripts: no model, every message real."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from fastvideo import wire
from fastvideo.api.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
from fastvideo.api.worker.v1 import worker_pb2, worker_pb2_grpc
from fastvideo.model.caching import CacheClass, CacheLookup, CacheOutcome
from fastvideo.requests.types import ErrorDetail, RequestSpec
from fastvideo.rpc.channel import open_channel
from fastvideo.rpc.server import Server, Service
from fastvideo.rpc.tls import TlsConfig
from fastvideo.scheduling.commands import ExecuteBatch, PrepareLoop, ReleaseLoops
from fastvideo.scheduling.events import (
    BatchExecuted,
    LoopPrepared,
    RequestSnapshotted,
    ResidentLoop,
    WorkerAttached,
    WorkerReattached,
)
from fastvideo.scheduling.traces import TraceNote
from fastvideo.scheduling.work import (
    LoopRef,
    LoopResult,
    ModelState,
    StepResult,
    WorkPlan,
    WorkUnit,
)
from tests.unit.scheduling.world import units_of

MODEL = "moving-digits"
MISSED = CacheLookup(cache_class=CacheClass.TEXT_ENCODER_OUTPUT, outcome=CacheOutcome.MISS)
FIELDS = {
    WorkerAttached: "attached",
    WorkerReattached: "reattached",
    LoopPrepared: "loop_prepared",
    BatchExecuted: "batch_executed",
    RequestSnapshotted: "request_snapshotted",
}


@dataclass
class Script:
    """How the worker behaves; a test changes it while the worker runs."""

    step_seconds: float = 0.0
    # Cleared: batches are kept until it is set.
    go: asyncio.Event = field(default_factory=asyncio.Event)
    # Requests whose next unit fails.
    fail: set[str] = field(default_factory=set)
    # Says nothing any more, but keeps its stream.
    silent: bool = False
    # Sends every report of a batch this many times.
    repeat: int = 1
    # Keeps its loops when a stream ends.
    keeps: bool = True
    # Takes commands, but never says so.
    deaf: bool = False
    credits: int = 0
    snapshots: bool = False
    # Its pool, and the mesh of each of its model instances.
    role: str = ""
    meshes: tuple[str, ...] = ("",)
    # Encoding looks into a cache, as far as the scheduler is told.
    caches: bool = False
    # Goes with every report of a batch or a loop.
    notes: tuple[TraceNote, ...] = ()

    def __post_init__(self) -> None:
        self.go.set()


class ScriptedWorker(worker_pb2_grpc.WorkerServiceServicer):
    """Use it as an async context: it serves and announces itself inside."""

    def __init__(
        self,
        worker_id: str,
        schedulers: list[str],
        *,
        memory: int = 10_000,
        tls: TlsConfig | None = None,
    ) -> None:
        self.worker_id = worker_id
        self._tls = tls or TlsConfig()
        self.script = Script()
        self.memory = memory
        self.incarnation = f"{worker_id}-{time.monotonic_ns()}"
        # What it was told, with the time, and what it holds.
        self.prepared: list[tuple[float, PrepareLoop]] = []
        self.batches: list[tuple[float, ExecuteBatch]] = []
        self.released: list[ReleaseLoops] = []
        # Streams that were cancelled: request, attempt, name.
        self.muted: list[tuple[str, int, str]] = []
        # When each batch was reported, by its first unit.
        self.reports: list[tuple[float, str]] = []
        self.epochs: list[int] = []
        self.held: dict[tuple[str, int], set[str]] = defaultdict(set)
        self._units: dict[str, tuple[RequestSpec, list[WorkUnit], int]] = {}
        self._schedulers = schedulers
        self._streams: set[asyncio.Queue[worker_pb2.AttachResponse | None]] = set()
        # What a stream hands over to the next one.
        self.outbox: list[LoopPrepared | BatchExecuted | RequestSnapshotted | None] = []
        self.acknowledged = 0
        # Batches that are past `go`.
        self.stepping = 0
        self._open: dict[str, ExecuteBatch] = {}
        self._versions: dict[LoopRef, int] = {}
        self._stream: tuple[int, asyncio.Queue] | None = None
        self.resumed: list[int] = []
        self._tasks: set[asyncio.Task[None]] = set()

    # -- serving -------------------------------------------------------------------------

    async def __aenter__(self) -> "ScriptedWorker":
        service = Service.of(
            worker_pb2.DESCRIPTOR,
            "WorkerService",
            worker_pb2_grpc.add_WorkerServiceServicer_to_server,
            self,
        )
        self._server = Server("127.0.0.1:0", [service], tls=self._tls.server, grace_s=0.0)
        await self._server.start()
        self._announcing = asyncio.create_task(self._announce())
        return self

    @property
    def address(self) -> str:
        """Where it serves."""
        return self._server.address

    async def __aexit__(self, *error: object) -> None:
        await self.die()

    async def die(self) -> None:
        """Vanish as a killed process does."""
        self._announcing.cancel()
        for task in self._tasks:
            task.cancel()
        await self._server.stop(0.0)

    async def _announce(self) -> None:
        request = scheduler_pb2.AnnounceWorkerRequest(
            worker_id=self.worker_id, address=self._server.address, incarnation=self.incarnation
        )
        while True:
            for address in self._schedulers:
                try:
                    async with open_channel(address, tls=self._tls.client) as channel:
                        stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
                        await stub.AnnounceWorker(request, timeout=1.0)
                except Exception:  # noqa: BLE001 - schedulers come and go in these tests
                    pass
            await asyncio.sleep(0.05)

    async def Attach(self, request_iterator, context):
        first = await anext(aiter(request_iterator))
        assert first.WhichOneof("message") == "hello"
        hello = first.hello
        self.epochs.append(first.epoch)
        out: asyncio.Queue[worker_pb2.AttachResponse | None] = asyncio.Queue()
        for other in self._streams:
            other.put_nowait(None)
        self._streams.add(out)
        self._stream = (first.epoch, out)
        taken = [0]
        if hello.resume_incarnation == self.incarnation and self.script.keeps:
            self.resumed.append(hello.resume_after)
            for report in self.outbox[hello.resume_after :]:
                self._send(report)
            self._send(self._inventory())
        else:
            self._start_over()
            self._send(self._attached())
        reading = self._spawn(self._read(request_iterator, first.epoch, taken))
        beating = self._spawn(
            self._beat(first.epoch, out, taken, hello.heartbeat_timeout_seconds / 4)
        )
        try:
            while (response := await out.get()) is not None:
                yield response
        finally:
            self._streams.discard(out)
            if self._stream == (first.epoch, out):
                self._stream = None
            reading.cancel()
            beating.cancel()

    def _start_over(self) -> None:
        self.held.clear()
        self._open.clear()
        self._versions.clear()
        # Old numbers are not used again.
        self.outbox = [None] * len(self.outbox)

    def end_streams(self) -> None:
        for out in self._streams:
            out.put_nowait(None)

    async def _read(self, requests: AsyncIterator, epoch: int, taken: list[int]) -> None:
        async for request in requests:
            assert request.epoch == epoch
            match request.WhichOneof("message"):
                case "heartbeat":
                    self.acknowledged = max(self.acknowledged, request.heartbeat.acknowledged)
                    continue
                case "prepare_loop":
                    self._prepare(wire.from_proto(PrepareLoop, request.prepare_loop))
                case "execute_batch":
                    batch = wire.from_proto(ExecuteBatch, request.execute_batch)
                    self.batches.append((time.monotonic(), batch))
                    self._open[batch.batch_id] = batch
                    self._spawn(self._execute(batch))
                case "release_loops":
                    self._release(wire.from_proto(ReleaseLoops, request.release_loops))
                case "cancel_stream":
                    stream = request.cancel_stream
                    self.muted.append((stream.request_id, stream.attempt, stream.name))
            taken[0] += 1

    async def _beat(self, epoch: int, out: asyncio.Queue, taken: list[int], every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            if not self.script.silent:
                beat = worker_pb2.Heartbeat(acknowledged=0 if self.script.deaf else taken[0])
                out.put_nowait(worker_pb2.AttachResponse(epoch=epoch, heartbeat=beat))

    def _release(self, command: ReleaseLoops) -> None:
        self.released.append(command)
        key = (command.request_id, command.attempt)
        for node_id in command.node_ids or tuple(self.held.get(key, ())):
            self.held[key].discard(node_id)
            self._versions.pop(LoopRef(request_id=key[0], node_id=node_id, attempt=key[1]), None)
        if not self.held.get(key):
            self.held.pop(key, None)

    # -- loops ---------------------------------------------------------------------------

    def _prepare(self, command: PrepareLoop) -> None:
        self.prepared.append((time.monotonic(), command))
        self.held[(command.loop.request_id, command.loop.attempt)].add(command.loop.node_id)
        units = units_of(command.request, command.loop, command.model_instance_id)
        plan = self._plan(command.request, units, 0, command.loop)
        self._report(LoopPrepared(worker_id=self.worker_id, plan=plan, seconds=0.0))

    def _plan(
        self, spec: RequestSpec, units: list[WorkUnit], position: int, loop: LoopRef
    ) -> WorkPlan:
        unit = units[position]
        self._units[unit.unit_id] = (spec, units, position)
        self._versions[loop] = position
        return WorkPlan(loop=loop, state_version=position, units=(unit,))

    async def _execute(self, batch: ExecuteBatch) -> None:
        await self.script.go.wait()
        self.stepping += 1
        try:
            await asyncio.sleep(self.script.step_seconds)
        finally:
            self.stepping -= 1
        if batch.batch_id not in self._open:
            return
        executed = BatchExecuted(
            worker_id=self.worker_id,
            batch_id=batch.batch_id,
            kind=batch.kind,
            results=tuple(map(self._result, batch.unit_ids)),
            predicted_seconds=batch.predicted_seconds,
            measured_seconds=max(self.script.step_seconds, 1e-4),
            forwards=1,
        )
        self.reports.append((time.monotonic(), batch.unit_ids[0]))
        del self._open[batch.batch_id]
        self._report(executed)
        for _ in range(self.script.repeat - 1):
            self._send(self.outbox[-1])

    def _result(self, unit_id: str) -> StepResult:
        spec, units, position = self._units.pop(unit_id)
        unit = units[position]
        result = StepResult(unit_id=unit_id, loop=unit.loop, state_version=position + 1)
        if self.script.caches and unit.loop.node_id == "encode":
            result = replace(result, cache_lookups=(MISSED,))
        if spec.request_id in self.script.fail:
            return replace(result, error=ErrorDetail(reason="NAN_LATENTS", message="NaN"))
        if position + 1 < len(units):
            return replace(result, next_plan=self._plan(spec, units, position + 1, unit.loop))
        node_id = unit.loop.node_id
        self._versions.pop(unit.loop, None)
        return replace(
            result,
            loop_result=LoopResult(
                loop=unit.loop,
                artifact_ids=(f"art_{spec.request_id}",) if node_id == "write" else (),
                digests={"latents": f"d-{spec.request_id}"} if node_id == "denoise" else {},
            ),
        )

    def _attached(self) -> WorkerAttached:
        return WorkerAttached(
            worker_id=self.worker_id,
            address=self._server.address,
            incarnation=self.incarnation,
            instances=tuple(
                ModelState(
                    model_instance_id=f"{self.worker_id}/{MODEL}{mesh}",
                    model_id=MODEL,
                    parallel_plan_hash=mesh,
                )
                for mesh in self.script.meshes
            ),
            role=self.script.role,
            memory_bytes={"activations": self.memory},
            compute_slots=1,
            io_slots=2,
            credits=self.script.credits,
            snapshots=self.script.snapshots,
        )

    def _inventory(self) -> WorkerReattached:
        return WorkerReattached(
            worker_id=self.worker_id,
            incarnation=self.incarnation,
            loops=tuple(
                ResidentLoop(loop=loop, state_version=version)
                for loop, version in self._versions.items()
            ),
            batch_ids=tuple(self._open),
            scopes=tuple(f"{name}/{attempt}" for name, attempt in self.held),
            report=len(self.outbox),
        )

    def _report(self, event) -> None:
        if isinstance(event, LoopPrepared | BatchExecuted):
            event = replace(event, notes=self.script.notes)
        numbered = replace(event, report=len(self.outbox) + 1)
        self.outbox.append(numbered)
        self._send(numbered)

    def _send(self, event) -> None:
        if self.script.silent or self._stream is None:
            return
        epoch, out = self._stream
        response = worker_pb2.AttachResponse(epoch=epoch)
        wire.fill_proto(event, getattr(response, FIELDS[type(event)]))
        out.put_nowait(response)

    def _spawn(self, work) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
