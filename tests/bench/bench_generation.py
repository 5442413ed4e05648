"""P1, P2, P13: requests through all services against the bare pipeline."""

import asyncio
import itertools
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import grpc
from http_video import HttpVideos
from measurement import Measurement, interleave
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from pipeline import BarePipeline, Job, write_video
from stack import embedded_stack

from fastvideo.client import AsyncClient, Client
from fastvideo.local import StackAddresses
from fastvideo.requests.types import OutputSpec, RequestState, SamplingOverrides

IDS = ("P1", "P2", "P13")
ROUNDS = 9
CONCURRENT = tuple(
    Job(prompt=f"a {colour} {digit} moving {direction}", steps=steps, seed=seed)
    for seed, (colour, digit, direction, steps) in enumerate(
        zip(
            itertools.cycle(("red", "green", "blue", "yellow")),
            ("zero", "one", "two", "three", "four", "five", "six", "seven") * 2,
            itertools.cycle(("left", "right", "up")),
            (20, 10, 20, 15, 20, 12, 20, 20, 10, 20, 16, 20, 20, 14, 20, 20),
            strict=False,
        )
    )
)
VIDEO = OutputSpec(video=True)


def measure() -> list[Measurement]:
    """All three, over stacks of one and of two workers."""
    bare = BarePipeline()
    bare.frames(Job())
    with embedded_stack() as addresses:
        first = _one_warm_request(bare, addresses)
        one_worker = _concurrent(bare, addresses.gateway, workers=1)
    with embedded_stack(workers=2) as addresses:
        two_workers = _concurrent(bare, addresses.gateway, workers=2)
    return [*first, one_worker, two_workers, _tracing()]


def _one_warm_request(bare: BarePipeline, addresses: StackAddresses) -> list[Measurement]:
    """Over gRPC and over HTTP, in turns with the bare pipeline."""
    with (
        tempfile.TemporaryDirectory() as name,
        Client(addresses.gateway) as client,
        closing(HttpVideos(addresses.gateway_http)) as videos,
    ):
        folder = Path(name)
        run = _runner(client, folder)
        over_grpc, over_http, peer = interleave(
            [
                run,
                lambda: write_video(folder, videos.video(Job())),
                lambda: write_video(folder, bare.video(Job())),
            ],
            ROUNDS,
        )
        metrics = run().metrics
    device = metrics.device_seconds if metrics is not None else 0.0
    return [
        Measurement(
            id="P1",
            what=f"one warm request through all services until the mp4 is on disk, {door}",
            value=served,
            unit="s",
            peer=peer,
            peer_name="bare pipeline and the same mp4 encoding",
            goal="<= 0.80",
            met=served <= 0.8 * peer,
            note=f"{device:.3f} s of it on the device; the rest is the platform and the encoder",
            details={"device_seconds": device, "outside_device_seconds": served - device},
        )
        for door, served in (("gRPC", over_grpc), ("HTTP and its events", over_http))
    ]


def _runner(client: Client, folder: Path) -> Callable[[], RequestState]:
    def run() -> RequestState:
        ended = client.generate(Job().prompt, sampling=_sampling(Job()), outputs=VIDEO)
        client.save_artifact(ended.artifacts[0].artifact_id, folder / "served.mp4")
        return ended

    return run


def _concurrent(bare: BarePipeline, gateway: str, *, workers: int) -> Measurement:
    served, peer = interleave(
        [
            lambda: asyncio.run(_all_at_once(gateway)),
            lambda: [bare.frames(job) for job in CONCURRENT],
        ],
        3,
    )
    goal = 2.5 if workers == 1 else 4.0
    return Measurement(
        id="P2",
        what=f"16 concurrent requests of mixed steps and prompts, {workers} worker(s)",
        value=served,
        unit="s",
        peer=peer,
        peer_name="bare pipeline, one after another, without encoding",
        goal=f">= {goal} x throughput",
        met=peer / served >= goal,
        note=f"{workers} worker(s): {peer / served:.2f} x the throughput",
        details={"throughput_ratio": peer / served},
    )


async def _all_at_once(gateway: str) -> None:
    async with AsyncClient(gateway) as client:
        await asyncio.gather(
            *(
                client.generate(job.prompt, sampling=_sampling(job), outputs=VIDEO)
                for job in CONCURRENT
            )
        )


def _sampling(job: Job) -> SamplingOverrides:
    return SamplingOverrides(steps=job.steps, guidance_scale=job.guidance_scale, seed=job.seed)


# -- tracing on against off --------------------------------------------------------------


class _Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Takes spans and counts them."""

    def __init__(self) -> None:
        self.spans = 0
        self._lock = threading.Lock()

    def Export(self, request, context):  # type: ignore[no-untyped-def]
        with self._lock:
            self.spans += sum(
                len(scope.spans) for res in request.resource_spans for scope in res.scope_spans
            )
        return trace_service_pb2.ExportTraceServiceResponse()


@contextmanager
def _receiver() -> Iterator[tuple[_Receiver, str]]:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    receiver = _Receiver()
    add: Any = trace_service_pb2_grpc.add_TraceServiceServicer_to_server
    add(receiver, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield receiver, f"http://127.0.0.1:{port}"
    finally:
        server.stop(1).wait()


# No span is recorded, none is kept.
_UNTRACED = {"FASTVIDEO_TRACE_SAMPLE": "0", "FASTVIDEO_TRACE_FOLDER": ""}


def _tracing() -> Measurement:
    with (
        _receiver() as (receiver, endpoint),
        embedded_stack(environment={"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}) as traced,
        embedded_stack(environment=_UNTRACED) as plain,
        tempfile.TemporaryDirectory() as name,
        Client(traced.gateway) as traced_client,
        Client(plain.gateway) as plain_client,
    ):
        folder = Path(name)
        on, off = interleave(
            [_runner(traced_client, folder), _runner(plain_client, folder)], 2 * ROUNDS
        )
        spans = receiver.spans
    return Measurement(
        id="P13",
        what="one request with traces exported over OTLP",
        value=on,
        unit="s",
        peer=off,
        peer_name="the same with no span recorded",
        goal="<= 1.02",
        met=on <= 1.02 * off,
        note=f"{spans} spans received; events and metrics are on in both, they have no off switch",
        details={"spans": float(spans)},
    )
