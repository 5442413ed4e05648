"""P16: how many times a second the gateway says where a request stands, over HTTP and over gRPC.

The gateway is a process of its own over real Postgres and NATS, and so are the clients, which ask
again at once; the requests that they ask about have ended, with the events of 20 steps. The peer
is a bare Starlette and grpc.aio program that answers as many bytes.
"""

import asyncio
import statistics
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from bench_dispatch import _servers
from door_clients import Door
from door_processes import BareDoors, bare_doors, messages, read
from gateway_process import RunningGateway, gateway_process
from measurement import Measurement, percentile

from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.events.catalog import new_event
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.records import AppendCommand, StreamAppend
from fastvideo.events.types import EventMetadata
from fastvideo.requests.state import stream_of
from tests.integration.gateway.seeding import story_of

IDS = ("P16",)
CLIENTS = (1, 16, 64)
REQUESTS = 64
EVENTS_A_REQUEST = 30
SECONDS = 1.0
ROUNDS = 3
ANSWER_BYTES = 700
METHOD = "/fastvideo.gateway.v1.GatewayService/GetRequest"


def measure() -> list[Measurement]:
    """Both doors, with each number of clients."""
    ids = [f"req_read{number:03}" for number in range(REQUESTS)]
    with tempfile.TemporaryDirectory() as name, _servers(Path(name)) as (dsn, nats_url):
        asyncio.run(_seed(dsn, ids))
        with gateway_process(dsn, nats_url) as gateway, bare_doors(ANSWER_BYTES) as bare:
            return [
                _measured(kind, clients, _door(kind, gateway, ids), gateway, bare)
                for kind in ("http", "grpc")
                for clients in CLIENTS
            ]


def _door(kind: str, gateway: RunningGateway, ids: list[str]) -> Door:
    if kind == "http":
        return Door(kind, gateway.http, [f"/v1/videos/{one}" for one in ids])
    asked = [gateway_pb2.GetRequestRequest(request_id=one).SerializeToString() for one in ids]
    return Door(kind, gateway.grpc, messages(asked), METHOD)


def _measured(
    kind: str, clients: int, door: Door, gateway: RunningGateway, bare: BareDoors
) -> Measurement:
    rates: list[float] = []
    peer_rates: list[float] = []
    latencies: list[float] = []
    cpu: list[float] = []
    for _ in range(ROUNDS):
        before = gateway.cpu_seconds()
        rate, taken = read(door, clients, SECONDS)
        cpu.append((gateway.cpu_seconds() - before) / len(taken))
        rates.append(rate)
        latencies += taken
        peer_rates.append(read(bare.reads(kind), clients, SECONDS)[0])
    return Measurement(
        id="P16",
        what=f"status reads over {kind}, {clients} client(s)",
        value=statistics.median(rates),
        unit="reads/s",
        peer=statistics.median(peer_rates),
        peer_name="a bare echo",
        goal="reported",
        details={
            "seconds_p50": percentile(latencies, 0.5),
            "seconds_p99": percentile(latencies, 0.99),
            "gateway_cpu_seconds_a_read": statistics.median(cpu),
        },
    )


async def _seed(dsn: str, ids: list[str]) -> None:
    """Requests that have ended."""
    store = await PostgresEventStore.open(dsn)
    for request_id in ids:
        about = EventMetadata(occurred_at=datetime.now(UTC), request_id=request_id)
        story = story_of(request_id, "a red three moving left", EVENTS_A_REQUEST)
        events = tuple(
            new_event(f"evt_{request_id}.{number}", payload, about)
            for number, payload in enumerate(story)
        )
        await store.append(AppendCommand((StreamAppend(stream_of(request_id), events),)))
    await store.close()


if __name__ == "__main__":
    for measured in measure():
        print(measured)  # noqa: T201
