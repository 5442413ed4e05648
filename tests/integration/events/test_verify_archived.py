"""Verifying a log of which ranges are archived, in several partitions."""

import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import pytest

from fastvideo.blobs import open_blobs
from fastvideo.events.archive import format as archive_format
from fastvideo.events.archive.checks import StoredArchiveChecks
from fastvideo.events.catalog import new_event
from fastvideo.events.migrate import upgrade
from fastvideo.events.postgres_pool import PostgresPool
from fastvideo.events.reading.filters import EventFilter
from fastvideo.events.reading.inspection import PostgresInspection
from fastvideo.events.reading.reader import LogReader
from fastvideo.events.reading.verifying import LogFault, Verifier
from fastvideo.events.records import AppendCommand, LogLimits, StreamAppend, payload_digest
from fastvideo.events.types import EventMetadata
from fastvideo.requests.events import RequestProgressed
from tests.contract.archived_store import ArchivedEventStore

PARTITIONS = 3
EVENTS = 200


@dataclass(frozen=True)
class Archived:
    """A log that was archived as far as that is possible."""

    dsn: str
    folder: Path
    store: ArchivedEventStore

    async def verify(self) -> tuple[int, list[LogFault]]:
        """How many events were checked in the database, and all faults."""
        inspection = await PostgresInspection.open(self.dsn)
        faults: list[LogFault] = []
        try:
            async for told in Verifier(inspection, [StoredArchiveChecks(self.store)]).verify():
                faults += told.faults
                checked = told.events_checked
        finally:
            await inspection.close()
        return checked, faults


@pytest.fixture
async def log(empty_postgres_dsn: str, tmp_path: Path) -> AsyncIterator[Archived]:
    await upgrade(empty_postgres_dsn, PARTITIONS, range_size=16)
    pool = await PostgresPool.open(empty_postgres_dsn)
    store = ArchivedEventStore(pool, PARTITIONS, LogLimits(), open_blobs(tmp_path.as_uri()))
    for number in range(EVENTS):
        metadata = EventMetadata(occurred_at=datetime(2026, 1, 2, tzinfo=UTC))
        event = new_event(f"evt_{number}", RequestProgressed(fraction=0.5), metadata)
        await store.append(AppendCommand((StreamAppend(f"request-r{number % 7}", (event,)),)))
    assert await store.archive_all() > 3
    yield Archived(empty_postgres_dsn, tmp_path, store)
    await store.close()


async def test_an_archived_log_is_as_it_must_be(log: Archived) -> None:
    checked, faults = await log.verify()
    assert faults == []
    assert 0 < checked < EVENTS


async def test_a_forged_archive_is_named(log: Archived) -> None:
    victim = max((path for path in log.folder.rglob("*") if path.is_file()), key=lambda p: p.name)
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(bytes(data))
    _, faults = await log.verify()
    assert {fault.kind for fault in faults} == {"archive_digest"}
    assert all(fault.offset for fault in faults)


async def test_a_stream_that_does_not_go_on_where_its_archive_ends_is_named(log: Archived) -> None:
    connection = await asyncpg.connect(log.dsn)
    await connection.execute(
        "UPDATE archived_streams SET last_version = last_version - 1"
        " WHERE stream_id = 'request-r3'"
        " AND last_version = (SELECT max(last_version) FROM archived_streams"
        " WHERE stream_id = 'request-r3')"
    )
    await connection.close()
    _, faults = await log.verify()
    assert faults
    assert {fault.stream_id for fault in faults} == {"request-r3"}


async def test_archives_are_checked_beside_the_event_loop(
    log: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = payload_digest
    threads: list[int] = []

    def noted(payload: bytes) -> bytes:
        threads.append(threading.get_ident())
        return digest(payload)

    monkeypatch.setattr(archive_format, "payload_digest", noted)
    await log.verify()
    assert len(threads) > EVENTS // 2
    await log.store.read_partition(0, 0, EVENTS)
    await log.store.read_stream("request-r3")
    assert threading.get_ident() not in threads


async def test_pages_reach_into_archives(log: Archived) -> None:
    reader = LogReader(log.store)
    wanted = EventFilter(request_ids=("r3",))
    page = await reader.read_log(wanted, page_size=1_000)
    assert page.complete
    assert [e.stream_version for e in page.entries] == list(range(1, len(page.entries) + 1))
    assert len(page.entries) == len(range(3, EVENTS, 7))
