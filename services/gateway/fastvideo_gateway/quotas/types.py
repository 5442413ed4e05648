"""What is asked of a quota, what is answered, and what keeps count."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from fastvideo.errors import ResourceExhausted
from fastvideo.requests.tenants import TenantPolicy
from fastvideo.requests.types import RequestSpec

MINUTE_MS: Final = 60_000
REQUESTS_WINDOW_MS: Final = MINUTE_MS
DEVICE_WINDOW_MINUTES: Final = 60
# What was let in and never came into the log counts as under way for so long.
PENDING_MS: Final = 60_000
# Nobody knows when a request that is under way ends: whoever waits for that asks again then.
RETRY_UNDER_WAY_MS: Final = 2_000


class Quota(StrEnum):
    """A limit of a tenant, by the name that its policy has for it."""

    REQUESTS = "requests_per_minute"
    DEVICE_SECONDS = "device_seconds_per_hour"
    LIVE_REQUESTS = "live_requests_max"


_REASONS: Final[Mapping[Quota, str]] = {
    Quota.REQUESTS: "QUOTA_REQUESTS",
    Quota.DEVICE_SECONDS: "QUOTA_DEVICE_SECONDS",
    Quota.LIVE_REQUESTS: "QUOTA_LIVE_REQUESTS",
}


@dataclass(frozen=True, slots=True)
class Admission:
    """A request that asks to be let in."""

    request_id: str
    tenant_id: str
    predicted_device_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Spent:
    """A quota that is used up, and how long until there may be room."""

    quota: Quota
    retry_after_ms: int

    def error(self, policy: TenantPolicy) -> ResourceExhausted:
        """The refusal that the caller sees."""
        limit = getattr(policy, self.quota.value)
        seconds = max(1, -(-self.retry_after_ms // 1000))
        told = {
            Quota.REQUESTS: f"requests in a minute, {limit}",
            Quota.DEVICE_SECONDS: f"device-seconds in an hour, {limit:g}",
            Quota.LIVE_REQUESTS: f"requests under way at once, {limit}",
        }[self.quota]
        return ResourceExhausted(
            f"the quota of {told}, is used up; try again in {seconds} s",
            reason=_REASONS[self.quota],
            subject=self.quota.value,
            attributes={"retry_after_s": str(seconds), "limit": f"{limit:g}"},
        )


@dataclass(frozen=True, slots=True)
class Accepted:
    """The log has a new request."""

    offset: int
    tenant_id: str
    request_id: str
    at_ms: int
    predicted_device_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Ended:
    """The log has a request's end, and what it took."""

    offset: int
    tenant_id: str
    request_id: str
    at_ms: int
    device_seconds: float


Change = Accepted | Ended


class ReadsPolicies(Protocol):
    """Whoever knows what tenants may do."""

    def policy_of(self, tenant_id: str) -> TenantPolicy:
        """The tenant's policy; without limits where nobody set one."""
        ...


class Quotas(Protocol):
    """Lets requests in, before anything of them is stored."""

    async def admit(self, spec: RequestSpec) -> None:
        """Count a request. Raises ResourceExhausted, with the quota, when there is no room."""
        ...

    async def withdraw(self, spec: RequestSpec) -> None:
        """Take back what was counted for a request that was not stored."""
        ...

    def most_at_once(self, specs: Sequence[RequestSpec]) -> int:
        """How many of a tenant's requests, from the first on, can ever be let in together."""
        ...


class NoQuotas:
    """`Quotas` that let everything in."""

    async def admit(self, spec: RequestSpec) -> None:
        """There is room."""

    async def withdraw(self, spec: RequestSpec) -> None:
        """Nothing was counted."""

    def most_at_once(self, specs: Sequence[RequestSpec]) -> int:
        """All of them."""
        return len(specs)


class Ledger(Protocol):
    """Keeps count, from the log and from what it lets in.

    Several processes may keep the same ledger: each event is taken in once, by its offset.
    Raises `LedgerAway` where it does not answer, and `LedgerLost` where it has lost its counters.
    """

    async def positions(self) -> Mapping[int, int]:
        """The offset of the last event taken in, by partition; empty before `begin`."""
        ...

    async def begin(self, positions: Mapping[int, int], live: Sequence[Accepted]) -> None:
        """Start anew, after these offsets, with the requests that are under way by then."""
        ...

    async def take_in(
        self, partition: int, first: int, last: int, changes: Sequence[Change]
    ) -> None:
        """What events `first` to `last` of a partition change; those taken in are passed over."""
        ...

    async def set_filled(self) -> None:
        """It holds what the log holds, and may answer."""
        ...

    async def check(self) -> None:
        """Return where it answers and has its counters."""
        ...

    async def admit(self, asked: Admission, policy: TenantPolicy) -> Spent | None:
        """Count a request; None where there is room, else nothing is counted."""
        ...

    async def withdraw(self, asked: Admission) -> None:
        """Forget a request that was let in."""
        ...


class LedgerAway(Exception):
    """The ledger does not answer in time."""


class LedgerLost(Exception):
    """The ledger has no counters, or not those of this log: they have to be made again."""


def is_unlimited(policy: TenantPolicy) -> bool:
    """Whether a tenant has no quota at all."""
    return not any(getattr(policy, quota.value) for quota in Quota)
