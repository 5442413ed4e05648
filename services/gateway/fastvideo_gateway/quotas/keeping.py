"""Quotas that fail safe: Redis answers for all replicas, and without it each for itself.

Whatever happens to Redis, nobody is without a limit, nobody is refused for that, and nobody waits
longer than a tenth of a second, once.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from fastvideo.clock import milliseconds
from fastvideo.requests.tenants import TenantPolicy
from fastvideo.requests.types import RequestSpec
from fastvideo.telemetry import instruments, metrics
from fastvideo.telemetry.logging import get_logger
from fastvideo_gateway.quotas.following import UsageFollower, UsageSource
from fastvideo_gateway.quotas.memory import MemoryLedger
from fastvideo_gateway.quotas.types import (
    Admission,
    Ledger,
    LedgerAway,
    LedgerLost,
    ReadsPolicies,
    Spent,
    is_unlimited,
)
from fastvideo_gateway.quotas.usage import RequestCosts

_LOG: Final = get_logger(__name__)

SHARED: Final = "shared"
LOCAL: Final = "local"


class KeptQuotas:
    """`Quotas` over the ledger of this process and, where there is one, that of all replicas.

    `run` must run beside it.
    """

    def __init__(
        self, policies: ReadsPolicies, source: UsageSource, shared: Ledger | None = None
    ) -> None:
        self._policies = policies
        self._source = source
        self._local = MemoryLedger(lambda: milliseconds(source.clock.now()))
        self._shared = shared
        # None until it was asked the first time.
        self._shared_answers: bool | None = None
        self._costs = RequestCosts()
        if shared is not None:
            metrics.observe(
                instruments.QUOTAS_SHARED, lambda: [(float(self.kept_in == SHARED), {})]
            )

    @property
    def kept_in(self) -> str:
        """Whose counters decide now: "shared" for all replicas', "local" for this one's."""
        return SHARED if self._shared_answers else LOCAL

    async def admit(self, spec: RequestSpec) -> None:
        policy = self._policies.policy_of(spec.tenant_id)
        if is_unlimited(policy):
            return
        spent = await self._spent(self._admission(spec), policy)
        if spent is not None:
            raise spent.error(policy)

    async def withdraw(self, spec: RequestSpec) -> None:
        if is_unlimited(self._policies.policy_of(spec.tenant_id)):
            return
        asked = self._admission(spec)
        await self._local.withdraw(asked)
        if self._shared is None or not self._shared_answers:
            return
        try:
            await self._shared.withdraw(asked)
        except LedgerAway:
            # It counts for a minute at most: the log never has it.
            self._shared_is(False)

    def most_at_once(self, specs: Sequence[RequestSpec]) -> int:
        if not specs:
            return 0
        policy = self._policies.policy_of(specs[0].tenant_id)
        limits = (policy.requests_per_minute, policy.live_requests_max, len(specs))
        most = min(limit for limit in limits if limit)
        limit, taken = policy.device_seconds_per_hour, 0.0
        for count, spec in enumerate(specs[:most] if limit else ()):
            predicted = self._costs.predict(spec)
            # The first is let in whatever is predicted of it.
            if taken > 0 and (taken >= limit or taken + predicted > limit):
                return count
            taken += predicted
        return most

    async def run(self) -> None:
        """Follow the log for the counters, for ever; ends by cancellation."""
        async with asyncio.TaskGroup() as group:
            mine = UsageFollower(self._source, self._local, self._costs, lambda answers: None)
            group.create_task(mine.run(), name="usage")
            if self._shared is not None:
                everyones = UsageFollower(
                    self._source, self._shared, RequestCosts(), self._shared_is
                )
                group.create_task(everyones.run(), name="shared-usage")

    def _admission(self, spec: RequestSpec) -> Admission:
        return Admission(spec.request_id, spec.tenant_id, self._costs.predict(spec))

    async def _spent(self, asked: Admission, policy: TenantPolicy) -> Spent | None:
        """Where Redis answers, both ledgers must have room: one that was away may lag behind."""
        spent = await self._local.admit(asked, policy)
        if spent is not None or self._shared is None or not self._shared_answers:
            return spent
        try:
            spent = await self._shared.admit(asked, policy)
        except (LedgerAway, LedgerLost):
            self._shared_is(False)
            return None
        if spent is not None:
            await self._local.withdraw(asked)
        return spent

    def _shared_is(self, answers: bool) -> None:
        if answers == self._shared_answers:
            return
        self._shared_answers = answers
        if answers:
            _LOG.info("quotas are kept in Redis, for all replicas together")
        else:
            _LOG.warning("Redis does not answer: this gateway keeps its quotas itself")
