"""Connections that are cut, half open or answer too late, between the log and its writers."""

import asyncio
import time
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from fastvideo.errors import Unavailable
from fastvideo.events.appender import Appender
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.events.postgres_pool import PostgresPool
from fastvideo.events.records import LogLimits, StoredEvent
from fastvideo.events.recovery import append_surely
from fastvideo.events.subscription import LogSubscription
from tests.contract.event_store_cases import command
from tests.plugins.proxy import Proxy, proxy_to
from tests.plugins.waiting import eventually, running

CALL_TIMEOUT_S = 2.0
CUT_EVERY_S = 0.05


class Far:
    """A store behind a proxy, and the same store without it."""

    def __init__(self, proxy: Proxy, far: PostgresEventStore, near: PostgresEventStore) -> None:
        self.proxy, self.far, self.near = proxy, far, near


@pytest.fixture
async def log(postgres_dsn: str) -> AsyncIterator[Far]:
    parts = urlsplit(postgres_dsn)
    assert parts.port is not None
    near = await PostgresEventStore.open(postgres_dsn)
    async with proxy_to(parts.port) as proxy:
        dsn = urlunsplit(parts._replace(netloc=f"postgres@127.0.0.1:{proxy.port}"))
        pool = await PostgresPool.open(dsn, call_timeout_s=CALL_TIMEOUT_S, connect_timeout_s=30.0)
        far = PostgresEventStore(pool, near.partition_count, LogLimits())
        yield Far(proxy, far, near)
        proxy.heal()
        await far.close()
    await near.close()


async def test_a_half_open_connection_is_given_up_in_bounded_time(log: Far) -> None:
    await append_surely(log.far, command("s"))
    log.proxy.hold()
    started = time.monotonic()
    with pytest.raises(Unavailable):
        await log.far.append(command("s"))
    # TCP by itself would wait for minutes.
    assert time.monotonic() - started < 30.0
    log.proxy.heal()
    await append_surely(log.far, command("s", idempotency_key="again"))
    assert await log.near.stream_version("s") in (2, 3)


@pytest.mark.parametrize("keyed", [True, False])
async def test_a_commit_whose_answer_is_lost_happens_once(log: Far, keyed: bool) -> None:
    await append_surely(log.far, command("s"))
    log.proxy.swallow_answers()
    asked = command("s", 3, 1, idempotency_key="k" if keyed else None, result=b"r")
    async with Appender(log.far) as appender:
        waiting = asyncio.create_task(appender.append(asked))

        async def committed() -> bool:
            return await log.near.stream_version("s") == 4

        await eventually(committed)
        log.proxy.heal()
        result = await asyncio.wait_for(waiting, 30.0)
    # The first try was committed and nobody heard of it; the second found that out.
    assert log.proxy.swallowed_bytes > 0
    assert (result.repeated, result.result) == (True, b"r")
    assert await log.near.stream_version("s") == 4


async def test_readers_and_writers_survive_a_network_that_is_cut_again_and_again(log: Far) -> None:
    seen: list[StoredEvent] = []

    async def read() -> None:
        async for event in LogSubscription(log.far, {0: 0}):
            seen.append(event)

    appended = 0

    async def disturb() -> None:
        pause_s = CUT_EVERY_S
        while True:
            before = appended
            await asyncio.sleep(pause_s)
            log.proxy.cut()
            # On a busy machine it may take longer to connect.
            pause_s = CUT_EVERY_S if appended > before else 2 * pause_s

    async def all_seen() -> bool:
        return len(seen) == 100

    async with Appender(log.far) as appender, running(read()):
        async with running(disturb()):
            for i in range(100):
                await appender.append(command("s", 1, i, idempotency_key=f"k{i}"))
                appended += 1
        await eventually(all_seen)
    assert await log.near.stream_version("s") == 100
    assert [event.stream_version for event in seen] == list(range(1, 101))


async def test_a_lower_offset_is_never_committed_late(postgres_dsn: str) -> None:
    """One transaction appends and waits; a later one must not become readable before it."""
    store = await PostgresEventStore.open(postgres_dsn)
    slow = await asyncpg.connect(postgres_dsn)
    transaction = slow.transaction()
    await transaction.start()
    # What an append does first, held open.
    await slow.execute("SELECT next_offset FROM partitions WHERE partition = 0 FOR UPDATE")
    fast = asyncio.create_task(store.append(command("fast")))
    await asyncio.sleep(0.3)
    assert not fast.done()
    assert await store.read_partition(0) == ()
    await transaction.rollback()
    result = await asyncio.wait_for(fast, 30.0)
    assert [position.offset for position in result.positions] == [1]
    await slow.close()
    await store.close()
