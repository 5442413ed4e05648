"""Verifying a log in Postgres: each kind of damage is named with where it stands."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import asyncpg
import pytest

from fastvideo.events.catalog import new_event
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.reading.inspection import PostgresInspection
from fastvideo.events.reading.verifying import LogFault, Verifier
from fastvideo.events.records import AppendCommand, NewEvent, StreamAppend
from fastvideo.events.types import EventMetadata
from fastvideo.requests.events import RequestProgressed

EVENTS = 40


@dataclass(frozen=True)
class Damaged:
    """A log of forty events in four streams, and a superuser's hand on its tables."""

    dsn: str
    store: PostgresEventStore
    connection: "asyncpg.Connection[asyncpg.Record]"

    async def change(self, *statements: str) -> None:
        """Do what the guards of the tables refuse."""
        await self.connection.execute("SET session_replication_role = replica")
        tables = await self.connection.fetch(
            "SELECT relid::regclass::text AS name FROM pg_partition_tree('events')"
            " UNION SELECT unnest(ARRAY['event_ids', 'archives'])"
        )
        for table in tables:
            await self.connection.execute(
                f"ALTER TABLE {table['name']} DISABLE TRIGGER events_append_only"
                if table["name"].startswith("events")
                else f"ALTER TABLE {table['name']} DISABLE TRIGGER USER"
            )
        for statement in statements:
            await self.connection.execute(statement)
        for table in tables:
            name = table["name"]
            trigger = "events_append_only" if name.startswith("events") else f"{name}_append_only"
            await self.connection.execute(f"ALTER TABLE {name} ENABLE ALWAYS TRIGGER {trigger}")

    async def faults(self, after: dict[int, int] | None = None) -> list[LogFault]:
        """What a verification tells."""
        inspection = await PostgresInspection.open(self.dsn)
        try:
            found: list[LogFault] = []
            async for told in Verifier(inspection).verify(after):
                found += told.faults
                last = told
        finally:
            await inspection.close()
        assert last.complete
        return found


@pytest.fixture
async def log(postgres_dsn: str) -> AsyncIterator[Damaged]:
    """An intact log."""
    store = await PostgresEventStore.open(postgres_dsn)
    connection = await asyncpg.connect(postgres_dsn)
    for number in range(EVENTS):
        metadata = EventMetadata(occurred_at=datetime(2026, 1, 2, tzinfo=UTC))
        event = new_event(f"evt_{number}", RequestProgressed(fraction=0.5), metadata)
        stream = StreamAppend(f"request-r{number % 4}", (event,))
        await store.append(AppendCommand((stream,)))
    yield Damaged(postgres_dsn, store, connection)
    await connection.close()
    await store.close()


def kinds(faults: Sequence[LogFault]) -> set[str]:
    return {fault.kind for fault in faults}


async def test_an_intact_log_has_no_fault(log: Damaged) -> None:
    unknown = NewEvent("evt_new", "ThingHappened", 7, b"\x08\x01")
    await log.store.append(AppendCommand((StreamAppend("thing-1", (unknown,)),)))
    assert await log.faults() == []


async def test_every_forged_payload_is_named(log: Damaged) -> None:
    flip = "UPDATE events SET payload = set_byte(payload, 0, get_byte(payload, 0) # 1)"
    await log.change(f'{flip} WHERE "offset" IN (7, 23)')
    faults = await log.faults()
    assert [(f.kind, f.offset, f.stream_id, f.event_id) for f in faults] == [
        ("payload_digest", 7, "request-r2", "evt_6"),
        ("payload_digest", 23, "request-r2", "evt_22"),
    ]
    # From a position on, what is before it is not looked at.
    assert [f.offset for f in await log.faults({0: 10})] == [23]


async def test_a_payload_that_is_none_is_named(log: Damaged) -> None:
    await log.change(
        "UPDATE events SET payload = '\\xff', payload_sha256 = sha256('\\xff') WHERE \"offset\" = 5"
    )
    (fault,) = await log.faults()
    assert (fault.kind, fault.offset, fault.event_id) == ("unreadable", 5, "evt_4")


async def test_a_lost_event_is_a_gap_in_its_partition_and_its_stream(log: Damaged) -> None:
    await log.change('DELETE FROM events WHERE "offset" = 9')
    faults = await log.faults()
    assert kinds(faults) == {"gap", "stream_version"}
    assert all(fault.offset in (10, 13) for fault in faults)


async def test_a_lost_end_disagrees_with_the_heads(log: Damaged) -> None:
    await log.change('DELETE FROM events WHERE "offset" > 38')
    faults = await log.faults()
    assert kinds(faults) == {"gap", "head"}
    assert {fault.stream_id for fault in faults if fault.kind == "head"} == {
        "",
        "request-r2",
        "request-r3",
    }


async def test_swapped_versions_are_named(log: Damaged) -> None:
    await log.change(
        "UPDATE events SET stream_version = 1003 WHERE stream_id = 'request-r1'"
        " AND stream_version = 3"
    )
    faults = await log.faults()
    assert kinds(faults) == {"stream_version", "head"}
    assert {fault.stream_id for fault in faults} == {"request-r1"}


async def test_an_id_that_is_there_twice_is_named(log: Damaged) -> None:
    await log.change("UPDATE events SET event_id = 'evt_3' WHERE \"offset\" = 20")
    (fault,) = await log.faults()
    assert (fault.kind, fault.offset, fault.event_id) == ("duplicate_id", 20, "evt_3")


async def test_a_time_that_falls_is_named(log: Damaged) -> None:
    await log.change(
        "UPDATE events SET recorded_at = recorded_at - interval '1 hour' WHERE \"offset\" = 30"
    )
    (fault,) = await log.faults()
    assert (fault.kind, fault.offset) == ("recorded_at", 30)


async def test_tables_without_their_guard_are_named(log: Damaged) -> None:
    await log.connection.execute("ALTER TABLE events DISABLE TRIGGER events_append_only")
    await log.connection.execute("GRANT UPDATE, DELETE ON events TO fastvideo_app")
    faults = await log.faults()
    assert kinds(faults) == {"append_only"}
    assert any("UPDATE" in fault.message for fault in faults)
    assert await log.store.head(0) == EVENTS


async def test_many_faults_are_all_told(log: Damaged) -> None:
    flip = "UPDATE events SET payload = set_byte(payload, 0, get_byte(payload, 0) # 1)"
    await log.change(flip)
    faults = await log.faults()
    assert [fault.offset for fault in faults] == list(range(1, EVENTS + 1))
