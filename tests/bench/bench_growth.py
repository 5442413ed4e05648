"""P14: what a request costs as the queue and the log grow.

The queue: a real scheduler process with its log, and a worker here whose units sleep; all requests
are accepted at once. What counts is the time in which the worker had nothing to run although work
was left, a request, and how long the worker waits from a report to its next batch. The log: one
append and one read of a request's stream, at each size of the log.
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
from measurement import Measurement, percentile

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench_dispatch import _scheduler, _servers, _until

from fastvideo.events.appender import Appender
from fastvideo.events.catalog import new_event
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.records import AppendCommand, StreamAppend
from fastvideo.events.types import EventMetadata
from fastvideo.requests.events import RequestAccepted, RequestLogged
from fastvideo.requests.state import stream_of
from tests.integration.scheduler.scripted_worker import MODEL, ScriptedWorker
from tests.plugins.servers import free_port
from tests.unit.scheduling.world import request

IDS = ("P14",)
QUEUED = (1, 10, 100, 1_000)
STEPS = 4
UNIT_SECONDS = 0.004
# 10^7 takes an hour to write: FASTVIDEO_BENCH_LOG_EVENTS=10000000.
LOG_EVENTS_MAX = int(os.environ.get("FASTVIDEO_BENCH_LOG_EVENTS", "1_000_000"))
LOG_SIZES = tuple(size for size in (10**n for n in range(3, 8)) if size <= LOG_EVENTS_MAX)
FILL_EVENTS_PER_APPEND = 2_000
PROBES = 300
FLAT_WITHIN = 1.5


def measure() -> list[Measurement]:
    """Both kinds of growth."""
    return [_queue_growth(), _log_growth()]


# -- the queue ---------------------------------------------------------------------------


def _queue_growth() -> Measurement:
    with tempfile.TemporaryDirectory() as name, _servers(Path(name)) as (dsn, nats_url):
        gaps, idle = asyncio.run(_measure_queues(dsn, nats_url))
    first, last = gaps[QUEUED[0]], gaps[QUEUED[-1]]
    details = {f"gap_seconds_{n}": gap for n, gap in gaps.items()}
    details |= {f"idle_seconds_a_request_{n}": seconds for n, seconds in idle.items()}
    return Measurement(
        id="P14",
        what=f"from a report to the next batch, {QUEUED[-1]} requests queued",
        value=last,
        unit="s",
        peer=first,
        peer_name="1 request",
        goal=f"<= {FLAT_WITHIN} x",
        met=max(gaps.values()) <= FLAT_WITHIN * first,
        details=details,
    )


async def _measure_queues(dsn: str, nats_url: str) -> tuple[dict[int, float], dict[int, float]]:
    port = free_port()
    gaps: dict[int, float] = {}
    idle: dict[int, float] = {}
    address = [f"127.0.0.1:{port}"]
    scripted = ScriptedWorker("w1", address, memory=10_000_000)  # type: ignore[abstract]
    async with scripted as worker:
        with _scheduler(port, dsn, nats_url):
            store = await PostgresEventStore.open(dsn)
            async with Appender(store) as appender:
                worker.script.step_seconds = UNIT_SECONDS
                await _until(lambda: worker.epochs)
                await _run(worker, appender, "warm", 20)
                for n in QUEUED:
                    # Few requests say little, so they come more often.
                    rounds = [
                        await _run(worker, appender, f"q{n}.{k}", n) for k in range(30 // n + 1)
                    ]
                    gaps[n] = statistics.median(gap for each, _ in rounds for gap in each)
                    idle[n] = statistics.median(seconds for _, seconds in rounds)
            await store.close()
    return gaps, idle


async def _run(
    worker: ScriptedWorker, appender: Appender, name: str, count: int
) -> tuple[list[float], float]:
    """Gaps between the worker's batches, and idle seconds a request, of `count` at once."""

    async def submit() -> None:
        await asyncio.gather(*(appender.append(_accepted(f"{name}.{n}")) for n in range(count)))

    return await drained(worker, submit, count)


def _accepted(request_id: str) -> AppendCommand:
    accepted = RequestAccepted(spec=request(request_id, model=MODEL, steps=STEPS))
    about = EventMetadata(occurred_at=datetime.now(UTC))
    event = new_event(f"evt_{request_id}", accepted, about)
    return AppendCommand(streams=(StreamAppend(stream_of(request_id), (event,)),))


async def drained(
    worker: ScriptedWorker, submit: Callable[[], Awaitable[None]], count: int
) -> tuple[list[float], float]:
    """Gaps between the worker's batches, and idle seconds a request, until all are done."""
    batches, released = len(worker.batches), len(worker.released)
    reports = len(worker.reports)
    await submit()
    await _until(lambda: len(worker.released) - released >= count)
    starts = [at for at, batch in worker.batches[batches:] if batch.kind != "artifact_write"]
    ends = [at for at, unit_id in worker.reports[reports:] if "/write" not in unit_id]
    gaps = [start - end for end, start in zip(ends, starts[1:], strict=False)]
    return gaps, sum(gap for gap in gaps if gap > 0) / count


# -- the log -----------------------------------------------------------------------------


def _log_growth() -> Measurement:
    with tempfile.TemporaryDirectory() as name, _servers(Path(name)) as (dsn, _):
        seconds = asyncio.run(_measure_logs(dsn))
    first = seconds[LOG_SIZES[0]]
    return Measurement(
        id="P14",
        what=f"append one event and read its stream, log of {LOG_SIZES[-1]:,} events",
        value=seconds[LOG_SIZES[-1]],
        unit="s",
        peer=first,
        peer_name=f"log of {LOG_SIZES[0]:,}",
        goal=f"<= {FLAT_WITHIN} x",
        met=max(seconds.values()) <= FLAT_WITHIN * first,
        details={f"seconds_{size}": taken for size, taken in seconds.items()},
        note=(
            "Each size is measured once Postgres has settled: filling the log leaves it a "
            "checkpoint and a vacuum, which no log that grew in its own time has behind it"
        ),
    )


async def _measure_logs(dsn: str) -> dict[int, float]:
    store = await PostgresEventStore.open(dsn)
    found: dict[int, float] = {}
    written = 0
    try:
        for size in LOG_SIZES:
            for count in _chunks(size - written, FILL_EVENTS_PER_APPEND):
                await store.append(_command(f"fill{written}", written, count))
                written += count
            await _settle(dsn)
            samples = []
            for probe in range(PROBES):
                name = f"probe{size}.{probe}"
                begun = time.perf_counter()
                await store.append(_command(name, written + probe, 1))
                events = await store.read_stream(name, 0, 10)
                samples.append(time.perf_counter() - begun)
                assert len(events) == 1
            written += PROBES
            found[size] = percentile(samples, 0.5)
    finally:
        await store.close()
    return found


async def _settle(dsn: str) -> None:
    """Do now what Postgres would do behind a bulk load, beside the measurement."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("VACUUM ANALYZE")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()


def _chunks(total: int, most: int) -> Iterable[int]:
    while total > 0:
        yield min(most, total)
        total -= most


def _command(stream: str, first: int, count: int) -> AppendCommand:
    about = EventMetadata(occurred_at=datetime.now(UTC))
    logged = RequestLogged(level="info", message="a log that grows", attempt=1)
    events = [new_event(f"evt_{first + n}_{stream}", logged, about) for n in range(count)]
    return AppendCommand(streams=(StreamAppend(stream, tuple(events)),))
