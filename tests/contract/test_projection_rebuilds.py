"""Every projection: its rows are a function of the log alone, however it was read."""

from contextlib import aclosing
from itertools import groupby

import pytest

from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.projections.postgres import PostgresProjection
from fastvideo.events.projections.rebuild import RebuildOptions, rebuild
from fastvideo.events.projections.report import RebuildReport
from fastvideo.events.reading.index_postgres import PostgresEventIndex
from fastvideo.events.records import AppendCommand, NewEvent, StreamAppend
from fastvideo_gateway.behaviors_postgres import PostgresBehaviors
from fastvideo_gateway.index_postgres import PostgresIndex as PostgresRequests
from fastvideo_sessions.index_postgres import PostgresIndex as PostgresSessions
from tests.contract.histories import files

PROJECTIONS: tuple[type[PostgresProjection], ...] = (
    PostgresRequests,
    PostgresSessions,
    PostgresEventIndex,
    PostgresBehaviors,
)


@pytest.fixture
async def told(postgres_dsn: str) -> PostgresEventStore:
    """A log that holds a released history."""
    store = await PostgresEventStore.open(postgres_dsn)
    for stream_id, run in groupby(files.read("windows"), key=lambda stored: stored.stream_id):
        events = tuple(
            NewEvent(e.event_id, e.type, e.schema_version, e.payload, e.metadata) for e in run
        )
        await store.append(AppendCommand((StreamAppend(stream_id, events),)))
    return store


@pytest.mark.parametrize("projection", PROJECTIONS, ids=lambda kind: kind.layout.schema)
async def test_rows_are_those_that_the_log_gives(
    projection: type[PostgresProjection], told: PostgresEventStore, postgres_dsn: str
) -> None:
    rows = await projection.open(postgres_dsn, await told.log_epoch())
    # In small pieces of changing size, some of them twice; a rebuild takes large ones.
    cursor, size = 0, 1
    while events := await told.read_partition(0, cursor, size):
        await rows.apply(events)
        await rows.apply(events)
        cursor, size = events[-1].offset, size % 7 + 1
    await rows.close()
    report: object = None
    async with aclosing(rebuild(postgres_dsn, told, projection, RebuildOptions())) as steps:
        async for step in steps:
            report = step
    assert isinstance(report, RebuildReport)
    assert report.equal, report.tables
    assert report.swapped
    assert report.positions == {0: cursor}
    if projection is not PostgresBehaviors:
        assert sum(table.rows_built for table in report.tables) > 0
    await told.close()
