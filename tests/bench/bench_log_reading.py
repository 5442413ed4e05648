"""P6 and P14 of reading the log: the event index, finding one request's events, verifying.

The log holds what a stack wrote (a committed history), again and again under other ids.
`verify_seconds` and `fill` serve other benchmarks.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from measurement import Measurement, percentile

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fastvideo.events.migrate import upgrade
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.reading.filters import EventFilter
from fastvideo.events.reading.index_postgres import PostgresEventIndex
from fastvideo.events.reading.inspection import PostgresInspection
from fastvideo.events.reading.reader import LogReader
from fastvideo.events.reading.verifying import Verifier
from fastvideo.events.records import AppendCommand, NewEvent, StoredEvent, StreamAppend
from fastvideo.requests.state import STREAM_PREFIX
from tests.contract.histories import files
from tests.plugins.servers import PostgresServer

IDS = ("P6", "P14")
SIZES = (10_000, 100_000, 1_000_000)
READ = 2_000
APPENDED = 5_000
PROBES = 30
HISTORY = "services"


def measure() -> list[Measurement]:
    """Fill a log up to each size and read it."""
    server = PostgresServer()
    try:
        server.start()
        asyncio.run(upgrade(server.dsn()))
        figures = {size: asyncio.run(log_figures(server.dsn(), size)) for size in SIZES}
    finally:
        server.remove()
    last, first = figures[SIZES[-1]], figures[SIZES[0]]
    return [
        Measurement(
            id="P6",
            what=f"event index of {SIZES[-1]:,} events",
            value=last["index_per_s"],
            unit="events/s",
            peer=last["read_per_s"],
            peer_name="reading the rows",
            goal=">= 50,000 events/s, and >= 50 % of reading",
            met=last["index_per_s"] >= 50_000,
            details={f"{name}_{size}": v for size, f in figures.items() for name, v in f.items()},
        ),
        Measurement(
            id="P14",
            what=f"one request's events in a log of {SIZES[-1]:,}",
            value=last["find_s"],
            unit="s",
            peer=first["find_s"],
            peer_name=f"log of {SIZES[0]:,}",
            goal="<= 1.5 x",
            met=last["find_s"] <= 1.5 * first["find_s"],
        ),
        Measurement(
            id="P14",
            what=f"verify a log of {SIZES[-1]:,} events",
            value=last["verify_per_s"],
            unit="events/s",
            peer=first["verify_per_s"],
            peer_name=f"log of {SIZES[0]:,}",
            goal=">= 0.67 x",
            met=last["verify_per_s"] >= first["verify_per_s"] / 1.5,
        ),
    ]


async def log_figures(dsn: str, events: int) -> dict[str, float]:
    """Grow the log to so many events and read it in every way; figures by name."""
    store = await PostgresEventStore.open(dsn)
    index = await PostgresEventIndex.open(dsn, await store.log_epoch())
    try:
        await fill(store, events)
        applied, read, indexed = await _take_in(store, index)
        reader = LogReader(store, index)
        found = [await _seconds_of_finding(reader, stored) for stored in await _requests(store)]
        return {
            "index_per_s": indexed / applied,
            "read_per_s": indexed / read,
            "find_s": statistics.median(found),
            "find_s_p99": percentile(found, 0.99),
            "verify_per_s": events / await verify_seconds(dsn),
        }
    finally:
        await index.close()
        await store.close()


async def verify_seconds(dsn: str) -> float:
    """Seconds of verifying the log, which must be as it must be."""
    inspection = await PostgresInspection.open(dsn)
    try:
        async for told in Verifier(inspection).verify():
            assert not told.faults, told.faults[:3]
            seconds = told.seconds
    finally:
        await inspection.close()
    return seconds


async def fill(store: PostgresEventStore, events: int) -> None:
    """Append until the log has at least so many events, in several partitions if it has them."""
    size = sum((await store.heads()).values())
    copy = size // 100
    batch: list[AppendCommand] = []
    pending = 0
    history = files.read(HISTORY)
    while size < events:
        copy += 1
        for command in _copy(history, copy):
            batch.append(command)
            pending += len(command.streams[0].events)
            if pending >= APPENDED:
                await store.append_many(batch)
                size, pending, batch = size + pending, 0, []
    if batch:
        await store.append_many(batch)


def _copy(history: list[StoredEvent], number: int) -> list[AppendCommand]:
    """The history under other ids of the same length; the shard's stream goes on."""
    names = {
        stored.stream_id.removeprefix(STREAM_PREFIX).encode()
        for stored in history
        if stored.stream_id.startswith(STREAM_PREFIX)
    }
    mark = f"{number:07d}".encode()
    fresh = {name: name[: -len(mark)] + mark for name in names}
    # Two that differ in their endings alone stay apart.
    fresh = {
        name: new[:-9] + f"{place:02d}".encode() + mark
        for place, (name, new) in enumerate(sorted(fresh.items()))
    }

    def renamed(data: bytes) -> bytes:
        for old, new in fresh.items():
            data = data.replace(old, new)
        return data

    commands: list[AppendCommand] = []
    for stored in history:
        stream_id = renamed(stored.stream_id.encode()).decode()
        if stream_id == stored.stream_id and not stream_id.startswith("scheduler-"):
            stream_id = f"{stream_id}-{number}"
        event = NewEvent(
            f"{stored.event_id}-{number}",
            stored.type,
            stored.schema_version,
            renamed(stored.payload),
            renamed(stored.metadata),
        )
        last = commands[-1].streams[0] if commands else None
        if last is not None and last.stream_id == stream_id:
            stream = replace(last, events=(*last.events, event))
            commands[-1] = AppendCommand((stream,))
        else:
            commands.append(AppendCommand((StreamAppend(stream_id, (event,)),)))
    return commands


async def _take_in(
    store: PostgresEventStore, index: PostgresEventIndex
) -> tuple[float, float, int]:
    """Seconds of the index and of reading alone, over the same events."""
    applied = read = 0.0
    count = 0
    async for events, seconds in _batches(store, index):
        read += seconds
        count += len(events)
        begun = time.perf_counter()
        await index.apply(events)
        applied += time.perf_counter() - begun
    return applied, read, count


async def _batches(
    store: PostgresEventStore, index: PostgresEventIndex
) -> AsyncIterator[tuple[tuple[StoredEvent, ...], float]]:
    positions = await index.positions()
    for partition in range(store.partition_count):
        offset = positions.get(partition, 0)
        while True:
            begun = time.perf_counter()
            events = await store.read_partition(partition, offset, READ)
            seconds = time.perf_counter() - begun
            if not events:
                break
            offset = events[-1].offset
            yield events, seconds


async def _requests(store: PostgresEventStore) -> list[StoredEvent]:
    """Events of requests from all over the log."""
    found: list[StoredEvent] = []
    for partition, head in (await store.heads()).items():
        for place in range(PROBES):
            offset = head * place // PROBES
            events = await store.read_partition(partition, offset, 50)
            found += [s for s in events if s.stream_id.startswith(STREAM_PREFIX)][:1]
    return found


async def _seconds_of_finding(reader: LogReader, stored: StoredEvent) -> float:
    request_id = stored.stream_id.removeprefix(STREAM_PREFIX)
    begun = time.perf_counter()
    page = await reader.read_log(EventFilter(request_ids=(request_id,)), page_size=200)
    seconds = time.perf_counter() - begun
    # It begins with the acceptance, and a long one has more pages.
    assert page.entries[0].stream_id == stored.stream_id
    return seconds


if __name__ == "__main__":
    for measured in measure():
        print(measured)  # noqa: T201
