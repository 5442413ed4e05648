"""Which ledger decides, and what is taken back."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fastvideo.clock import ManualClock
from fastvideo.errors import ResourceExhausted
from fastvideo.events.memory import MemoryEventStore
from fastvideo.requests.tenants import TenantPolicy
from fastvideo.requests.types import RequestSpec
from fastvideo_gateway.quotas.following import UnderWay, UsageSource
from fastvideo_gateway.quotas.keeping import LOCAL, SHARED, KeptQuotas
from fastvideo_gateway.quotas.types import (
    Accepted,
    Admission,
    Change,
    LedgerAway,
    Quota,
    Spent,
)
from tests.unit.scheduling.world import request


class Policies:
    """One policy for all."""

    def __init__(self, policy: TenantPolicy) -> None:
        self.policy = policy

    def policy_of(self, tenant_id: str) -> TenantPolicy:
        return self.policy


class Shared:
    """A ledger that answers as it is told."""

    def __init__(self) -> None:
        self.away = False
        self.spent: Spent | None = None
        self.admitted: list[str] = []
        self.withdrawn: list[str] = []

    async def positions(self) -> Mapping[int, int]:
        return {}

    async def begin(self, positions: Mapping[int, int], live: Sequence[Accepted]) -> None:
        """Nothing is kept."""

    async def take_in(
        self, partition: int, first: int, last: int, changes: Sequence[Change]
    ) -> None:
        """Nothing is kept."""

    async def set_filled(self) -> None:
        """It always is."""

    async def check(self) -> None:
        """It is there."""

    async def admit(self, asked: Admission, policy: TenantPolicy) -> Spent | None:
        if self.away:
            raise LedgerAway
        if self.spent is None:
            self.admitted.append(asked.request_id)
        return self.spent

    async def withdraw(self, asked: Admission) -> None:
        self.withdrawn.append(asked.request_id)


async def nothing(limit: int) -> UnderWay:
    return UnderWay((), {})


def quotas(policy: TenantPolicy, shared: Shared | None) -> KeptQuotas:
    clock = ManualClock(datetime(2026, 1, 2, tzinfo=UTC))
    kept = KeptQuotas(Policies(policy), UsageSource(MemoryEventStore(), nothing, clock), shared)
    if shared is not None:
        kept._shared_is(True)
    return kept


def spec(name: str) -> RequestSpec:
    return replace(request(name), tenant_id="one")


async def is_let_in(kept: KeptQuotas, name: str) -> bool:
    try:
        await kept.admit(spec(name))
    except ResourceExhausted:
        return False
    return True


async def test_a_tenant_without_limits_is_asked_of_nobody() -> None:
    shared = Shared()
    kept = quotas(TenantPolicy(media_ttl_s=5), shared)
    assert await is_let_in(kept, "a")
    await kept.withdraw(spec("a"))
    assert (shared.admitted, shared.withdrawn) == ([], [])


async def test_both_must_have_room_and_a_refusal_is_counted_by_neither() -> None:
    shared = Shared()
    kept = quotas(TenantPolicy(requests_per_minute=2), shared)
    shared.spent = Spent(Quota.REQUESTS, 1_500)
    with pytest.raises(ResourceExhausted) as caught:
        await kept.admit(spec("a"))
    assert caught.value.attributes == {"retry_after_s": "2", "limit": "2"}
    shared.spent = None
    assert [await is_let_in(kept, name) for name in "bcd"] == [True, True, False]
    assert shared.admitted == ["b", "c"]


async def test_without_an_answer_this_process_decides_with_what_it_knows() -> None:
    shared = Shared()
    kept = quotas(TenantPolicy(requests_per_minute=2), shared)
    assert await is_let_in(kept, "a")
    shared.away = True
    assert [await is_let_in(kept, name) for name in "bc"] == [True, False]
    assert kept.kept_in == LOCAL
    shared.away = False
    # Nobody asks it again until the follower finds it there.
    assert not await is_let_in(kept, "d")
    assert shared.admitted == ["a"]
    kept._shared_is(True)
    assert kept.kept_in == SHARED


async def test_what_was_not_stored_is_taken_back_everywhere() -> None:
    shared = Shared()
    kept = quotas(TenantPolicy(live_requests_max=1), shared)
    assert await is_let_in(kept, "a")
    await kept.withdraw(spec("a"))
    assert shared.withdrawn == ["a"]
    assert await is_let_in(kept, "b")


async def test_without_redis_the_limits_hold() -> None:
    kept = quotas(TenantPolicy(requests_per_minute=1), None)
    assert [await is_let_in(kept, name) for name in "ab"] == [True, False]
    assert kept.kept_in == LOCAL


def test_more_than_the_hours_device_seconds_are_never_let_in_together() -> None:
    kept = quotas(TenantPolicy(device_seconds_per_hour=12.0), None)
    three = [spec(name) for name in "abc"]
    # Of what never ran nothing is predicted.
    assert kept.most_at_once(three) == 3
    kept._costs.accepted(spec("z"))
    kept._costs.ended("z", 5.0)
    assert [kept.most_at_once(three[:n]) for n in range(4)] == [0, 1, 2, 2]
    kept = quotas(TenantPolicy(device_seconds_per_hour=3.0), None)
    kept._costs.accepted(spec("z"))
    kept._costs.ended("z", 5.0)
    # One is let in, however much is predicted of it.
    assert kept.most_at_once(three) == 1
