"""The ledger in the memory of one process: exact for it, a moment behind for the others.

Like every ledger it is made of the log, which has what the other replicas let in too.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fastvideo.requests.tenants import TenantPolicy
from fastvideo_gateway.quotas.types import (
    DEVICE_WINDOW_MINUTES,
    MINUTE_MS,
    PENDING_MS,
    REQUESTS_WINDOW_MS,
    RETRY_UNDER_WAY_MS,
    Accepted,
    Admission,
    Change,
    LedgerLost,
    Quota,
    Spent,
)

# What is left of a sum that is taken away part by part.
ROUNDING_S: Final = 1e-6
# How often what counts no more is let go of, of those who do not ask either.
LOOK_EVERY_MS: Final = 5_000


@dataclass(slots=True)
class _UnderWay:
    # When it counts no more, unless the log has it by then.
    until_ms: float
    predicted: float


@dataclass(slots=True)
class _Usage:
    """What counts of one tenant."""

    # When each request of the last minute came.
    requests: dict[str, int] = field(default_factory=dict)
    live: dict[str, _UnderWay] = field(default_factory=dict)
    # Device-seconds by minute of their end.
    device: dict[int, float] = field(default_factory=dict)

    def forget_old(self, now_ms: int) -> None:
        self.requests = {
            one: at for one, at in self.requests.items() if at > now_ms - REQUESTS_WINDOW_MS
        }
        self.live = {one: way for one, way in self.live.items() if way.until_ms > now_ms}
        oldest = now_ms // MINUTE_MS - DEVICE_WINDOW_MINUTES
        self.device = {minute: used for minute, used in self.device.items() if minute > oldest}

    @property
    def is_empty(self) -> bool:
        return not (self.requests or self.live or self.device)


class MemoryLedger:
    """A `Ledger`. Its lookups take as long as a tenant has requests."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._positions: dict[int, int] = {}
        self._tenants: dict[str, _Usage] = {}
        self._looked_ms = 0

    async def positions(self) -> Mapping[int, int]:
        return dict(self._positions)

    async def begin(self, positions: Mapping[int, int], live: Sequence[Accepted]) -> None:
        self._positions = dict(positions)
        self._tenants = {}
        for one in live:
            self._usage(one.tenant_id).live[one.request_id] = _UnderWay(
                math.inf, one.predicted_device_seconds
            )

    async def take_in(
        self, partition: int, first: int, last: int, changes: Sequence[Change]
    ) -> None:
        position = self._positions.get(partition)
        if position is None or first > position + 1:
            raise LedgerLost
        for change in changes:
            if change.offset > position:
                self._change(change)
        self._positions[partition] = max(position, last)
        self._forget_idle_tenants()

    async def set_filled(self) -> None:
        """It answers from the start: there is nobody else to ask."""

    async def check(self) -> None:
        """It is always there."""

    async def admit(self, asked: Admission, policy: TenantPolicy) -> Spent | None:
        now_ms = self._now_ms()
        usage = self._usage(asked.tenant_id)
        usage.forget_old(now_ms)
        spent = _spent(usage, asked, policy, now_ms)
        if spent is None:
            usage.requests.setdefault(asked.request_id, now_ms)
            way = _UnderWay(now_ms + PENDING_MS, asked.predicted_device_seconds)
            usage.live.setdefault(asked.request_id, way)
        return spent

    async def withdraw(self, asked: Admission) -> None:
        usage = self._usage(asked.tenant_id)
        usage.requests.pop(asked.request_id, None)
        usage.live.pop(asked.request_id, None)

    def _change(self, change: Change) -> None:
        usage = self._usage(change.tenant_id)
        if isinstance(change, Accepted):
            usage.requests.setdefault(change.request_id, change.at_ms)
            usage.live[change.request_id] = _UnderWay(math.inf, change.predicted_device_seconds)
            return
        usage.live.pop(change.request_id, None)
        minute = change.at_ms // MINUTE_MS
        usage.device[minute] = usage.device.get(minute, 0.0) + change.device_seconds

    def _usage(self, tenant_id: str) -> _Usage:
        return self._tenants.setdefault(tenant_id, _Usage())

    def _forget_idle_tenants(self) -> None:
        now_ms = self._now_ms()
        if abs(now_ms - self._looked_ms) < LOOK_EVERY_MS:
            return
        self._looked_ms = now_ms
        for tenant_id, usage in list(self._tenants.items()):
            usage.forget_old(now_ms)
            if usage.is_empty:
                del self._tenants[tenant_id]


def _spent(usage: _Usage, asked: Admission, policy: TenantPolicy, now_ms: int) -> Spent | None:
    """The first quota without room. `scripts.ADMIT` says the same."""
    limit = policy.requests_per_minute
    if limit and len(usage.requests) >= limit:
        times = sorted(usage.requests.values())
        return Spent(Quota.REQUESTS, times[len(times) - limit] + REQUESTS_WINDOW_MS - now_ms)
    if policy.live_requests_max and len(usage.live) >= policy.live_requests_max:
        return Spent(Quota.LIVE_REQUESTS, RETRY_UNDER_WAY_MS)
    if policy.device_seconds_per_hour:
        return _spent_device(usage, asked, policy.device_seconds_per_hour, now_ms)
    return None


def _spent_device(usage: _Usage, asked: Admission, limit: float, now_ms: int) -> Spent | None:
    """A request that is alone is let in, however much is predicted: the guess may be wrong."""
    total = sum(usage.device.values()) + sum(way.predicted for way in usage.live.values())
    # There is room for what is larger than the quota once nothing else counts.
    over = min(total + asked.predicted_device_seconds - limit, total)
    if total <= 0 or (over <= 0 and total < limit):
        return None
    for minute in sorted(usage.device):
        over -= usage.device[minute]
        if over <= ROUNDING_S:
            leaves_ms = (minute + DEVICE_WINDOW_MINUTES) * MINUTE_MS
            return Spent(Quota.DEVICE_SECONDS, max(0, leaves_ms - now_ms))
    return Spent(Quota.DEVICE_SECONDS, RETRY_UNDER_WAY_MS)
