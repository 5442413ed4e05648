"""A worker as a process of its own, a scheduler's client, and the services around it."""

import asyncio
import hashlib
import itertools
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import pytest

from fastvideo import wire
from fastvideo.api.artifacts.v1 import artifacts_pb2, artifacts_pb2_grpc
from fastvideo.api.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
from fastvideo.api.worker.v1 import worker_pb2, worker_pb2_grpc
from fastvideo.deployment.catalog import Catalog, CatalogEntry
from fastvideo.requests.draft import RequestDraft
from fastvideo.requests.types import OutputSpec, RequestSpec, SamplingOverrides, TextPart
from fastvideo.requests.validation import resolve_request
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
from fastvideo.scheduling.request_scheduler import ProgramGraph, program_graph
from fastvideo.scheduling.work import LoopRef, LoopResult, StepResult, WorkPlan

MODEL_ID = "moving-digits"
START_S_MAX = 60.0
WAIT_S_MAX = 30.0


class ArtifactServicer(artifacts_pb2_grpc.ArtifactServiceServicer):
    """Keeps artifacts in memory; may be told to be away for a while."""

    def __init__(self) -> None:
        self.stored: dict[str, tuple[artifacts_pb2.PutArtifactHeader, bytes]] = {}
        self.blobs: dict[str, bytes] = {}
        self.chunk_sizes: list[int] = []
        self.away_calls = 0
        self.is_broken = False

    def PutArtifact(self, request_iterator: Any, context: Any) -> Any:
        if self.away_calls > 0:
            self.away_calls -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "away")
        if self.is_broken:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "broken")
        messages = list(request_iterator)
        header, chunks = messages[0].header, [message.chunk for message in messages[1:]]
        data = b"".join(chunks)
        self.chunk_sizes.extend(len(chunk) for chunk in chunks)
        assert hashlib.sha256(data).hexdigest() == header.expected_digest
        self.stored[header.artifact_id] = (header, data)
        response = artifacts_pb2.PutArtifactResponse()
        record = response.record
        record.artifact_id = header.artifact_id
        record.kind = header.kind
        record.digest = header.expected_digest
        record.size_bytes = len(data)
        record.producer.CopyFrom(header.producer)
        record.created_at.FromDatetime(datetime.now(UTC))
        return response

    def GetArtifact(self, request: Any, context: Any) -> Any:
        data = self.stored[request.artifact_id][1]
        yield artifacts_pb2.GetArtifactResponse(chunk=data)

    def PutBlob(self, request_iterator: Any, context: Any) -> Any:
        first, *rest = request_iterator
        data = b"".join(message.chunk for message in rest)
        assert hashlib.sha256(data).hexdigest() == first.header.digest
        assert len(data) == first.header.size_bytes
        self.blobs[first.header.digest] = data
        return artifacts_pb2.PutBlobResponse(digest=first.header.digest, size_bytes=len(data))

    def GetBlob(self, request: Any, context: Any) -> Any:
        if request.digest not in self.blobs:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such blob")
        yield artifacts_pb2.GetBlobResponse(chunk=self.blobs[request.digest])


class SchedulerServicer(scheduler_pb2_grpc.SchedulerServiceServicer):
    """Notes who announced itself."""

    def __init__(self) -> None:
        self.announced: list[scheduler_pb2.AnnounceWorkerRequest] = []

    def AnnounceWorker(self, request: Any, context: Any) -> Any:
        self.announced.append(request)
        return scheduler_pb2.AnnounceWorkerResponse(leader=True)


@dataclass
class Surroundings:
    """What a worker reaches out to."""

    address: str
    artifacts: ArtifactServicer
    scheduler: SchedulerServicer


@pytest.fixture(scope="session")
def surroundings() -> Iterator[Surroundings]:
    """An artifact service and a scheduler's front, on one port."""
    server = grpc.server(ThreadPoolExecutor(4))
    # What a worker does not call stays as the base class has it: unimplemented.
    artifacts, scheduler = ArtifactServicer(), SchedulerServicer()  # type: ignore[abstract]
    artifacts_pb2_grpc.add_ArtifactServiceServicer_to_server(artifacts, server)
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(scheduler, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield Surroundings(f"127.0.0.1:{port}", artifacts, scheduler)
    server.stop(0).wait()


@dataclass
class WorkerProcess:
    """A running worker."""

    process: subprocess.Popen[bytes]
    address: str
    log: Path
    started_s: float
    ready_after_s: float = 0.0


StartWorker = Callable[..., WorkerProcess]


@pytest.fixture(scope="session")
def start_worker(
    surroundings: Surroundings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartWorker]:
    """Starts workers, waits until they are ready, and ends them all."""
    started: list[WorkerProcess] = []

    def start(name: str = "worker-1", environment: Mapping[str, str] | None = None) -> Any:
        port = _free_port()
        log = tmp_path_factory.mktemp(name) / "log"
        env = {
            **os.environ,
            "FASTVIDEO_SERVICE_ID": name,
            "FASTVIDEO_LISTEN": f"127.0.0.1:{port}",
            "FASTVIDEO_SCHEDULER_ADDRESSES": surroundings.address,
            "FASTVIDEO_ARTIFACTS_ADDRESS": surroundings.address,
            "FASTVIDEO_THREADS": "1",
            "FASTVIDEO_COMPUTE_SLOTS": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
            **(environment or {}),
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "fastvideo_worker"],
                env=env,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        worker = WorkerProcess(process, f"127.0.0.1:{port}", log, time.monotonic())
        started.append(worker)
        _wait_ready(worker)
        return worker

    yield start
    for worker in started:
        if worker.process.poll() is None:
            worker.process.kill()
        worker.process.wait(10)


@pytest.fixture(scope="session")
def worker(start_worker: StartWorker) -> WorkerProcess:
    """One worker that the tests share; each attaches with a newer epoch."""
    return start_worker()


# Room for later epochs of the same test.
_EPOCHS = itertools.count(10, 10)


@pytest.fixture
def epoch() -> int:
    """An epoch newer than any before."""
    return next(_EPOCHS)


@pytest.fixture(scope="session")
def entry() -> CatalogEntry:
    return Catalog.load([MODEL_ID]).get(MODEL_ID)


@pytest.fixture
def make_spec(entry: CatalogEntry) -> Callable[..., RequestSpec]:
    """Resolved requests as the gateway makes them."""

    def make(
        request_id: str,
        prompt: str = "a red three moving left",
        outputs: OutputSpec | None = None,
        session_id: str = "",
        **sampling: Any,
    ) -> RequestSpec:
        draft = RequestDraft(
            model_id=MODEL_ID,
            inputs=(TextPart(role="prompt", text=prompt),),
            sampling=SamplingOverrides(**{"seed": 7, "steps": 4} | sampling),
            outputs=outputs,
            session_id=session_id,
        )
        return resolve_request(
            draft,
            entry,
            request_id=request_id,
            tenant_id="",
            random_seed=1,
            now=datetime.now(UTC),
        )

    return make


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
                    event = wire.from_proto(kinds[kind], getattr(response, kind))
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


@dataclass
class Driven:
    """What a request gave when it was driven alone over the stream."""

    results: dict[str, LoopResult] = field(default_factory=dict)
    batches: list[BatchExecuted] = field(default_factory=list)


class Driver:
    """Drives one request of a program over a client, node by node."""

    def __init__(self, client: SchedulerClient, entry: CatalogEntry, spec: RequestSpec) -> None:
        self._client = client
        self._spec = spec
        self._graph: ProgramGraph = program_graph(entry.programs[spec.program_id])
        assert client.attached is not None
        self._instance_id = client.attached.instances[0].model_instance_id

    def command(self, node_id: str, attempt: int = 1) -> PrepareLoop:
        return PrepareLoop(
            loop=LoopRef(request_id=self._spec.request_id, node_id=node_id, attempt=attempt),
            loop_id=self._graph.nodes[node_id].loop_id,
            model_instance_id=self._instance_id,
            request=self._spec,
            inputs=self._graph.inputs[node_id],
        )

    async def run_loop(
        self, node_id: str, driven: Driven, attempt: int = 1, plan: WorkPlan | None = None
    ) -> None:
        """Run a loop to its end, from a plan of it or from its beginning."""
        plan = plan or await self._client.prepare(self.command(node_id, attempt))
        while True:
            executed = await self._client.execute(plan)
            driven.batches.append(executed)
            result: StepResult = executed.results[0]
            assert result.error is None, result.error
            if result.loop_result is not None:
                driven.results[node_id] = result.loop_result
                return
            assert result.next_plan is not None
            plan = result.next_plan

    async def until(self, node_id: str) -> WorkPlan:
        """Run the nodes before one and prepare it; returns its first plan."""
        driven = Driven()
        while (ready := self._graph.startable(driven.results, driven.results)[0]) != node_id:
            await self.run_loop(ready, driven)
        return await self._client.prepare(self.command(node_id))

    async def restore(self, event: RequestSnapshotted, attempt: int) -> tuple[Driven, WorkPlan]:
        """Make an attempt of what another had; its results, and the plan of its live loop."""
        driven, plans = Driven(), []
        for saved in event.snapshots:
            command = replace(self.command(saved.loop.node_id, attempt), restore=saved)
            plan = await self._client.prepare(command)
            if saved.ended:
                assert plan.units == ()
                driven.results[saved.loop.node_id] = saved.loop_result
            else:
                plans.append(plan)
        [plan] = plans
        return driven, plan

    async def go_on(self, driven: Driven, plan: WorkPlan) -> Driven:
        """Run a restored attempt to its end and release it."""
        attempt = plan.loop.attempt
        await self.run_loop(plan.loop.node_id, driven, attempt, plan)
        while len(driven.results) < len(self._graph.nodes):
            node_id = self._graph.startable(driven.results, driven.results)[0]
            await self.run_loop(node_id, driven, attempt)
        await self._client.release(self._spec.request_id, attempt)
        return driven

    async def run(self) -> Driven:
        driven = Driven()
        while len(driven.results) < len(self._graph.nodes):
            node_id = self._graph.startable(driven.results, driven.results)[0]
            await self.run_loop(node_id, driven)
        await self._client.release(self._spec.request_id)
        return driven


@pytest.fixture
def attach(worker: WorkerProcess, epoch: int) -> Callable[..., SchedulerClient]:
    """Attaches to the shared worker, with this test's epoch unless another is given."""

    def make(epoch_: int = epoch, **options: Any) -> SchedulerClient:
        return SchedulerClient(worker.address, epoch_, **options)

    return make


@pytest.fixture
def driver() -> type[Driver]:
    return Driver


@pytest.fixture
def client_type() -> type[SchedulerClient]:
    return SchedulerClient


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def _wait_ready(worker: WorkerProcess) -> None:
    deadline_s = time.monotonic() + START_S_MAX
    with grpc.insecure_channel(worker.address) as channel:
        stub: Any = worker_pb2_grpc.WorkerServiceStub(channel)
        while time.monotonic() < deadline_s:
            if worker.process.poll() is not None:
                break
            try:
                health = stub.Health(worker_pb2.HealthRequest(), timeout=1, wait_for_ready=True)
            except grpc.RpcError:
                continue
            if health.ready:
                worker.ready_after_s = time.monotonic() - worker.started_s
                return
            time.sleep(0.02)
    worker.process.kill()
    worker.process.wait(10)
    pytest.fail(f"the worker did not become ready:\n{worker.log.read_text()[-4000:]}")
