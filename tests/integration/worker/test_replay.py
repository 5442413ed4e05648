"""WorkerService.Replay: a process of its own, one at a time, that leaves nothing behind."""

import asyncio
import hashlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import grpc
import psutil
import pytest

from fastvideo import wire
from fastvideo.api.common.v1 import artifact_pb2
from fastvideo.api.worker.v1 import worker_pb2, worker_pb2_grpc
from fastvideo.artifacts.types import ArtifactRecord
from fastvideo.replay.types import (
    LoggedRun,
    LoggedStep,
    ReplayKind,
    ReplayReport,
    ReplayRequest,
)
from fastvideo.requests.types import OutputSpec, RequestSpec, RequestStatus, TraceLevel
from fastvideo.rpc.channel import open_channel
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.scheduling.traces import ComponentsTraced

WAIT_S_MAX = 120.0
Attach = Callable[..., Any]
MakeSpec = Callable[..., RequestSpec]


@pytest.fixture
async def original(
    attach: Attach, driver: Any, entry: Any, make_spec: MakeSpec, surroundings: Any
) -> LoggedRun:
    """A run that the worker did, as the log would have it."""
    spec = make_spec("again", steps=3)
    async with attach() as client:
        driven = await driver(client, entry, spec).run()
        assert client.attached is not None
        instance, fingerprint = client.attached.instances[0], client.attached.fingerprint
    return _logged(spec, driven, surroundings, instance=instance, fingerprint=fingerprint)


async def test_a_run_gives_the_same_bits_in_a_process_of_its_own(
    worker: Any, attach: Attach, original: LoggedRun
) -> None:
    async with attach() as client:
        responses = [response async for response in client.stub.Replay(_asked(original))]
    kinds = [response.response.WhichOneof("message") for response in responses]
    assert kinds[0] == "progress"
    assert kinds.count("comparison") >= len(original.steps)
    assert kinds[-1] == "report"
    report = wire.from_proto(ReplayReport, responses[-1].response.report)
    assert report.equal, report
    assert report.promise.kind == "bits"
    assert report.compared == len(original.steps) + 2
    assert _replays_of(worker) == []


async def test_a_layer_that_the_log_has_otherwise_is_named(
    attach: Attach, driver: Any, entry: Any, make_spec: MakeSpec, surroundings: Any
) -> None:
    outputs = OutputSpec(video=True, trace=TraceLevel.DETAIL)
    spec = make_spec("traced", prompt="a layer of its own", steps=2, outputs=outputs)
    async with attach() as client:
        driven = await driver(client, entry, spec).run()
        instance, fingerprint = client.attached.instances[0], client.attached.fingerprint
        run = _logged(spec, driven, surroundings, instance=instance, fingerprint=fingerprint)
        wrong = next(i for i, step in enumerate(run.steps) if step.node_id == "denoise")
        traced = run.steps[wrong].components
        assert traced is not None
        await _stored(surroundings, traced.layers_digest)
        blob = surroundings.artifacts.blobs[traced.layers_digest].decode()
        assert traced.layers == len(blob.splitlines()) > 100
        # A log that has another digest of one layer, and so another state.
        line = next(line for line in blob.splitlines() if '"blocks.0.ffn' in line)
        forged = blob.replace(line, line.replace('"digest": "', '"digest": "00')[:-4] + '"}')
        forged_digest = _put(surroundings, forged.encode())
        steps = list(run.steps)
        steps[wrong] = replace(
            run.steps[wrong],
            state_digest="0" * 64,
            components=replace(traced, layers_digest=forged_digest),
        )
        asked = _asked(replace(run, steps=tuple(steps)))
        [*_, last] = [response async for response in client.stub.Replay(asked)]
    first = wire.from_proto(ReplayReport, last.response.report).first_divergence
    assert first is not None
    assert (first.subject, first.component) == ("denoise 1/2", "transformer")
    assert first.layer.startswith("blocks.0.ffn")


async def test_a_replay_is_one_at_a_time_and_ends_with_its_call(
    worker: Any, attach: Attach, original: LoggedRun
) -> None:
    async with attach() as client:
        first = client.stub.Replay(_asked(original))
        begun = aiter(first)
        await anext(begun)
        [pid] = _replays_of(worker)
        assert os.getpriority(os.PRIO_PROCESS, pid) == 10
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _drained(client.stub.Replay(_asked(original)))
        error = from_rpc_error(caught.value)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error.reason == "REPLAY_RUNNING"
        # Whoever serves is not hurt.
        health = await client.stub.Health(worker_pb2.HealthRequest(), timeout=60)
        assert health.ready
        first.cancel()
        await _until(lambda: not _replays_of(worker))
        # The next one may come, once the worker has seen that the process is gone.
        await _admitted(client.stub, _asked(original))
        await _until(lambda: not _replays_of(worker))


async def test_what_cannot_be_replayed_is_refused_with_its_reason(
    attach: Attach, original: LoggedRun
) -> None:
    other = replace(original, spec=replace(original.spec, model_id="no-such-model"))
    decision = worker_pb2.ReplayRequest(
        replay=wire.to_proto(ReplayRequest(kind=ReplayKind.DECISION)), run=wire.to_proto(original)
    )
    lost = replace(original, spec=replace(original.spec, program_id="no-such-program"))
    async with attach() as client:
        for asked, reason in (
            (_asked(other), "MODEL_NOT_LOADED"),
            (decision, "INVALID_FIELD"),
            (_asked(lost), "INVALID_FIELD"),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await _drained(client.stub.Replay(asked))
            assert from_rpc_error(caught.value).reason == reason


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
async def test_no_process_outlives_the_worker(
    start_worker: Any, original: LoggedRun, ending: signal.Signals
) -> None:
    name = f"ends-{ending.name.lower()}"
    worker = start_worker(name, {"FASTVIDEO_DRAIN_GRACE_S": "1"})
    async with open_channel(worker.address) as channel:
        stub: Any = worker_pb2_grpc.WorkerServiceStub(channel)
        call = stub.Replay(_asked(original))
        await anext(aiter(call))
        [pid] = _replays_of(worker)
        worker.process.send_signal(ending)
        await _until(lambda: worker.process.poll() is not None)
        await _until(lambda: not _runs(pid))
        call.cancel()
    if ending is signal.SIGTERM:
        assert worker.process.returncode == 0


def _runs(pid: int) -> bool:
    """Whether it is there, and more than an entry that nobody has read."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _asked(run: LoggedRun) -> worker_pb2.ReplayRequest:
    request = ReplayRequest(kind=ReplayKind.EXECUTION, subject_id=run.spec.request_id)
    return worker_pb2.ReplayRequest(replay=wire.to_proto(request), run=wire.to_proto(run))


def _logged(spec: RequestSpec, driven: Any, surroundings: Any, **about: Any) -> LoggedRun:
    results = [(batch, batch.results[0]) for batch in driven.batches]
    notes = {
        note.unit_id: note
        for batch in driven.batches
        for note in batch.notes
        if isinstance(note, ComponentsTraced)
    }
    headers = [
        (artifact_id, *surroundings.artifacts.stored[artifact_id])
        for artifact_id in driven.results["write"].artifact_ids
    ]
    return LoggedRun(
        spec=spec,
        status=RequestStatus.COMPLETED,
        attempt=1,
        steps=tuple(
            LoggedStep(
                node_id=result.loop.node_id,
                unit_id=result.unit_id,
                state_version=result.state_version,
                step_range=result.step_range,
                state_digest=result.state_digest,
                measured_seconds=batch.measured_seconds,
                components=notes.get(result.unit_id),
            )
            for batch, result in results
        ),
        latents_digest=driven.results["denoise"].digests["latents"],
        artifacts=tuple(_record(*header) for header in headers),
        original_seconds=sum(batch.measured_seconds for batch in driven.batches),
        **about,
    )


def _record(artifact_id: str, header: Any, data: bytes) -> ArtifactRecord:
    record = artifact_pb2.ArtifactRecord(
        artifact_id=artifact_id,
        kind=header.kind,
        name=header.name,
        content_type=header.content_type,
        digest=header.expected_digest,
        size_bytes=len(data),
        producer=header.producer,
    )
    record.created_at.GetCurrentTime()
    return wire.from_proto(ArtifactRecord, record)


def _put(surroundings: Any, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    surroundings.artifacts.blobs[digest] = data
    return digest


async def _stored(surroundings: Any, digest: str) -> None:
    await _until(lambda: digest in surroundings.artifacts.blobs)


async def _drained(call: AsyncIterator[Any]) -> None:
    async for _ in call:
        pass


async def _admitted(stub: Any, asked: worker_pb2.ReplayRequest) -> None:
    """Ask until a replay begins, and give it up."""
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            call = stub.Replay(asked)
            try:
                await anext(aiter(call))
            except grpc.aio.AioRpcError as error:
                if from_rpc_error(error).reason != "REPLAY_RUNNING":
                    raise
                await asyncio.sleep(0.05)
            else:
                call.cancel()
                return


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        while not condition():
            await asyncio.sleep(0.05)


def _replays_of(worker: Any) -> list[int]:
    """The processes that a worker runs replays in."""
    try:
        children = psutil.Process(worker.process.pid).children()
    except psutil.NoSuchProcess:
        return []
    return [child.pid for child in children if _is_replay(child)]


def _is_replay(process: psutil.Process) -> bool:
    try:
        return "fastvideo.recompute" in process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False
