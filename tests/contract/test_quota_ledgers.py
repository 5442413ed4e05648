"""The ledgers of quotas: in the memory of a gateway, and in Redis for all of them."""

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fastvideo.errors import InvalidField
from fastvideo.requests.tenants import TenantPolicy
from fastvideo_gateway.quotas import shared
from fastvideo_gateway.quotas.memory import MemoryLedger
from fastvideo_gateway.quotas.shared import RedisLedger
from fastvideo_gateway.quotas.types import (
    Accepted,
    Admission,
    Ended,
    Ledger,
    LedgerLost,
    Quota,
    Spent,
)
from tests.plugins.redis import redis_address

HOUR_MS = 3_600_000
EPOCHS = itertools.count(1)
MANY = TenantPolicy()


class Hand:
    """Moves the time of a ledger."""

    def __init__(self) -> None:
        self.now_ms = 10_000 * HOUR_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture(params=["memory", "redis"])
async def ledger(
    request: Any, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Ledger]:
    if request.param == "memory":
        kept: Ledger = MemoryLedger(hand)
        await kept.begin({0: 0}, [])
        yield kept
        return
    # On a busy machine Redis or this process may be late.
    monkeypatch.setattr(shared, "ANSWER_S_MAX", 30.0)
    server = request.getfixturevalue("redis_server")
    everyones = RedisLedger(redis_address(server), next(EPOCHS), hand)
    await everyones.begin({0: 0}, [])
    await everyones.set_filled()
    yield everyones
    await everyones.close()


def asked(name: str, predicted: float = 0.0, tenant: str = "one") -> Admission:
    return Admission(name, tenant, predicted)


async def test_a_minute_has_so_many_requests_and_says_when_there_is_room(
    ledger: Ledger, hand: Hand
) -> None:
    policy = TenantPolicy(requests_per_minute=2)
    assert await ledger.admit(asked("a"), policy) is None
    hand.now_ms += 20_000
    assert await ledger.admit(asked("b"), policy) is None
    assert await ledger.admit(asked("c"), policy) == Spent(Quota.REQUESTS, 40_000)
    assert await ledger.admit(asked("c", tenant="two"), policy) is None
    hand.now_ms += 40_001
    assert await ledger.admit(asked("d"), policy) is None
    assert await ledger.admit(asked("e"), policy) == Spent(Quota.REQUESTS, 19_999)


async def test_what_the_log_tells_is_counted_once(ledger: Ledger, hand: Hand) -> None:
    policy = TenantPolicy(requests_per_minute=2)
    assert await ledger.admit(asked("a"), policy) is None
    told = [Accepted(3, "one", "a", hand.now_ms)]
    for _ in range(3):
        await ledger.take_in(0, 1, 5, told)
    assert await ledger.positions() == {0: 5}
    # Another replica let it in.
    await ledger.take_in(0, 4, 9, [*told, Accepted(7, "one", "b", hand.now_ms)])
    assert await ledger.admit(asked("c"), policy) == Spent(Quota.REQUESTS, 60_000)


async def test_so_many_are_under_way_until_they_end(ledger: Ledger, hand: Hand) -> None:
    policy = TenantPolicy(live_requests_max=2)
    assert await ledger.admit(asked("a"), policy) is None
    assert await ledger.admit(asked("never-stored"), policy) is None
    await ledger.take_in(0, 1, 1, [Accepted(1, "one", "a", hand.now_ms)])
    spent = await ledger.admit(asked("b"), policy)
    assert spent is not None
    assert spent.quota is Quota.LIVE_REQUESTS
    hand.now_ms += 60_000
    assert await ledger.admit(asked("b"), policy) is None
    assert await ledger.admit(asked("c"), policy) is not None
    await ledger.withdraw(asked("b"))
    hand.now_ms += 10 * HOUR_MS
    # What the log has is under way however long it takes.
    assert await ledger.admit(asked("c"), policy) is None
    assert await ledger.admit(asked("d"), policy) is not None
    await ledger.take_in(0, 2, 2, [Ended(2, "one", "a", hand.now_ms, 5.0)])
    assert await ledger.admit(asked("d"), policy) is None


async def test_device_seconds_count_for_an_hour_with_what_is_predicted(
    ledger: Ledger, hand: Hand
) -> None:
    policy = TenantPolicy(device_seconds_per_hour=100.0)
    # Nothing is used: the guess of one alone is not believed.
    assert await ledger.admit(asked("a", 1_000.0), policy) is None
    assert await ledger.admit(asked("b"), policy) == Spent(Quota.DEVICE_SECONDS, 2_000)
    ended_ms = hand.now_ms
    await ledger.take_in(
        0,
        1,
        9,
        [Accepted(1, "one", "a", ended_ms, 60.0), Ended(2, "one", "a", ended_ms, 60.5)],
    )
    assert await ledger.admit(asked("b", 30.0), policy) is None
    assert await ledger.admit(asked("c", 30.0), policy) == Spent(Quota.DEVICE_SECONDS, HOUR_MS)
    await ledger.withdraw(asked("b"))
    assert await ledger.admit(asked("c", 30.0), policy) is None
    await ledger.withdraw(asked("c"))
    hand.now_ms += HOUR_MS - 60_000
    await ledger.take_in(0, 10, 10, [Ended(10, "one", "x", hand.now_ms, 50.0)])
    assert await ledger.admit(asked("d"), policy) == Spent(Quota.DEVICE_SECONDS, 60_000)
    hand.now_ms += 60_000
    assert await ledger.admit(asked("d"), policy) is None


async def test_what_is_larger_than_the_quota_has_room_once_nothing_else_counts(
    ledger: Ledger, hand: Hand
) -> None:
    policy = TenantPolicy(device_seconds_per_hour=100.0)
    for offset, seconds in enumerate((0.1, 0.2, 0.3), start=1):
        await ledger.take_in(
            0, offset, offset, [Ended(offset, "one", f"x{offset}", hand.now_ms, seconds)]
        )
        hand.now_ms += 60_000
    large = asked("large", 1_000.0)
    spent = await ledger.admit(large, policy)
    assert spent == Spent(Quota.DEVICE_SECONDS, HOUR_MS - 60_000)
    hand.now_ms += spent.retry_after_ms
    assert await ledger.admit(large, policy) is None


async def test_what_is_withdrawn_leaves_room(ledger: Ledger) -> None:
    policy = TenantPolicy(requests_per_minute=1, live_requests_max=1)
    assert await ledger.admit(asked("a"), policy) is None
    await ledger.withdraw(asked("a"))
    assert await ledger.admit(asked("b"), policy) is None


async def test_a_ledger_begins_with_what_is_under_way(ledger: Ledger, hand: Hand) -> None:
    if isinstance(ledger, RedisLedger):
        await ledger._client.delete(ledger._prefix + "positions")
    await ledger.begin({0: 40, 1: 7}, [Accepted(0, "one", "old", hand.now_ms - 3 * HOUR_MS)])
    await ledger.set_filled()
    assert await ledger.positions() == {0: 40, 1: 7}
    assert await ledger.admit(asked("a"), TenantPolicy(live_requests_max=1)) is not None
    assert await ledger.admit(asked("a"), TenantPolicy(requests_per_minute=1)) is None
    with pytest.raises(LedgerLost):
        await ledger.take_in(0, 42, 43, [])


def test_what_is_no_redis_is_refused_without_its_password() -> None:
    with pytest.raises(InvalidField) as caught:
        RedisLedger("postgres://user:hunter2@host/0", 1)
    assert "hunter2" not in caught.value.message


async def test_a_limit_of_none_lets_everything_in(ledger: Ledger) -> None:
    for number in range(50):
        assert await ledger.admit(asked(str(number), 1e9), MANY) is None
