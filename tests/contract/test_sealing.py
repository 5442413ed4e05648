"""What tenants wrote is sealed below the wrapper and plain above it, until it is erased."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import asyncpg
import pytest

from fastvideo.api.events.v1 import events_pb2
from fastvideo.errors import CorruptLog, FailedPrecondition, InvalidField
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.open_log import LogConfig, open_log
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.postgres_pool import PostgresPool
from fastvideo.events.records import (
    AppendCommand,
    NewEvent,
    StoredEvent,
    StreamAppend,
    payload_digest,
)
from fastvideo.events.sealing.keys import (
    ERASURE_S_MAX,
    CachedTenantKeys,
    MasterKey,
    MemoryTenantKeys,
    PostgresTenantKeys,
    TenantKeys,
)
from fastvideo.events.sealing.seal import Seals
from fastvideo.events.sealing.store import SealedEventStore
from fastvideo.events.store import EventStore
from tests.contract.event_store_cases import command
from tests.contract.sealed_texts import accepted, erased, pushed, remembered

MASTER = MasterKey(bytes(range(32)))
SECRET = "a very recognisable otter on a bicycle"


@dataclass(frozen=True)
class World:
    """A store with seals, and what is below them."""

    store: EventStore
    below: EventStore
    keys: TenantKeys

    async def write(self, stream_id: str, *events: NewEvent) -> None:
        await self.store.append(AppendCommand((StreamAppend(stream_id, events),)))

    async def erase(self, tenant_id: str) -> None:
        await self.keys.erase(tenant_id)
        await self.write(f"tenant-{tenant_id}", erased(tenant_id))
        await self.store.read_stream(f"tenant-{tenant_id}")


@pytest.fixture(params=["memory", "postgres"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "memory":
        below, keys = MemoryEventStore(), MemoryTenantKeys()
        yield World(SealedEventStore(below, Seals(keys)), below, keys)
        return
    dsn = request.getfixturevalue("postgres_dsn")
    store, pool = await PostgresEventStore.open(dsn), await PostgresPool.open(dsn)
    postgres_keys = PostgresTenantKeys(pool, MASTER)
    yield World(SealedEventStore(store, Seals(postgres_keys)), store, postgres_keys)
    await pool.close()
    await store.close()


def texts(stored: StoredEvent) -> list[str]:
    message = events_pb2.RequestAccepted.FromString(stored.payload)
    assert not message.HasField("sealed")
    return [part.text.text for part in message.spec.inputs if part.HasField("text")]


async def test_texts_are_plain_above_and_sealed_below(world: World) -> None:
    event = accepted("acme", SECRET, "")
    await world.write("request-1", event, remembered("acme", SECRET))
    first, second = await world.store.read_stream("request-1")
    assert first.payload == event.payload
    assert events_pb2.SessionUpdated.FromString(second.payload).remembered.prompt == SECRET
    for stored in (
        *await world.below.read_stream("request-1"),
        *await world.below.read_partition(0),
    ):
        assert SECRET.encode() not in stored.payload
        assert payload_digest(stored.payload) == stored.payload_sha256
    assert texts((await world.store.read_partition(0))[0]) == [SECRET, ""]


async def test_texts_that_are_pushed_to_sessions_are_sealed_too(world: World) -> None:
    event = pushed("acme", SECRET)
    await world.write("session-1", event)
    assert (await world.store.read_stream("session-1"))[0].payload == event.payload
    (below,) = await world.below.read_stream("session-1")
    assert SECRET.encode() not in below.payload
    await world.erase("acme")
    (stored,) = await world.store.read_stream("session-1")
    message = events_pb2.SessionTextPushed.FromString(stored.payload)
    assert (message.pushed.text, message.pushed.role) == ("", "context")


async def test_erased_texts_are_empty_and_the_rest_stays(world: World) -> None:
    await world.write("request-1", accepted("acme", SECRET, "blurry"), remembered("acme", SECRET))
    await world.write("request-2", accepted("other", SECRET))
    below = await world.below.read_stream("request-1")
    await world.erase("acme")
    first, second = await world.store.read_stream("request-1")
    assert texts(first) == ["", ""]
    message = events_pb2.RequestAccepted.FromString(first.payload)
    assert message.spec.model_id == "moving-digits"
    assert len(message.spec.inputs) == 4
    assert events_pb2.SessionUpdated.FromString(second.payload).change == "request began"
    assert texts((await world.store.read_stream("request-2"))[0]) == [SECRET]
    assert await world.below.read_stream("request-1") == below
    assert first.position == below[0].position
    assert first.payload_sha256 == below[0].payload_sha256


async def test_a_tenant_that_was_erased_may_come_back_under_another_key(world: World) -> None:
    await world.write("request-1", accepted("acme", SECRET))
    await world.erase("acme")
    await world.erase("acme")
    await world.write("request-2", accepted("acme", "again"))
    assert texts((await world.store.read_stream("request-2"))[0]) == ["again"]
    assert texts((await world.store.read_stream("request-1"))[0]) == [""]
    assert len(await world.keys.erase("acme")) == 2


async def test_content_without_texts_and_other_types_are_left_alone(world: World) -> None:
    event = accepted("acme", "", "")
    await world.write("request-1", event)
    await world.store.append(command("request-2"))
    assert (await world.below.read_stream("request-1"))[0].payload == event.payload
    assert (await world.store.read_stream("request-2"))[0].type == "ThingHappened"


async def test_events_of_before_read_as_they_are(world: World) -> None:
    event = accepted("acme", SECRET)
    await world.below.append(AppendCommand((StreamAppend("request-1", (event,)),)))
    assert texts((await world.store.read_stream("request-1"))[0]) == [SECRET]
    await world.erase("acme")
    assert texts((await world.store.read_stream("request-1"))[0]) == [SECRET]


@pytest.mark.parametrize("moved", ["stream", "event"])
async def test_sealed_content_opens_nowhere_else(world: World, moved: str) -> None:
    await world.write("request-1", accepted("acme", SECRET))
    (stored,) = await world.below.read_stream("request-1")
    other = NewEvent("evt_other", stored.type, 1, stored.payload, stored.metadata)
    if moved == "stream":
        forged = stored._replace(stream_id="request-2")
    else:
        await world.below.append(AppendCommand((StreamAppend("request-1", (other,)),)))
        forged = (await world.below.read_stream("request-1"))[1]
    with pytest.raises(CorruptLog) as caught:
        await Seals(world.keys).open(forged)
    assert caught.value.reason == "SEALED_CONTENT"


async def test_a_key_that_nobody_knows_is_an_error_and_no_erasure(world: World) -> None:
    await world.write("request-1", accepted("acme", SECRET))
    (stored,) = await world.below.read_stream("request-1")
    with pytest.raises(CorruptLog) as caught:
        await Seals(MemoryTenantKeys()).open(stored)
    assert caught.value.reason == "KEY_UNKNOWN"


async def test_what_is_written_after_an_erasure_is_never_lost_with_it(world: World) -> None:
    await world.write("request-1", accepted("acme", SECRET))
    # Another process erases, and this one has not read TenantErased yet.
    await world.keys.erase("acme")
    await world.write("request-2", accepted("acme", SECRET))
    assert texts((await world.store.read_stream("request-2"))[0]) == [SECRET]
    await world.erase("acme")
    assert texts((await world.store.read_stream("request-1"))[0]) == [""]


async def test_several_who_make_a_tenants_key_get_one(world: World) -> None:
    keys = await asyncio.gather(*(world.keys.live("acme") for _ in range(6)))
    assert len(set(keys)) == 1
    assert await world.keys.find(keys[0].key_id) == keys[0]
    assert (await world.keys.live("other")).key != keys[0].key


async def test_a_key_is_kept_for_a_bounded_time_and_dropped_when_told() -> None:
    now = 0.0
    keys = MemoryTenantKeys()
    cached = CachedTenantKeys(keys, lambda: now)
    key = await cached.live("acme")
    assert (await cached.find(key.key_id)).key == key.key
    await keys.erase("acme")
    assert (await cached.find(key.key_id)).key == key.key
    now = ERASURE_S_MAX
    assert (await cached.find(key.key_id)).key is None
    again = await cached.live("acme")
    await keys.erase("acme")
    cached.forget("acme")
    assert (await cached.find(again.key_id)).key is None


async def test_a_log_does_not_open_under_another_master_key(postgres_dsn: str) -> None:
    # With no key made yet, any will do.
    await (await open_log(LogConfig(postgres_dsn, master_key=MasterKey(bytes(32))))).close()
    pool = await PostgresPool.open(postgres_dsn)
    await PostgresTenantKeys(pool, MASTER).live("acme")
    await pool.close()
    await (await open_log(LogConfig(postgres_dsn, master_key=MASTER))).close()
    with pytest.raises(FailedPrecondition, match="FASTVIDEO_MASTER_KEY"):
        await open_log(LogConfig(postgres_dsn, master_key=MasterKey(bytes(32))))


async def test_the_database_keeps_keys_under_the_master_key_alone(postgres_dsn: str) -> None:
    pool = await PostgresPool.open(postgres_dsn)
    key = await PostgresTenantKeys(pool, MASTER).live("acme")
    connection = await asyncpg.connect(postgres_dsn)
    wrapped = await connection.fetchval("SELECT wrapped_key FROM tenant_keys")
    assert key.key is not None
    assert key.key not in wrapped
    with pytest.raises(FailedPrecondition) as caught:
        await PostgresTenantKeys(pool, MasterKey(bytes(32))).find(key.key_id)
    assert (caught.value.reason, caught.value.subject) == ("MASTER_KEY", "FASTVIDEO_MASTER_KEY")
    assert "FASTVIDEO_MASTER_KEY" in caught.value.message
    # A wrapped key is bound to its tenant.
    await connection.execute("UPDATE tenant_keys SET tenant_id = 'other'")
    with pytest.raises(FailedPrecondition):
        await PostgresTenantKeys(pool, MASTER).find(key.key_id)
    await PostgresTenantKeys(pool, MASTER).erase("other")
    assert await connection.fetchval("SELECT wrapped_key FROM tenant_keys") is None
    await connection.close()
    await pool.close()


def test_a_master_key_is_32_bytes_and_never_told() -> None:
    assert MasterKey.parse("00" * 32 + "\n") == MasterKey(bytes(32))
    assert MasterKey.parse("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=") == MasterKey(bytes(32))
    assert "00" not in repr(MasterKey(bytes(32)))
    for wrong in ("secret!", "00" * 31, "zz" * 32, ""):
        with pytest.raises(InvalidField) as caught:
            MasterKey.parse(wrong)
        assert not wrong or wrong not in str(caught.value)
