"""P6: a log of a million events, its projections filled and rebuilt, verified, and read.

    FASTVIDEO_BENCH_EVENTS=50000 python tests/bench/run.py P6
    python tests/bench/bench_million.py [EVENTS]

The peer of every fold is reading the same rows with the same store and doing nothing.
"""

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final

from measurement import Measurement

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import long_log

from fastvideo.events.migrate import upgrade
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.projections.postgres import PostgresProjection
from fastvideo.events.projections.projector import Projector
from fastvideo.events.projections.rebuild import RebuildOptions, rebuild
from fastvideo.events.projections.report import RebuildPhase, RebuildReport
from fastvideo.events.reading.filters import EventFilter
from fastvideo.events.reading.index_postgres import PostgresEventIndex
from fastvideo.events.reading.inspection import PostgresInspection
from fastvideo.events.reading.reader import LogReader
from fastvideo.events.reading.verifying import Verifier
from fastvideo.requests.state import stream_of
from fastvideo.rpc.identity import DEFAULT_TENANT
from fastvideo_gateway.behaviors_postgres import PostgresBehaviors
from fastvideo_gateway.index import ListQuery
from fastvideo_gateway.index_postgres import PostgresIndex
from fastvideo_sessions.index_postgres import PostgresIndex as PostgresSessions
from tests.plugins.servers import PostgresServer

IDS = ("P6",)
EVENTS: Final = int(os.environ.get("FASTVIDEO_BENCH_EVENTS", "1_000_000"))
PROJECTIONS: Final[tuple[type[PostgresProjection], ...]] = (
    PostgresIndex,
    PostgresSessions,
    PostgresEventIndex,
    PostgresBehaviors,
)
READ_MAX: Final = 10_000
PAGES: Final = 50
RATE_GOAL: Final = 50_000


def measure(events: int = EVENTS) -> list[Measurement]:
    """Write the log once, and measure everything on it."""
    server = PostgresServer()
    try:
        server.start()
        asyncio.run(upgrade(server.dsn()))
        return asyncio.run(_measure(server.dsn(), events))
    finally:
        server.remove()


async def _measure(dsn: str, wanted: int) -> list[Measurement]:
    store = await PostgresEventStore.open(dsn)
    try:
        begun = time.perf_counter()
        events = await long_log.write(store, wanted)
        written = time.perf_counter() - begun
        measurements = []
        for projection in PROJECTIONS:
            measurements.append(await _rebuilt(dsn, store, projection, events))
        measurements.append(await _verified(dsn, events))
        measurements.append(await _paged(dsn, store, events))
    finally:
        await store.close()
    measurements[0].details["write_events_per_second"] = events / written
    return measurements


async def _rebuilt(
    dsn: str, store: PostgresEventStore, projection: type[PostgresProjection], events: int
) -> Measurement:
    """Filled as a service fills it, then rebuilt beside and compared; reads before and after."""
    name = projection.layout.schema
    reads = [await _read(store)]
    filling = await _fill(dsn, store, projection)
    building = 0.0
    report: RebuildReport | None = None
    options = RebuildOptions()
    async with aclosing(rebuild(dsn, store, projection, options)) as steps:
        async for step in steps:
            if isinstance(step, RebuildReport):
                report = step
            elif step.phase is RebuildPhase.COMPARING:
                building = step.seconds
    assert report is not None
    assert report.equal, report
    assert report.swapped
    reads.append(await _read(store))
    rate, peer = events / building, events / statistics.median(reads)
    return Measurement(
        id="P6",
        what=f"rebuild of the projection {name}, {events:,} events",
        value=rate,
        unit="events/s",
        peer=peer,
        peer_name="reading the same rows and doing nothing",
        goal=f">= 50 % of the peer and >= {RATE_GOAL:,} events/s",
        met=rate >= 0.5 * peer and rate >= RATE_GOAL,
        note=f"{name}: compared by digest and swapped in, {report.seconds:.1f} s in all",
        details={
            "events": float(events),
            "rows": float(sum(table.rows_built for table in report.tables)),
            "seconds_with_comparison_and_swap": report.seconds,
            "fill_events_per_second": events / filling,
        },
    )


async def _read(store: PostgresEventStore) -> float:
    begun = time.perf_counter()
    cursor = 0
    while events := await store.read_partition(0, cursor, READ_MAX):
        cursor = events[-1].offset
    return time.perf_counter() - begun


async def _fill(dsn: str, store: PostgresEventStore, projection: type[PostgresProjection]) -> float:
    rows = await projection.open(dsn, await store.log_epoch())
    try:
        begun = time.perf_counter()
        projector = Projector(store, rows)
        following = asyncio.create_task(projector.run())
        await projector.reached(await store.heads())
        seconds = time.perf_counter() - begun
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    finally:
        await rows.close()
    return seconds


async def _verified(dsn: str, events: int) -> Measurement:
    inspection = await PostgresInspection.open(dsn)
    try:
        begun = time.perf_counter()
        faults = 0
        async with aclosing(Verifier(inspection).verify()) as steps:
            async for step in steps:
                faults += len(step.faults)
        seconds = time.perf_counter() - begun
    finally:
        await inspection.close()
    assert faults == 0
    return Measurement(
        id="P6",
        what=f"log verify, {events:,} events",
        value=events / seconds,
        unit="events/s",
        goal="usable",
        details={"seconds": seconds},
    )


async def _paged(dsn: str, store: PostgresEventStore, events: int) -> Measurement:
    """What the page asks for: a list, a request's events by stream and by the index."""
    epoch = await store.log_epoch()
    requests = await PostgresIndex.open(dsn, epoch)
    index = await PostgresEventIndex.open(dsn, epoch)
    reader = LogReader(store, index)
    ids = long_log.request_ids(0) + long_log.request_ids(max(0, events // 500))

    async def by_index(n: int) -> Sequence[object]:
        wanted = EventFilter(request_ids=(ids[n % len(ids)],))
        return (await reader.read_log(wanted, page_size=200)).entries

    async def by_stream(n: int) -> Sequence[object]:
        return (await reader.read_stream(stream_of(ids[n % len(ids)]))).entries

    async def listed(_: int) -> Sequence[object]:
        return await requests.list_requests(ListQuery(tenant_id=DEFAULT_TENANT, limit=51))

    try:
        details = {
            "list_seconds": await _median(listed),
            "request_events_by_index_seconds": await _median(by_index),
            "request_events_by_stream_seconds": await _median(by_stream),
        }
    finally:
        await requests.close()
        await index.close()
    return Measurement(
        id="P6",
        what=f"a list and one request's events, {events:,} events",
        value=sum(details.values()),
        unit="s",
        goal="usable",
        details=details,
    )


async def _median(ask: Callable[[int], Awaitable[Sequence[object]]]) -> float:
    samples = []
    for n in range(PAGES):
        begun = time.perf_counter()
        assert await ask(n)
        samples.append(time.perf_counter() - begun)
    return statistics.median(samples)


if __name__ == "__main__":
    for measurement in measure(int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS):
        sys.stdout.write(f"{measurement}\n")
