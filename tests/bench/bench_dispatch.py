"""P7: from a unit's report to the start of the next one.

It runs a real scheduler process, with its log, its relay and its traces, and a worker here whose
units sleep for 5 ms; a scheduler writes and relays while units run. Its peer is a bare grpc.aio
stream between two processes, in the same direction: the client answers what the server sends.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
from measurement import Measurement, percentile

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fastvideo.api.worker.v1 import worker_pb2, worker_pb2_grpc
from fastvideo.events.appender import Appender
from fastvideo.events.catalog import new_event
from fastvideo.events.migrate import upgrade
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.records import AppendCommand, StreamAppend
from fastvideo.events.types import EventMetadata
from fastvideo.requests.events import RequestAccepted
from fastvideo.requests.state import stream_of
from tests.integration.scheduler.scripted_worker import MODEL, ScriptedWorker
from tests.plugins.servers import NatsServer, PostgresServer, free_port
from tests.unit.scheduling.world import request

IDS = ("P7",)
ROUNDS = 12
STEPS = 60
UNIT_SECONDS = 0.005


def measure() -> list[Measurement]:
    """Dispatch against a bare stream."""
    return [_dispatch()]


def _dispatch() -> Measurement:
    with tempfile.TemporaryDirectory() as name, _servers(Path(name)) as (dsn, nats_url):
        dispatch, bare = asyncio.run(_measure_dispatch(dsn, nats_url))
    value, peer = statistics.median(dispatch), statistics.median(bare)
    tail, peer_tail = percentile(dispatch, 0.99), percentile(bare, 0.99)
    return Measurement(
        id="P7",
        what="a unit is reported, the scheduler decides, the next unit starts",
        value=value,
        unit="s",
        peer=peer,
        peer_name="bare grpc.aio stream round trip",
        goal="<= 2 x, p99 <= 10 x",
        met=value <= 2 * peer and tail <= 10 * peer,
        details={"p99_seconds": tail, "peer_p99_seconds": peer_tail},
    )


async def _measure_dispatch(dsn: str, nats_url: str) -> tuple[list[float], list[float]]:
    port = free_port()
    dispatch: list[float] = []
    bare: list[float] = []
    scripted = ScriptedWorker("w1", [f"127.0.0.1:{port}"])  # type: ignore[abstract]
    async with scripted as worker, _bare_stream() as round_trip:
        with _scheduler(port, dsn, nats_url):
            store = await PostgresEventStore.open(dsn)
            async with Appender(store) as appender:
                worker.script.step_seconds = UNIT_SECONDS
                await _until(lambda: worker.epochs)
                for n in range(ROUNDS):
                    taken = await _run_request(worker, appender, f"r{n}")
                    trips = [await round_trip() for _ in range(STEPS)]
                    # The first of each are warm-up.
                    if n:
                        dispatch += taken
                        bare += trips
            await store.close()
    return dispatch, bare


async def _run_request(worker: ScriptedWorker, appender: Appender, name: str) -> list[float]:
    """Seconds from each denoise unit's report to the start of the next."""
    spec = request(name, model=MODEL, steps=STEPS)
    event = new_event(
        f"evt_{name}", RequestAccepted(spec=spec), EventMetadata(occurred_at=datetime.now(UTC))
    )
    await appender.append(AppendCommand(streams=(StreamAppend(stream_of(name), (event,)),)))
    await _until(lambda: any(f"{name}/write" in batch.unit_ids[0] for _, batch in worker.batches))
    starts = [at for at, batch in worker.batches if f"{name}/denoise" in batch.unit_ids[0]]
    reports = [at for at, unit_id in worker.reports if f"{name}/denoise" in unit_id]
    return [start - report for report, start in zip(reports, starts[1:], strict=False)]


@contextmanager
def _servers(folder: Path) -> Iterator[tuple[str, str]]:
    postgres = PostgresServer(durable=True)
    (folder / "nats").mkdir()
    nats = NatsServer(folder / "nats")
    try:
        postgres.start()
        nats.start()
        asyncio.run(upgrade(postgres.dsn()))
        yield postgres.dsn(), nats.url
    finally:
        nats.process.stop()
        postgres.remove()


@contextmanager
def _scheduler(port: int, dsn: str, nats_url: str) -> Iterator[None]:
    environment = {
        **os.environ,
        "FASTVIDEO_LISTEN": f"127.0.0.1:{port}",
        "FASTVIDEO_POSTGRES_DSN": dsn,
        "FASTVIDEO_NATS_URL": nats_url,
        "FASTVIDEO_MODELS": MODEL,
        "FASTVIDEO_LOG_LEVEL": "warning",
    }
    process = subprocess.Popen([sys.executable, "-m", "fastvideo_scheduler"], env=environment)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


class _Echo(worker_pb2_grpc.WorkerServiceServicer):
    """The server's side of the bare stream."""

    def __init__(self) -> None:
        self.out: asyncio.Queue[worker_pb2.AttachResponse] = asyncio.Queue()
        self.answered = asyncio.Event()
        self.attached = asyncio.Event()

    async def Attach(
        self, request_iterator: AsyncIterator[Any], context: object
    ) -> AsyncIterator[worker_pb2.AttachResponse]:
        reading = asyncio.create_task(self._read(request_iterator))
        try:
            while True:
                yield await self.out.get()
        finally:
            reading.cancel()

    async def _read(self, requests: AsyncIterator[Any]) -> None:
        async for _ in requests:
            self.attached.set()
            self.answered.set()


class _bare_stream:  # noqa: N801 - used as a function
    """A bare stream to another process; gives the function that measures one round trip."""

    async def __aenter__(self) -> Callable[[], Awaitable[float]]:
        self._echo = _Echo()  # type: ignore[abstract]
        self._server = grpc.aio.server()
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(self._echo, self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, __file__, f"127.0.0.1:{port}"
        )
        await self._echo.attached.wait()
        return self._round_trip

    async def __aexit__(self, *error: object) -> None:
        self._process.kill()
        await self._process.wait()
        await self._server.stop(0)

    async def _round_trip(self) -> float:
        # As far apart as units are: a process that sleeps wakes more slowly.
        await asyncio.sleep(UNIT_SECONDS)
        self._echo.answered.clear()
        begun = time.monotonic()
        self._echo.out.put_nowait(worker_pb2.AttachResponse(epoch=1))
        await self._echo.answered.wait()
        return time.monotonic() - begun


async def _answer(address: str) -> None:
    """The client's side of the bare stream: an answer to each message."""
    async with grpc.aio.insecure_channel(address) as channel:
        call = worker_pb2_grpc.WorkerServiceStub(channel).Attach()
        await call.write(worker_pb2.AttachRequest(epoch=1))
        while True:
            await call.read()
            await call.write(worker_pb2.AttachRequest(epoch=1))


async def _until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60.0
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the scheduler does not get on")
        await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(_answer(sys.argv[1]))
