"""A process that archives and dies at a step, as `kill -9` does it: nothing of it is tidied up.

    python killed_archiver.py DSN BLOBS_URI PARTITIONS STEP

A step is a method of the archiver, which is not begun any more; "put", which is the blob store's;
or "after record", where the second archive is recorded already.
"""

import asyncio
import os
import signal
import sys

from fastvideo.blobs import open_blobs
from fastvideo.events.archive import archiver as archiving
from fastvideo.events.archive.archiver import Archiver
from fastvideo.events.archive.archives import ArchiveRecord
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.postgres_pool import PostgresPool

ARCHIVE_EVENTS_MAX = 8
EVERYTHING = 1 << 60


async def die(*_: object) -> None:
    """The last that this process does."""
    os.kill(os.getpid(), signal.SIGKILL)


class DiesLater(Archiver):
    """Records two archives, and dies before it knows that the second is recorded."""

    recorded = 0

    async def _record(self, *arguments: object) -> ArchiveRecord:
        done = await super()._record(*arguments)  # type: ignore[arg-type]
        self.recorded += 1
        if self.recorded == 2:
            await die()
        return done


async def main(dsn: str, uri: str, partitions: int, step: str) -> None:
    """Archive all there is, up to the step."""
    archiving.ARCHIVE_EVENTS_MAX = ARCHIVE_EVENTS_MAX  # type: ignore[misc]
    blobs = open_blobs(uri)
    if step == "put":
        type(blobs).put = die  # type: ignore[method-assign,assignment]
    elif step != "after record":
        setattr(Archiver, step, die)
    store = await PostgresEventStore.open(dsn, archive=blobs)
    pool = await PostgresPool.open(dsn, connections_max=2)
    archiver = (DiesLater if step == "after record" else Archiver)(store, pool, blobs)
    for partition in range(partitions):
        for closed in await archiver.closed_ranges(partition, EVERYTHING):
            async for _ in archiver.archive(closed, ()):
                pass


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
