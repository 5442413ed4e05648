"""P17: from an append to the last of 1,000 watchers, over HTTP (SSE) and over gRPC.

The gateway is a process of its own over real Postgres and NATS, and so are the watchers; the
writer is here. Once all watch one request, and once each watches a request of its own and one
append has an event for each. The peer is a bare program that sends as many bytes to as many
streams when it is told to.
"""

import asyncio
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench_dispatch import _servers
from door_clients import Door
from door_processes import BareDoors, bare_doors, messages, watching
from gateway_process import RunningGateway, gateway_process
from measurement import Measurement, percentile

from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.events.appender import Appender
from fastvideo.events.catalog import new_event
from fastvideo.events.open_bus import open_bus
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.records import AppendCommand, StreamAppend
from fastvideo.events.types import EventMetadata, EventPayload
from fastvideo.requests.events import RequestProgressed
from fastvideo.requests.state import stream_of
from tests.integration.gateway.seeding import story_of

IDS = ("P17",)
WATCHERS = 1_000
ROUNDS = 15
PAUSE_S = 0.05
EVENT_BYTES = 350
METHOD = "/fastvideo.gateway.v1.GatewayService/WatchRequest"
IDLE_S = 3.0


class Writer:
    """Appends events from a program without an event loop of its own."""

    def __init__(self, runner: asyncio.Runner, store: PostgresEventStore, appender: Appender):
        self._runner = runner
        self._store = store
        self._appender = appender
        self._number = 0

    def accept(self, ids: Sequence[str]) -> None:
        """Requests with their first event."""
        accepted = [(one, story_of(one, "a red three moving left", 4)[0]) for one in ids]
        self._runner.run(self._store.append(self._command(accepted)))

    def tell(self, ids: Sequence[str]) -> None:
        """One more event of each."""
        progressed = RequestProgressed(fraction=0.5, node_id="denoise", step=10, steps=20)
        command = self._command([(one, progressed) for one in ids])
        self._runner.run(self._appender.append(command))

    def _command(self, payloads: Sequence[tuple[str, EventPayload]]) -> AppendCommand:
        self._number += 1
        about = EventMetadata(occurred_at=datetime.now(UTC))
        return AppendCommand(
            tuple(
                StreamAppend(
                    stream_of(one), (new_event(f"evt_{one}.{self._number}", payload, about),)
                )
                for one, payload in payloads
            )
        )


def measure() -> list[Measurement]:
    """Both doors, watching one request and many."""
    with (
        tempfile.TemporaryDirectory() as name,
        _servers(Path(name)) as (dsn, nats_url),
        bare_doors(EVENT_BYTES) as bare,
        asyncio.Runner() as runner,
    ):
        return list(_measured(runner, dsn, nats_url, bare))


def _measured(
    runner: asyncio.Runner, dsn: str, nats_url: str, bare: BareDoors
) -> Iterator[Measurement]:
    store = runner.run(PostgresEventStore.open(dsn))
    bus = open_bus(nats_url)
    _, wakeups = runner.run(bus.__aenter__())
    appender = Appender(store, wakeups)
    runner.run(appender.__aenter__())
    writer = Writer(runner, store, appender)
    try:
        for kind in ("http", "grpc"):
            peer = _bare_rounds(bare, kind)
            for label, count in (("one request", 1), ("as many requests", WATCHERS)):
                ids = [f"req_{kind}{count}.{number}" for number in range(count)]
                writer.accept(ids)
                # One of its own, so that memory and processor time are those of these watchers.
                with gateway_process(dsn, nats_url) as gateway:
                    yield _fan_out(kind, label, ids, gateway, writer, peer)
    finally:
        runner.run(appender.__aexit__(None, None, None))
        runner.run(bus.__aexit__(None, None, None))
        runner.run(store.close())


def _fan_out(
    kind: str,
    label: str,
    ids: Sequence[str],
    gateway: RunningGateway,
    writer: Writer,
    peer: Sequence[float],
) -> Measurement:
    empty = gateway.memory_bytes()
    with watching(_door(kind, gateway, ids), WATCHERS) as rounds:
        full = gateway.memory_bytes()
        begun = gateway.cpu_seconds()
        time.sleep(IDLE_S)
        idle = (gateway.cpu_seconds() - begun) / IDLE_S
        begun = gateway.cpu_seconds()
        lasts = _rounds(rounds, lambda: writer.tell(ids))
        cpu = gateway.cpu_seconds() - begun
    return Measurement(
        id="P17",
        what=f"append to the last of {WATCHERS} watchers of {label}, {kind}, p50",
        value=percentile(lasts, 0.5),
        unit="s",
        peer=statistics.median(peer),
        peer_name="a bare program's streams",
        goal="reported",
        details={
            "p99_seconds": percentile(lasts, 0.99),
            "peer_p99_seconds": percentile(peer, 0.99),
            "gateway_cpu_seconds_an_event": cpu / (len(lasts) + 1) / WATCHERS,
            "gateway_idle_share_of_a_core": idle,
            "bytes_a_watcher": (full - empty) / WATCHERS,
        },
    )


def _bare_rounds(bare: BareDoors, kind: str) -> list[float]:
    tell = urllib.request.Request(f"http://{bare.http}/tell", method="POST")

    def told() -> None:
        with urllib.request.urlopen(tell, timeout=30.0):
            pass

    with watching(bare.streams(kind), WATCHERS) as rounds:
        return _rounds(rounds, told)


def _rounds(rounds: Iterator[list[float]], tell: Callable[[], None]) -> list[float]:
    """Seconds from before an event to its last receipt, in each round but the first."""
    lasts: list[float] = []
    for _ in range(ROUNDS + 1):
        time.sleep(PAUSE_S)
        begun = time.monotonic()
        tell()
        lasts.append(max(next(rounds)) - begun)
    return lasts[1:]


def _door(kind: str, gateway: RunningGateway, ids: Sequence[str]) -> Door:
    if kind == "http":
        return Door(kind, gateway.http, [f"/v1/videos/{one}/events" for one in ids])
    asked = [gateway_pb2.WatchRequestRequest(request_id=one).SerializeToString() for one in ids]
    return Door(kind, gateway.grpc, messages(asked), METHOD)


if __name__ == "__main__":
    for measured in measure():
        print(measured)  # noqa: T201
