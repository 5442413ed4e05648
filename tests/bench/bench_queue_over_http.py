"""P14: what a request costs at the HTTP door as the queue grows.

A real gateway and a real scheduler, processes of their own over real Postgres and NATS, and a
worker here whose units sleep. It holds still while requests are posted one after another, and
while the last of them and the list are asked for; then it works them off. The clients are another
process.
"""

import asyncio
import json
import statistics
import tempfile
from pathlib import Path

from bench_dispatch import _scheduler, _servers, _until
from bench_growth import FLAT_WITHIN, QUEUED, UNIT_SECONDS, drained
from door_processes import queue
from gateway_process import RunningGateway, gateway_process
from measurement import Measurement

from tests.integration.scheduler.scripted_worker import MODEL, ScriptedWorker
from tests.plugins.servers import free_port

IDS = ("P14",)
# With few requests queued.
ROUNDS = 10
# The last so many posts are those that came when the queue was long.
SAMPLES = 30
WARM_UP = 20
BODY = json.dumps({"model": MODEL, "prompt": "a red three", "num_inference_steps": 4, "seed": 1})

PARTS = {
    "post": "POST /v1/videos",
    "get": "GET /v1/videos/{id}",
    "list": "GET /v1/videos",
    "gap": "from a report to the next batch, posted over HTTP",
}


def measure() -> list[Measurement]:
    """Each length of the queue."""
    with (
        tempfile.TemporaryDirectory() as name,
        _servers(Path(name)) as (dsn, nats_url),
        gateway_process(dsn, nats_url) as gateway,
    ):
        costs = asyncio.run(_measure(dsn, nats_url, gateway))
    return [_measurement(part, costs) for part in PARTS]


def _measurement(part: str, costs: dict[int, dict[str, float]]) -> Measurement:
    seconds = {n: cost[part] for n, cost in costs.items()}
    first = seconds[QUEUED[0]]
    return Measurement(
        id="P14",
        what=f"{PARTS[part]}, {QUEUED[-1]} requests queued",
        value=seconds[QUEUED[-1]],
        unit="s",
        peer=first,
        peer_name=f"{QUEUED[0]} request",
        goal=f"<= {FLAT_WITHIN} x",
        met=max(seconds.values()) <= FLAT_WITHIN * first,
        details={f"seconds_{n}": taken for n, taken in seconds.items()},
    )


async def _measure(dsn: str, nats_url: str, gateway: RunningGateway) -> dict[int, dict[str, float]]:
    port = free_port()
    address = [f"127.0.0.1:{port}"]
    scripted = ScriptedWorker("w1", address, memory=10_000_000)  # type: ignore[abstract]
    async with scripted as worker:
        with _scheduler(port, dsn, nats_url):
            worker.script.step_seconds = UNIT_SECONDS
            await _until(lambda: worker.epochs)
            await _queued(worker, gateway, WARM_UP, rounds=1)
            return {
                # Few requests say little, so they come more often.
                n: await _queued(worker, gateway, n, rounds=max(1, ROUNDS // n))
                for n in QUEUED
            }


async def _queued(
    worker: ScriptedWorker, gateway: RunningGateway, count: int, rounds: int
) -> dict[str, float]:
    taken: dict[str, list[float]] = {part: [] for part in PARTS}

    async def submit() -> None:
        worker.script.go.clear()
        told = await asyncio.to_thread(queue, gateway.http, BODY, count, SAMPLES)
        for part, seconds in told.items():
            taken[part] += seconds
        worker.script.go.set()

    for _ in range(rounds):
        gaps, _ = await drained(worker, submit, count)
        taken["gap"] += gaps
    return {part: statistics.median(seconds) for part, seconds in taken.items()}


if __name__ == "__main__":
    for measured in measure():
        print(measured)  # noqa: T201
