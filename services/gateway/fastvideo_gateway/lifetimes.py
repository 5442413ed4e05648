"""How long what is stored is kept: by a tenant's policy, else by the gateway's default."""

from dataclasses import replace
from datetime import datetime
from typing import Protocol

from fastvideo.requests.lifetimes import expiry, resolve_ttl
from fastvideo.requests.tenants import TenantPolicy
from fastvideo.requests.types import RequestSpec


class Policies(Protocol):
    """Whoever knows what tenants may use."""

    def policy_of(self, tenant_id: str) -> TenantPolicy:
        """The policy of a tenant. Raises Unavailable while it is not known yet."""
        ...


class Lifetimes:
    """Settles the lifetime of a request when it is accepted, and of an input when it is put."""

    def __init__(self, policies: Policies, default_s: int = 0) -> None:
        self._policies = policies
        # 0 is for ever, where the tenant's policy says nothing.
        self._default_s = default_s

    def settle(self, spec: RequestSpec) -> RequestSpec:
        """The request with its lifetime. Raises InvalidField for one that is too long."""
        ttl_s = resolve_ttl(spec.outputs.ttl_s, self._limit_s(spec.tenant_id))
        return replace(spec, outputs=replace(spec.outputs, ttl_s=ttl_s))

    def of_input(self, tenant_id: str, now: datetime) -> datetime | None:
        """Until when an input that is put now may be named; None is for ever."""
        return expiry(now, self._limit_s(tenant_id) or None)

    def _limit_s(self, tenant_id: str) -> int:
        return self._policies.policy_of(tenant_id).media_ttl_s or self._default_s
