"""P5: durable appends, against COPY of the same rows into a bare table with the same indexes."""

import asyncio
import hashlib
import os
import secrets
import statistics
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
from measurement import Measurement

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fastvideo.events.appender import Appender
from fastvideo.events.migrate import upgrade
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.records import AppendCommand, Fence, NewEvent, StreamAppend
from tests.plugins.servers import PostgresServer

IDS = ("P5",)
ROUNDS = 150
WARM_UP = 30
WRITERS = 16
WRITE_SECONDS = 3.0

COLUMNS = (
    "partition",
    "offset",
    "stream_id",
    "stream_version",
    "event_id",
    "type",
    "schema_version",
    "payload",
    "payload_sha256",
    "metadata",
    "fence_epoch",
    "recorded_at",
)

# With an index for each of the things that the log keeps unique.
BARE_TABLE = """
DROP TABLE IF EXISTS bare;
CREATE TABLE bare (LIKE events);
ALTER TABLE bare ADD PRIMARY KEY (partition, "offset"),
    ADD UNIQUE (stream_id, stream_version), ADD UNIQUE (event_id)
"""


@dataclass(frozen=True)
class Figures:
    """Events a second."""

    append: float
    copy: float

    @property
    def ratio(self) -> float:
        return self.append / self.copy


def measure() -> list[Measurement]:
    """Start a durable Postgres of its own and measure."""
    server = PostgresServer(durable=True)
    try:
        server.start()
        return asyncio.run(_measure(server.dsn()))
    finally:
        server.remove()


def event_log_figures(dsn: str) -> dict[str, float]:
    """All figures of P5 over an empty, durable database, events a second."""
    return asyncio.run(_figures(dsn))


async def _measure(dsn: str) -> list[Measurement]:
    figures = await _figures(dsn)
    return [
        Measurement(
            id="P5",
            what="durable append of 100 events, fenced, compare-and-set, gapless",
            value=figures["append_100_per_s"],
            unit="events/s",
            peer=figures["copy_100_per_s"],
            peer_name="COPY",
            goal=">= 70 % of COPY",
            met=figures["append_100_per_s"] >= 0.7 * figures["copy_100_per_s"],
            details=figures,
        ),
        Measurement(
            id="P5",
            what=f"{WRITERS} writers, 10 events an append, group commit",
            value=figures["writers_10_per_s"],
            unit="events/s",
            goal=">= 12,000 events/s",
            met=figures["writers_10_per_s"] >= 12_000,
        ),
    ]


async def _figures(dsn: str) -> dict[str, float]:
    await upgrade(dsn)
    figures: dict[str, float] = {}
    for size, streams in ((100, 1), (100, 4), (500, 4)):
        name = f"{size}" if streams == 1 or size == 500 else f"{size}_in_{streams}_streams"
        result = await _append_against_copy(dsn, size, streams)
        figures[f"append_{name}_per_s"] = result.append
        figures[f"copy_{name}_per_s"] = result.copy
    for size in (1, 10):
        figures[f"writers_{size}_per_s"] = await _many_writers(dsn, size)
    return figures


def _events(count: int) -> tuple[NewEvent, ...]:
    """Events of the size of an executed batch's, with ids that sort by time as real ones do."""
    now = time.time_ns()
    return tuple(
        NewEvent(f"evt_{now + i:026x}", "BatchExecuted", 1, os.urandom(250), os.urandom(120))
        for i in range(count)
    )


async def _append_against_copy(dsn: str, size: int, streams: int) -> Figures:
    store = await PostgresEventStore.open(dsn, connections_max=1)
    lease = await store.acquire_lease("bench", "bench", 120.0)
    assert lease is not None
    bare = await asyncpg.connect(dsn)
    await bare.execute(BARE_TABLE)
    appended, copied, offset = [], [], 0
    for version in range(WARM_UP + ROUNDS):
        # Ten appends to a stream, then the next stream.
        names = [f"request-req_{version // 10:026x}_{size}_{i}_{streams}" for i in range(streams)]
        base = version % 10 * (size // streams)
        events = _events(size)
        start = time.perf_counter()
        await store.append(_command(names, events, base, lease.fence))
        appended.append(time.perf_counter() - start)
        start = time.perf_counter()
        rows = _rows(names, events, base, offset)
        await bare.copy_records_to_table("bare", records=rows, columns=COLUMNS)
        copied.append(time.perf_counter() - start)
        offset += size
    await bare.close()
    await store.close()
    return Figures(
        size / statistics.median(appended[WARM_UP:]), size / statistics.median(copied[WARM_UP:])
    )


def _command(
    names: list[str], events: tuple[NewEvent, ...], base: int, fence: Fence
) -> AppendCommand:
    share = len(events) // len(names)
    return AppendCommand(
        tuple(
            StreamAppend(name, events[i * share : (i + 1) * share], base)
            for i, name in enumerate(names)
        ),
        fence=fence,
    )


def _rows(
    names: list[str], events: tuple[NewEvent, ...], base: int, offset: int
) -> list[tuple[object, ...]]:
    share = len(events) // len(names)
    now = datetime.now(UTC)
    return [
        (
            0,
            offset + i + 1,
            names[i // share],
            base + i % share + 1,
            event.event_id,
            event.type,
            event.schema_version,
            event.payload,
            hashlib.sha256(event.payload).digest(),
            event.metadata,
            1,
            now,
        )
        for i, event in enumerate(events)
    ]


async def _many_writers(dsn: str, size: int) -> float:
    """Events a second of writers who each await their append before the next."""
    store = await PostgresEventStore.open(dsn)
    stop_at = time.perf_counter() + WRITE_SECONDS
    written = 0

    async def write(appender: Appender) -> None:
        nonlocal written
        stream_id = f"request-{secrets.token_hex(8)}"
        version = 0
        while time.perf_counter() < stop_at:
            append = StreamAppend(stream_id, _events_of(stream_id, version, size), version)
            await appender.append(AppendCommand((append,)))
            version += size
            written += size

    async with Appender(store) as appender:
        await asyncio.gather(*(write(appender) for _ in range(WRITERS)))
    seconds = time.perf_counter() - (stop_at - WRITE_SECONDS)
    await store.close()
    return written / seconds


def _events_of(stream_id: str, version: int, size: int) -> tuple[NewEvent, ...]:
    now = time.time_ns()
    return tuple(
        NewEvent(
            f"evt_{now:016x}_{stream_id[-8:]}_{version + i}",
            "BatchExecuted",
            1,
            os.urandom(250),
            os.urandom(120),
        )
        for i in range(size)
    )
