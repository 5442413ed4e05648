"""Tenants: what one may use, and what happens to its keys.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantPolicy:
    """What a tenant may use; 0 is no limit."""

    requests_per_minute: int = 0
    device_seconds_per_hour: float = 0.0
    # Requests that have not ended.
    live_requests_max: int = 0
    # How long what its requests made is kept once they have ended; 0 is as the gateway has it.
    media_ttl_s: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyCreated:
    """api_key.created: a key is good from now on. The secret itself is nowhere."""

    key_id: str = ""
    tenant_id: str = ""
    name: str = ""
    # "user" or "operator".
    role: str = ""
    # SHA-256 of the secret, hexadecimal.
    secret_sha256: str = ""
    # None is never.
    expires_at: datetime | None = None
    # The key of whoever made it; empty where there were none.
    created_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyRevoked:
    """api_key.revoked: a key is good for nothing from now on."""

    key_id: str = ""
    tenant_id: str = ""
    revoked_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantPolicySet:
    """tenant.policy_set: the whole policy of a tenant, in place of the one before."""

    tenant_id: str = ""
    policy: TenantPolicy
    set_by: str = ""
