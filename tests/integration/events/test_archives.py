"""What was put away is read as before; who dies while putting away loses nothing."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from fastvideo.blobs import BlobStore, open_blobs
from fastvideo.clock import SystemClock
from fastvideo.errors import Conflict, CorruptLog, FailedPrecondition, FastVideoError, Unavailable
from fastvideo.events.archive import archiver as archiving
from fastvideo.events.archive.archiver import Archiver
from fastvideo.events.archive.archives import ArchiveRecord, check_chain
from fastvideo.events.archive.checks import StoredArchiveChecks
from fastvideo.events.migrate import upgrade
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.postgres_pool import PostgresPool
from fastvideo.events.records import StoredEvent
from fastvideo.events.subscription import LogSubscription
from fastvideo.events.upkeep import UpkeepPolicy, forget_commands, make_room
from tests.contract.event_store_cases import command
from tests.integration.events.killed_archiver import ARCHIVE_EVENTS_MAX, EVERYTHING

PARTITIONS = 2
KILLED = str(Path(__file__).with_name("killed_archiver.py"))
RANGE = 20


@dataclass(frozen=True)
class World:
    """A log of some hundred events in small ranges, and where its archives go."""

    dsn: str
    folder: Path
    store: PostgresEventStore
    pool: PostgresPool
    blobs: BlobStore
    events: tuple[StoredEvent, ...]

    @property
    def archiver(self) -> Archiver:
        return Archiver(self.store, self.pool, self.blobs)

    async def archive_all(self, without: tuple[str, ...] = ()) -> list[ArchiveRecord]:
        records = []
        for partition in range(PARTITIONS):
            for closed in await self.archiver.closed_ranges(partition, EVERYTHING):
                records += [r async for r in self.archiver.archive(closed, without)]
        return records

    async def drop(self, first_offset: int) -> None:
        async with self.pool.connection() as connection:
            await connection.execute("SELECT drop_archived_events(0, $1)", first_offset)

    async def tables(self) -> list[str]:
        connection = await asyncpg.connect(self.dsn)
        rows = await connection.fetch(
            "SELECT tablename FROM pg_tables WHERE tablename ~ '^events_[0-9]+_[0-9]+$'"
        )
        await connection.close()
        return sorted(row["tablename"] for row in rows)


@pytest.fixture
async def world(
    empty_postgres_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    monkeypatch.setattr(archiving, "ARCHIVE_EVENTS_MAX", ARCHIVE_EVENTS_MAX)
    await upgrade(empty_postgres_dsn, PARTITIONS, range_size=RANGE)
    blobs = open_blobs(tmp_path.as_uri())
    store = await PostgresEventStore.open(empty_postgres_dsn, archive=blobs)
    pool = await PostgresPool.open(empty_postgres_dsn, connections_max=2)
    for i in range(90):
        await store.append(command(f"request-{i // 6}", 1 + i % 4))
    events = await everything(store)
    yield World(empty_postgres_dsn, tmp_path, store, pool, blobs, events)
    await pool.close()
    await store.close()


async def everything(store: PostgresEventStore) -> tuple[StoredEvent, ...]:
    partitions = [await store.read_partition(p, limit=10_000) for p in range(PARTITIONS)]
    return tuple(event for events in partitions for event in events)


async def test_an_archived_log_reads_as_before(world: World) -> None:
    records = await world.archive_all()
    assert sum(r.events for r in records) == sum(
        r.last_offset - r.first_offset + 1 for r in records
    )
    assert len(await world.tables()) == PARTITIONS
    connection = await asyncpg.connect(world.dsn)
    left = await connection.fetchval("SELECT count(*) FROM events")
    await connection.close()
    assert left == len(world.events) - sum(r.events for r in records)
    assert left < 2 * RANGE

    assert await everything(world.store) == world.events
    for event in world.events:
        assert await world.store.position_of(event.event_id) == event.position
    for stream_id in {event.stream_id for event in world.events}:
        expected = tuple(e for e in world.events if e.stream_id == stream_id)
        assert await world.store.read_stream(stream_id) == expected
        assert await world.store.read_stream(stream_id, 3, 5) == expected[3:8]
        assert await world.store.read_stream(stream_id, 9, 2) == expected[9:11]
        assert await world.store.stream_version(stream_id) == len(expected)
    for after in range(0, len(world.events) // PARTITIONS, 7):
        expected = tuple(e for e in world.events if e.partition == 0 and e.offset > after)
        assert await world.store.read_partition(0, after, 9) == expected[:9]


async def test_a_subscription_reads_from_the_archive_into_the_table(world: World) -> None:
    await world.archive_all()
    subscription = LogSubscription(world.store, dict.fromkeys(range(PARTITIONS), 0))
    seen = [await anext(subscription) for _ in world.events]
    assert set(seen) == set(world.events)


async def test_archives_are_a_chain_and_their_objects_have_their_digests(world: World) -> None:
    await world.archive_all()
    for partition in range(PARTITIONS):
        records = await world.store.archives.records(partition)
        assert len(records) > 3
        check_chain(records)
        with pytest.raises(CorruptLog, match="archive"):
            check_chain(records[1:])
        for record in records:
            assert record.object == record.sha256.hex()
            assert (await world.blobs.head(record.object)).size_bytes == record.bytes


async def test_a_stream_is_found_without_looking_into_every_archive(world: World) -> None:
    records = await world.archive_all()
    first = next(e for e in world.events if e.partition == 0)
    used = {
        record.object
        for record in records
        for event in world.events
        if event.stream_id == first.stream_id
        and event.partition == record.partition
        and record.first_offset <= event.offset <= record.last_offset
    }
    for record in records:
        if record.object not in used:
            await world.blobs.delete(record.object)
    expected = tuple(e for e in world.events if e.stream_id == first.stream_id)
    assert await world.store.read_stream(first.stream_id) == expected


@pytest.mark.parametrize("step", ["put", "_read_back", "_record", "_drop", "after record"])
async def test_whoever_dies_in_between_loses_nothing_and_the_next_goes_on(
    world: World, step: str
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, KILLED, world.dsn, world.folder.as_uri(), str(PARTITIONS), step
    )
    async with asyncio.timeout(60):
        assert await process.wait() == -signal.SIGKILL
    assert await everything(world.store) == world.events
    await world.archive_all()
    assert len(await world.tables()) == PARTITIONS
    assert await everything(world.store) == world.events
    for partition in range(PARTITIONS):
        check_chain(await world.store.archives.records(partition))


async def test_what_somebody_has_not_read_is_not_archived(world: World) -> None:
    await world.store.save_checkpoint("relay", 0, EVERYTHING)
    await world.store.save_checkpoint("relay", 1, 5)
    with pytest.raises(FailedPrecondition) as caught:
        await world.archive_all()
    assert caught.value.reason == "RANGE_IN_USE"
    assert caught.value.subject == "relay"
    assert caught.value.attributes["offset"] == "5"
    # Partition 0 went away before.
    assert await everything(world.store) == world.events
    assert await world.archive_all(without=("relay",))
    assert await everything(world.store) == world.events


async def test_a_projection_that_is_behind_keeps_a_range(world: World) -> None:
    connection = await asyncpg.connect(world.dsn)
    await connection.execute(
        "CREATE SCHEMA behind AUTHORIZATION fastvideo_app; SET ROLE fastvideo_app; "
        'CREATE TABLE behind.positions (partition integer, "offset" bigint); '
        "INSERT INTO behind.positions VALUES (0, 3), (1, 1000000)"
    )
    await connection.close()
    with pytest.raises(FailedPrecondition) as caught:
        await world.archive_all()
    assert caught.value.subject == "behind"


async def test_what_is_being_filled_stays(world: World) -> None:
    await world.archive_all()
    assert await world.archive_all() == []
    first = (await world.store.archives.records(0))[-1].last_offset + 1
    with pytest.raises(FailedPrecondition, match="not closed"):
        await world.drop(first)


async def test_the_database_drops_nothing_that_is_not_archived(world: World) -> None:
    with pytest.raises(FailedPrecondition, match="not archived"):
        await world.drop(1)
    assert await everything(world.store) == world.events


async def test_two_who_archive_at_once_leave_one_chain(world: World) -> None:
    results = await asyncio.gather(world.archive_all(), world.archive_all(), return_exceptions=True)
    refused = [r for r in results if isinstance(r, BaseException)]
    assert all(isinstance(r, Conflict | FastVideoError) for r in refused)
    await world.archive_all()
    assert await everything(world.store) == world.events
    for partition in range(PARTITIONS):
        check_chain(await world.store.archives.records(partition))


@pytest.mark.parametrize("harm", ["missing", "altered", "cut"])
async def test_an_archive_that_is_not_whole_is_named(world: World, harm: str) -> None:
    records = await world.archive_all()
    record = next(r for r in records if r.partition == 0)
    path = world.folder / "sha256" / record.object[:2] / record.object[2:]
    if harm == "missing":
        path.unlink()
    else:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data if harm == "altered" else data[:-40])
    with pytest.raises(CorruptLog) as caught:
        await world.store.read_partition(0)
    assert (caught.value.reason, caught.value.subject) == ("ARCHIVE", record.name)


async def test_whoever_verifies_is_told_of_each_archive_that_is_not_whole(world: World) -> None:
    records = await world.archive_all()
    checks = StoredArchiveChecks(world.store)
    found = [faults async for faults in checks.archive_faults()]
    assert found == [()] * len(records)
    path = world.folder / "sha256" / records[0].object[:2] / records[0].object[2:]
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    await world.blobs.delete(records[1].object)
    fresh = await PostgresEventStore.open(world.dsn, archive=world.blobs)
    faults = [
        fault async for found in StoredArchiveChecks(fresh).archive_faults() for fault in found
    ]
    await fresh.close()
    assert [(f.kind, f.offset) for f in faults] == [
        ("archive_digest", record.first_offset) for record in records[:2]
    ]


async def test_a_store_that_knows_no_archive_says_so(world: World) -> None:
    await world.archive_all()
    store = await PostgresEventStore.open(world.dsn)
    with pytest.raises(FailedPrecondition) as caught:
        await store.read_partition(0)
    assert caught.value.reason == "ARCHIVE_STORE"
    # What is in the database is read all the same.
    last = await store.head(0)
    assert [e.offset for e in await store.read_partition(0, last - 1)] == [last]
    await store.close()


async def test_a_long_read_delays_the_drop_and_does_not_break_it(world: World) -> None:
    connection = await asyncpg.connect(world.dsn)
    reading = connection.transaction()
    await reading.start()
    await connection.fetchval("SELECT count(*) FROM events")
    with pytest.raises(Unavailable):
        await world.archive_all()
    await reading.rollback()
    await connection.close()
    await world.archive_all()
    assert await everything(world.store) == world.events


async def test_the_offset_of_a_date_is_that_of_the_first_event_behind_it(world: World) -> None:
    (event,) = await world.store.read_partition(0, 30, 1)
    assert await world.archiver.offset_at(0, event.recorded_at) == 31
    after_all = SystemClock().now() + timedelta(hours=1)
    assert await world.archiver.offset_at(0, after_all) == await world.store.head(0) + 1


async def test_room_is_made_ahead(world: World) -> None:
    made = [await make_room(world.pool) for _ in range(3)]
    assert made[-1] == 0
    before = await world.tables()
    await world.store.append(command("request-more", RANGE // 2 - 1))
    assert await world.tables() == before


async def test_idempotency_keys_are_forgotten_by_age(world: World) -> None:
    await world.store.append(command("request-a", idempotency_key="old", result=b"old"))
    connection = await asyncpg.connect(world.dsn)
    await connection.execute("UPDATE commands SET recorded_at = now() - interval '31 days'")
    await connection.close()
    await world.store.append(command("request-b", idempotency_key="new", result=b"new"))
    policy = UpkeepPolicy(keys_per_statement_max=1)
    assert await forget_commands(world.pool, policy) == 1
    assert (await world.store.append(command("request-b", idempotency_key="new"))).repeated
