"""What a tenant's stream folds into, and what may be appended to it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fastvideo.errors import InvalidField, NotFound, ResourceExhausted
from fastvideo.events.types import Event, EventMetadata, EventPayload
from fastvideo.requests.sealing import TenantErased
from fastvideo.requests.tenant_state import (
    KEYS_MAX,
    TenantState,
    decide_create,
    decide_policy,
    decide_revoke,
    evolve,
    fold,
)
from fastvideo.requests.tenants import ApiKeyCreated, ApiKeyRevoked, TenantPolicy, TenantPolicySet

NOW = datetime(2026, 5, 1, tzinfo=UTC)
KEY = ApiKeyCreated(key_id="ak_1", tenant_id="acme", name="laptop", role="user")
POLICY = TenantPolicy(requests_per_minute=60)


def event(version: int, payload: EventPayload) -> Event:
    at = NOW + timedelta(seconds=version)
    return Event(
        stream_version=version,
        metadata=EventMetadata(tenant_id="acme", occurred_at=at),
        recorded_at=at,
        payload=payload,
    )


def tenant(*payloads: EventPayload) -> TenantState:
    return fold("acme", (event(version, one) for version, one in enumerate(payloads, 1)))


def test_a_key_is_good_until_it_runs_out_or_is_revoked() -> None:
    until = NOW + timedelta(hours=1)
    key = tenant(replace(KEY, expires_at=until)).keys["ak_1"]
    assert key.is_good(until - timedelta(seconds=1))
    assert not key.is_good(until)
    revoked = ApiKeyRevoked(key_id="ak_1", tenant_id="acme")
    key = tenant(KEY, revoked, revoked).keys["ak_1"]
    assert not key.is_good(NOW)
    assert key.revoked_at == NOW + timedelta(seconds=2)


def test_the_last_policy_holds_and_other_events_of_the_stream_change_nothing() -> None:
    assert tenant().policy == TenantPolicy()
    state = tenant(TenantPolicySet(tenant_id="acme", policy=POLICY), KEY, TenantErased())
    assert (state.policy, state.version, set(state.keys)) == (POLICY, 3, {"ak_1"})
    state = evolve(state, event(4, TenantPolicySet(tenant_id="acme", policy=TenantPolicy())))
    assert state.policy == TenantPolicy()


def test_an_event_that_was_folded_before_changes_nothing() -> None:
    state = tenant(KEY, TenantPolicySet(tenant_id="acme", policy=POLICY))
    assert evolve(state, event(1, replace(KEY, name="other"))) is state


def test_the_secret_is_in_no_picture_of_a_key() -> None:
    assert "c0ffee" not in repr(tenant(replace(KEY, secret_sha256="c0ffee")))


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("tenant_id", replace(KEY, tenant_id="")),
        ("tenant_id", replace(KEY, tenant_id="Acme")),
        ("tenant_id", replace(KEY, tenant_id="a/b")),
        ("tenant_id", replace(KEY, tenant_id="a" * 64)),
        ("tenant_id", replace(KEY, tenant_id="acme\n")),
        ("name", replace(KEY, name="")),
        ("name", replace(KEY, name="a\nb")),
        ("name", replace(KEY, name="a" * 101)),
        ("role", replace(KEY, role="admin")),
        ("expires_at", replace(KEY, expires_at=NOW)),
    ],
)
def test_a_key_that_cannot_be_is_refused_by_field(field: str, asked: ApiKeyCreated) -> None:
    with pytest.raises(InvalidField) as caught:
        decide_create(TenantState(tenant_id=asked.tenant_id), asked, NOW)
    assert caught.value.field == field


def test_only_good_keys_count_against_the_most_of_a_tenant() -> None:
    key = tenant(KEY).keys["ak_1"]
    keys = {f"ak_{i}": replace(key, key_id=f"ak_{i}") for i in range(KEYS_MAX)}
    with pytest.raises(ResourceExhausted, match="revoke some"):
        decide_create(TenantState(tenant_id="acme", keys=keys), KEY, NOW)
    keys["ak_0"] = replace(keys["ak_0"], revoked_at=NOW)
    assert decide_create(TenantState(tenant_id="acme", keys=keys), KEY, NOW) == KEY


def test_a_key_is_revoked_once() -> None:
    revoked = decide_revoke(tenant(KEY), "ak_1", "ak_0")
    assert revoked == ApiKeyRevoked(key_id="ak_1", tenant_id="acme", revoked_by="ak_0")
    assert decide_revoke(tenant(KEY, revoked), "ak_1", "ak_0") is None
    with pytest.raises(NotFound):
        decide_revoke(tenant(KEY), "ak_2", "ak_0")


def test_a_policy_is_set_when_it_is_another() -> None:
    decided = decide_policy(tenant(), POLICY, "ak_0")
    assert decided == TenantPolicySet(tenant_id="acme", policy=POLICY, set_by="ak_0")
    assert decide_policy(tenant(decided), POLICY, "ak_0") is None


@pytest.mark.parametrize(
    ("field", "policy"),
    [
        ("policy.requests_per_minute", TenantPolicy(requests_per_minute=-1)),
        ("policy.live_requests_max", TenantPolicy(live_requests_max=2**32)),
        ("policy.device_seconds_per_hour", TenantPolicy(device_seconds_per_hour=float("nan"))),
        ("policy.media_ttl_s", TenantPolicy(media_ttl_s=10**10)),
    ],
)
def test_a_policy_that_cannot_be_is_refused_by_field(field: str, policy: TenantPolicy) -> None:
    with pytest.raises(InvalidField) as caught:
        decide_policy(tenant(), policy, "")
    assert caught.value.field == field
