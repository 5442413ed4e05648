"""What the log says of a tenant, and what may happen to it next: a pure fold and its decider.

The stream `tenant-<id>` holds the tenant's keys, its policy, and the erasures of what it wrote.

Invariant: no IO, no clock and no secret. A key is known by the SHA-256 of its secret alone.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from fastvideo.errors import InvalidField, NotFound, ResourceExhausted
from fastvideo.events.types import Event
from fastvideo.requests.tenants import ApiKeyCreated, ApiKeyRevoked, TenantPolicy, TenantPolicySet

STREAM_PREFIX: Final = "tenant-"

ROLES: Final = ("user", "operator")

KEYS_MAX: Final = 1_000
"""Keys of one tenant that are good; those that were revoked or ran out do not count."""

NAME_CHARACTERS_MAX: Final = 100
COUNT_MAX: Final = 2**32 - 1
SECONDS_MAX: Final = 10 * 365 * 86_400

_TENANT_ID: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key as the log knows it."""

    key_id: str
    tenant_id: str
    name: str
    role: str
    secret_sha256: str = field(repr=False)
    expires_at: datetime | None
    created_at: datetime
    created_by: str
    revoked_at: datetime | None = None

    def is_good(self, now: datetime) -> bool:
        """Whether it opens a door at a moment."""
        return self.revoked_at is None and not self.has_expired(now)

    def has_expired(self, now: datetime) -> bool:
        """Whether its time is over."""
        return self.expires_at is not None and self.expires_at <= now


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantState:
    """A tenant: its keys by id, and what it may use."""

    tenant_id: str
    keys: Mapping[str, ApiKey] = field(default_factory=dict)
    policy: TenantPolicy = field(default_factory=TenantPolicy)
    # The version of its stream.
    version: int = 0


def stream_of(tenant_id: str) -> str:
    """The id of a tenant's stream."""
    return f"{STREAM_PREFIX}{tenant_id}"


def fold(tenant_id: str, events: Iterable[Event]) -> TenantState:
    """The tenant after these events; one without events has no keys and no limits."""
    state = TenantState(tenant_id=tenant_id)
    for event in events:
        state = evolve(state, event)
    return state


def evolve(state: TenantState, event: Event) -> TenantState:
    """The state after one more event of the tenant's stream; a repeated one changes nothing."""
    if event.stream_version <= state.version:
        return state
    state = replace(state, version=event.stream_version)
    match event.payload:
        case ApiKeyCreated() as created:
            return _with_key(state, _key(created, event.metadata.occurred_at))
        case ApiKeyRevoked(key_id=key_id) if key_id in state.keys:
            at = state.keys[key_id].revoked_at or event.metadata.occurred_at
            return _with_key(state, replace(state.keys[key_id], revoked_at=at))
        case TenantPolicySet(policy=policy):
            return replace(state, policy=policy)
    return state


def check_tenant_id(tenant_id: str) -> None:
    """Raise InvalidField for what cannot be a tenant's id."""
    if not _TENANT_ID.fullmatch(tenant_id):
        allowed = "1 to 63 of a-z, 0-9, '.', '_', '-', beginning with a letter or a digit"
        raise InvalidField("tenant_id", tenant_id, allowed)


def decide_create(state: TenantState, asked: ApiKeyCreated, now: datetime) -> ApiKeyCreated:
    """The event that makes a key good.

    Raises InvalidField for a key that cannot be, and ResourceExhausted, KEYS, when the tenant has
    as many as it may have.
    """
    check_tenant_id(asked.tenant_id)
    if not 0 < len(asked.name) <= NAME_CHARACTERS_MAX or not asked.name.isprintable():
        allowed = f"1 to {NAME_CHARACTERS_MAX} printable characters"
        raise InvalidField("name", asked.name, allowed)
    if asked.role not in ROLES:
        raise InvalidField("role", asked.role, " or ".join(ROLES))
    if asked.expires_at is not None and asked.expires_at <= now:
        raise InvalidField("expires_at", asked.expires_at.isoformat(), "a time to come")
    if sum(key.is_good(now) for key in state.keys.values()) >= KEYS_MAX:
        raise ResourceExhausted(
            f"tenant {state.tenant_id} has {KEYS_MAX} keys; revoke some first",
            reason="KEYS",
            subject="tenant_id",
        )
    return asked


def decide_revoke(state: TenantState, key_id: str, revoked_by: str) -> ApiKeyRevoked | None:
    """The event that ends a key; None when it was revoked before. Raises NotFound."""
    key = state.keys.get(key_id)
    if key is None:
        raise NotFound(f"key {key_id} does not exist", subject="key_id")
    if key.revoked_at is not None:
        return None
    return ApiKeyRevoked(key_id=key_id, tenant_id=state.tenant_id, revoked_by=revoked_by)


def decide_policy(state: TenantState, policy: TenantPolicy, set_by: str) -> TenantPolicySet | None:
    """The event that sets a policy; None when it is so already. Raises InvalidField."""
    check_tenant_id(state.tenant_id)
    for name in ("requests_per_minute", "live_requests_max"):
        _check_range(name, getattr(policy, name), COUNT_MAX)
    _check_range("device_seconds_per_hour", policy.device_seconds_per_hour, COUNT_MAX)
    _check_range("media_ttl_s", policy.media_ttl_s, SECONDS_MAX)
    if policy == state.policy:
        return None
    return TenantPolicySet(tenant_id=state.tenant_id, policy=policy, set_by=set_by)


def _check_range(name: str, value: float, most: int) -> None:
    # Written so that a number that is none is refused too.
    if not 0 <= value <= most:
        raise InvalidField(f"policy.{name}", value, f"0 (no limit) to {most}")


def _key(created: ApiKeyCreated, at: datetime) -> ApiKey:
    return ApiKey(
        key_id=created.key_id,
        tenant_id=created.tenant_id,
        name=created.name,
        role=created.role,
        secret_sha256=created.secret_sha256,
        expires_at=created.expires_at,
        created_at=at,
        created_by=created.created_by,
    )


def _with_key(state: TenantState, key: ApiKey) -> TenantState:
    return replace(state, keys={**state.keys, key.key_id: key})
