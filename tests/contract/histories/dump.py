"""Dump the log of a running stack as a history: `dump.py DSN FILE`."""

import asyncio
import sys
from pathlib import Path

from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.records import StoredEvent


async def _events(dsn: str) -> list[StoredEvent]:
    store = await PostgresEventStore.open(dsn, connections_max=1)
    found: list[StoredEvent] = []
    try:
        for partition in range(store.partition_count):
            offset = 0
            while page := await store.read_partition(partition, offset):
                found += page
                offset = page[-1].offset
    finally:
        await store.close()
    return found


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    from tests.contract.histories import files

    files.write(Path(sys.argv[2]), asyncio.run(_events(sys.argv[1])))
