"""What every event store does: append, compare and set, idempotence, order."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import cast

import asyncpg
import pytest

from fastvideo.blobs import open_blobs
from fastvideo.errors import AlreadyExists, Conflict, InvalidField
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.migrate import upgrade
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.records import AppendCommand, StoredEvent, StreamAppend, payload_digest
from fastvideo.events.sealing.keys import MemoryTenantKeys
from fastvideo.events.sealing.seal import Seals
from fastvideo.events.sealing.store import SealedEventStore
from fastvideo.events.seeking import version_before
from fastvideo.events.store import EventStore, partition_of
from tests.contract.archived_store import ArchivedEventStore
from tests.contract.event_store_cases import command, new_event

PARTITIONS = 4


@pytest.fixture(params=["memory", "postgres", "archived", "sealed"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[EventStore]:
    if request.param == "memory":
        yield MemoryEventStore(PARTITIONS)
        return
    if request.param == "sealed":
        yield SealedEventStore(MemoryEventStore(PARTITIONS), Seals(MemoryTenantKeys()))
        return
    dsn = request.getfixturevalue("empty_postgres_dsn")
    await upgrade(dsn, PARTITIONS, range_size=2 if request.param == "archived" else None)
    kind = ArchivedEventStore if request.param == "archived" else PostgresEventStore
    postgres = await kind.open(dsn, archive=open_blobs("memory:///"))
    yield postgres
    await postgres.close()


async def read_all(store: EventStore) -> list[StoredEvent]:
    return [e for p in range(store.partition_count) for e in await store.read_partition(p)]


async def test_an_event_comes_back_as_it_went_in(store: EventStore) -> None:
    event = new_event(bytes(range(256)))
    result = await store.append(AppendCommand((StreamAppend("request-1", (event,)),)))
    (stored,) = await store.read_stream("request-1")
    assert (stored.event_id, stored.type, stored.schema_version, stored.payload) == (
        event.event_id,
        event.type,
        event.schema_version,
        event.payload,
    )
    assert stored.metadata == event.metadata
    assert stored.payload_sha256 == payload_digest(event.payload)
    assert (stored.stream_version, stored.offset, stored.log_epoch) == (1, 1, 1)
    assert stored.partition == partition_of("request-1", PARTITIONS)
    assert stored.recorded_at.tzinfo is not None
    assert result.positions == (stored.position,)
    assert await store.position_of(event.event_id) == stored.position
    assert await store.position_of("evt_unknown") is None


async def test_streams_are_listed_by_the_beginning_of_their_ids(store: EventStore) -> None:
    for stream_id in ("tenant-b", "tenant-é", "tenan", "tenanu-1", "tenant-a", "tenant-b2"):
        await store.append(command(stream_id))
    every = ("tenant-a", "tenant-b", "tenant-b2", "tenant-é")
    assert await store.stream_ids("tenant-") == every
    assert await store.stream_ids("tenant-", "tenant-a", 2) == every[1:3]
    assert await store.stream_ids("tenant-", "tenant-é") == ()


async def test_offsets_are_gapless_in_a_partition_and_versions_in_a_stream(
    store: EventStore,
) -> None:
    for i in range(30):
        await store.append(command(f"request-{i % 7}", count=1 + i % 3))
    heads = await store.heads()
    for partition in range(PARTITIONS):
        events = await store.read_partition(partition)
        assert [e.offset for e in events] == list(range(1, len(events) + 1))
        assert heads[partition] == len(events) == await store.head(partition)
        assert sorted(e.recorded_at for e in events) == [e.recorded_at for e in events]
    for i in range(7):
        stream = await store.read_stream(f"request-{i}")
        assert [e.stream_version for e in stream] == list(range(1, len(stream) + 1))
        assert await store.stream_version(f"request-{i}") == len(stream)


async def test_one_append_spans_streams_and_partitions(store: EventStore) -> None:
    names = [f"thing-{i}" for i in range(12)]
    streams = tuple(StreamAppend(name, (new_event(), new_event())) for name in names)
    result = await store.append(AppendCommand(streams))
    assert [p.stream_id for p in result.positions] == [name for name in names for _ in range(2)]
    assert {p.partition for p in result.positions} == set(range(PARTITIONS))
    assert {e.position for e in await read_all(store)} == set(result.positions)


async def test_reads_take_up_after_a_position_and_stop_at_a_limit(store: EventStore) -> None:
    await store.append(command("request-1", count=10))
    partition = partition_of("request-1", PARTITIONS)
    assert [e.offset for e in await store.read_partition(partition, 3, 4)] == [4, 5, 6, 7]
    assert [e.stream_version for e in await store.read_stream("request-1", 8, 4)] == [9, 10]
    assert await store.read_stream("request-1", 10) == ()
    assert await store.read_stream("request-none") == ()
    assert await store.stream_version("request-none") == 0


@pytest.mark.parametrize(("exists", "expected"), [(0, 1), (2, 0), (2, 1), (2, 3)])
async def test_another_version_than_expected_is_a_conflict_and_changes_nothing(
    store: EventStore, exists: int, expected: int
) -> None:
    if exists:
        await store.append(command("request-1", count=exists))
    other = StreamAppend("request-2", (new_event(),))
    refused = command("request-1", expected_version=expected)
    with pytest.raises(Conflict) as caught:
        await store.append(AppendCommand((other, *refused.streams), idempotency_key="k"))
    assert caught.value.subject == "request-1"
    assert caught.value.attributes["version"] == str(exists)
    assert len(await read_all(store)) == exists
    # Neither the key nor an offset was used up.
    accepted = await store.append(
        AppendCommand(command("request-1", expected_version=exists).streams, idempotency_key="k")
    )
    assert not accepted.repeated
    assert accepted.positions[0].offset == exists + 1


async def test_of_many_writers_at_one_version_one_wins(store: EventStore) -> None:
    results = await asyncio.gather(
        *(store.append(command("request-1", expected_version=0)) for _ in range(8)),
        return_exceptions=True,
    )
    assert sum(isinstance(r, Conflict) for r in results) == 7
    assert await store.stream_version("request-1") == 1


async def test_a_repeated_idempotency_key_gives_the_first_result_and_appends_nothing(
    store: EventStore,
) -> None:
    first = await store.append(command("request-1", idempotency_key="key", result=b"first"))
    again = await store.append(command("request-1", idempotency_key="key", result=b"second"))
    assert (first.repeated, first.result) == (False, b"first")
    assert (again.repeated, again.result, again.positions) == (True, b"first", ())
    assert await store.stream_version("request-1") == 1


async def test_of_many_writers_with_one_key_one_appends(store: EventStore) -> None:
    commands = [
        command("request-1", idempotency_key="key", result=secrets.token_bytes(4)) for _ in range(8)
    ]
    results = await asyncio.gather(*map(store.append, commands))
    assert sum(not r.repeated for r in results) == 1
    assert len({r.result for r in results}) == 1
    assert await store.stream_version("request-1") == 1


async def test_an_event_id_is_accepted_once(store: EventStore) -> None:
    first = command("request-1")
    await store.append(first)
    with pytest.raises(AlreadyExists):
        await store.append(first)
    assert await store.stream_version("request-1") == 1


async def test_many_commands_commit_together(store: EventStore) -> None:
    commands = [command(f"request-{i % 3}", idempotency_key=f"k{i}") for i in range(9)]
    results = await store.append_many(commands)
    for appended, result in zip(commands, results, strict=True):
        (position,) = result.positions
        assert await store.position_of(appended.streams[0].events[0].event_id) == position
    assert [r.positions[0].stream_version for r in results] == [1, 1, 1, 2, 2, 2, 3, 3, 3]


async def test_commands_of_one_stream_chain_their_expected_versions(store: EventStore) -> None:
    await store.append(command("request-1", count=2))
    chained = [command("request-1", 1, 2), command("request-1", 2, 3), command("request-1", 1, 5)]
    results = await store.append_many(chained)
    assert [p.stream_version for r in results for p in r.positions] == [3, 4, 5, 6]


async def test_many_commands_fail_together(store: EventStore) -> None:
    await store.append(command("request-1"))
    with pytest.raises(Conflict):
        await store.append_many([command("request-2"), command("request-1", expected_version=0)])
    with pytest.raises(Conflict):
        await store.append_many([command("request-2", 1, 0), command("request-2", 1, 0)])
    await store.append(command("request-3", idempotency_key="k"))
    with pytest.raises(Conflict) as caught:
        await store.append_many([command("request-2"), command("request-3", idempotency_key="k")])
    assert caught.value.reason == "REPEATED"
    assert await store.stream_version("request-2") == 0


async def test_limits_are_errors_that_name_the_field(store: EventStore) -> None:
    with pytest.raises(InvalidField, match="payload"):
        await store.append(
            AppendCommand((StreamAppend("request-1", (new_event(bytes(2 << 20)),)),))
        )
    with pytest.raises(InvalidField, match="events"):
        await store.append(command("request-1", count=10_001))
    with pytest.raises(InvalidField, match="stream_append"):
        await store.append(AppendCommand((StreamAppend("request-1", ()),)))
    with pytest.raises(InvalidField, match="partition"):
        await store.read_partition(PARTITIONS)


async def test_an_append_of_nothing_is_refused_and_wedges_nothing(store: EventStore) -> None:
    nothing = AppendCommand((StreamAppend("request-1", ()),), idempotency_key="k")
    for commands in ([nothing], [command("request-1"), nothing], [nothing, command("request-2")]):
        with pytest.raises(InvalidField, match="at least one event"):
            await store.append_many(commands)
    assert await store.heads() == dict.fromkeys(range(PARTITIONS), 0)
    # Neither the stream nor the key was taken.
    again = await store.append(command("request-1", expected_version=0, idempotency_key="k"))
    assert [position.stream_version for position in again.positions] == [1]
    assert len(await store.read_stream("request-1")) == 1


async def test_writers_of_crossing_streams_do_not_deadlock(store: EventStore) -> None:
    names = [f"thing-{i}" for i in range(8)]

    async def write(order: list[str]) -> None:
        for _ in range(10):
            streams = tuple(StreamAppend(name, (new_event(),)) for name in order)
            await store.append(AppendCommand(streams))

    await asyncio.gather(write(names), write(names[::-1]), write(names[4:] + names[:4]))
    assert [await store.stream_version(name) for name in names] == [30] * 8


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET type = 'Forged'",
        "DELETE FROM events",
        "TRUNCATE events",
        "UPDATE events SET type = 'Forged' WHERE false",
        "SET session_replication_role = replica; DELETE FROM events",
    ],
)
async def test_the_database_refuses_to_change_an_event_even_for_its_owner(
    postgres_dsn: str, statement: str
) -> None:
    store = await PostgresEventStore.open(postgres_dsn)
    await store.append(command("request-1"))
    owner = await asyncpg.connect(postgres_dsn)
    try:
        with pytest.raises(asyncpg.PostgresError, match="append-only"):
            await owner.execute(statement)
        await owner.execute("RESET ALL; SET ROLE fastvideo_app")
        with pytest.raises(asyncpg.PostgresError, match=r"permission denied|append-only"):
            await owner.execute(statement)
    finally:
        await owner.close()
    assert (await store.read_stream("request-1"))[0].type == "ThingHappened"
    await store.close()


async def test_a_moment_is_found_in_a_stream_by_few_reads(store: EventStore) -> None:
    for _ in range(40):
        await store.append(command("scheduler-0"))
        await store.append(command("request-1"))
    events = await store.read_stream("scheduler-0")
    for event in (events[0], events[1], events[17], events[-1]):
        found = await version_before(store, "scheduler-0", event.recorded_at)
        assert found == sum(other.recorded_at < event.recorded_at for other in events)
    after_all = events[-1].recorded_at + timedelta(seconds=1)
    assert await version_before(store, "scheduler-0", after_all) == 40
    assert await version_before(store, "request-none", after_all) == 0


async def test_finding_a_moment_does_not_read_the_stream(store: EventStore) -> None:
    await store.append(command("scheduler-0", count=1_000))
    (first,) = await store.read_stream("scheduler-0", 0, 1)
    read: list[StoredEvent] = []

    class Counting:
        """The store, with its reads counted."""

        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        async def read_stream(
            self, stream_id: str, after_version: int = 0, limit: int = 1000
        ) -> tuple[StoredEvent, ...]:
            events = await store.read_stream(stream_id, after_version, limit)
            read.extend(events)
            return events

    counting = cast("EventStore", Counting())
    assert await version_before(counting, "scheduler-0", first.recorded_at) == 0
    assert len(read) <= 10
