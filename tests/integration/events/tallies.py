"""A small projection for tests: how many events each stream has."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final

from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.postgres_pool import Connection
from fastvideo.events.projections.postgres import Layout, PostgresProjection
from fastvideo.events.projections.projector import Projector
from fastvideo.events.projections.rebuild import RebuildOptions, rebuild
from fastvideo.events.projections.report import RebuildReport
from fastvideo.events.records import StoredEvent
from tests.plugins.waiting import running

LAYOUT: Final = Layout(
    schema="tallies",
    version=3,
    statements=(
        """
        CREATE TABLE {schema}.tallies (
            stream_id text COLLATE "C" NOT NULL PRIMARY KEY,
            events bigint NOT NULL,
            last_event_id text NOT NULL
        )
        """,
    ),
)

_ADD: Final = """
INSERT INTO tallies AS t VALUES ($1, $2, $3)
    ON CONFLICT (stream_id) DO UPDATE
        SET events = t.events + excluded.events, last_event_id = excluded.last_event_id
"""


class Tallies(PostgresProjection):
    """Counts events by stream."""

    layout = LAYOUT

    async def _take_in(self, connection: Connection, events: Sequence[StoredEvent]) -> None:
        last = {stored.stream_id: stored.event_id for stored in events}
        counts = Counter(stored.stream_id for stored in events)
        await connection.executemany(
            _ADD, [(name, counts[name], last[name]) for name in sorted(last)]
        )

    async def read(self) -> Mapping[str, int]:
        """Stream to its count."""
        async with self._pool.connection() as connection:
            rows = await connection.fetch("SELECT stream_id, events FROM tallies")
        return {row["stream_id"]: row["events"] for row in rows}


@asynccontextmanager
async def followed(dsn: str) -> AsyncIterator[tuple[Tallies, Projector]]:
    """The projection as a service has it: open, and fed from the log."""
    store = await PostgresEventStore.open(dsn)
    tallies = await Tallies.open(dsn, await store.log_epoch())
    projector = Projector(store, tallies)
    try:
        async with running(projector.run()):
            yield tallies, projector
    finally:
        await tallies.close()
        await store.close()


async def rebuilt(dsn: str, options: RebuildOptions | None = None) -> RebuildReport:
    """The report of a whole rebuild."""
    store = await PostgresEventStore.open(dsn)
    try:
        found: object = None
        async with aclosing(rebuild(dsn, store, Tallies, options or RebuildOptions())) as steps:
            async for step in steps:
                found = step
    finally:
        await store.close()
    assert isinstance(found, RebuildReport)
    return found


async def _stall(dsn: str) -> None:
    """Begin a rebuild, say so, and go no further."""
    store = await PostgresEventStore.open(dsn)
    async with aclosing(rebuild(dsn, store, Tallies, RebuildOptions())) as steps:
        async for _ in steps:
            sys.stdout.write("building\n")
            sys.stdout.flush()
            await asyncio.sleep(600.0)


if __name__ == "__main__":
    asyncio.run(_stall(sys.argv[1]))
