"""How long what requests make is kept: by a tenant's policy, else by the gateway's default."""

from dataclasses import replace
from typing import Protocol

from fastvideo.requests.lifetimes import resolve_ttl
from fastvideo.requests.tenants import TenantPolicy
from fastvideo.requests.types import RequestSpec


class Policies(Protocol):
    """Whoever knows what tenants may use."""

    def policy_of(self, tenant_id: str) -> TenantPolicy:
        """The policy of a tenant. Raises Unavailable while it is not known yet."""
        ...


class Lifetimes:
    """Settles the lifetime of a request when it is accepted."""

    def __init__(self, policies: Policies, default_s: int = 0) -> None:
        self._policies = policies
        # 0 is for ever, where the tenant's policy says nothing.
        self._default_s = default_s

    def settle(self, spec: RequestSpec) -> RequestSpec:
        """The request with its lifetime. Raises InvalidField for one that is too long."""
        limit_s = self._policies.policy_of(spec.tenant_id).media_ttl_s or self._default_s
        ttl_s = resolve_ttl(spec.outputs.ttl_s, limit_s)
        return replace(spec, outputs=replace(spec.outputs, ttl_s=ttl_s))
