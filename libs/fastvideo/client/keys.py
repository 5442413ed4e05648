"""Keys and policies of tenants, for operators."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fastvideo import wire
from fastvideo.api.gateway.v1 import keys_pb2
from fastvideo.client.calls import Calls, typed_errors
from fastvideo.client.submission import carrying, filled, instance, moment
from fastvideo.client.sync_event_log import Runs
from fastvideo.client.types import Page
from fastvideo.requests.tenants import TenantPolicy

if TYPE_CHECKING:
    from fastvideo.api.gateway.v1.keys_pb2_grpc import KeyServiceAsyncStub


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyInfo:
    """A key without its secret."""

    key_id: str
    tenant_id: str
    name: str
    # "user" or "operator".
    role: str
    created_at: datetime
    # None is never.
    expires_at: datetime | None
    revoked_at: datetime | None
    # The key of whoever made it; empty where there were none.
    created_by: str


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was made just now, and its text, which nobody can be told again."""

    info: ApiKeyInfo
    api_key: str = field(repr=False)


class KeyClient:
    """What `AsyncClient.keys` offers. Raises PermissionDenied, OPERATOR_ONLY, to users' keys."""

    def __init__(self, stub: "KeyServiceAsyncStub", calls: Calls) -> None:
        self._stub = stub
        self._calls = calls

    async def create(
        self,
        name: str,
        *,
        tenant_id: str = "",
        role: str = "user",
        expires_at: datetime | None = None,
    ) -> NewKey:
        """Make a key; without a tenant, of the caller's own.

        Not tried again when nobody answers: the key might be there, and its text lost. Look for it
        with `list` then.
        """
        request = filled(keys_pb2.CreateKeyRequest(), name=name, tenant_id=tenant_id, role=role)
        if expires_at is not None:
            request.expires_at.FromDatetime(moment("expires_at", expires_at))
        self._calls.check()
        with typed_errors():
            answer = await self._stub.CreateKey(request, timeout=self._calls.policy.timeout_s)
        return NewKey(_info(answer.key), answer.api_key)

    async def list(
        self, *, tenant_id: str = "", page_size: int = 0, page_token: str = ""
    ) -> Page[ApiKeyInfo]:
        """Keys, the newest first, of one tenant or of all, those that ended too."""
        request = filled(
            keys_pb2.ListKeysRequest(),
            tenant_id=tenant_id,
            page_size=page_size,
            page_token=page_token,
        )
        answer = await self._calls(self._stub.ListKeys, request)
        return Page(tuple(map(_info, answer.keys)), answer.next_page_token)

    async def revoke(self, key_id: str) -> ApiKeyInfo:
        """End a key; calls that run with it end too. A second time changes nothing."""
        request = filled(keys_pb2.RevokeKeyRequest(), key_id=key_id)
        return _info((await self._calls(self._stub.RevokeKey, request)).key)

    async def policy(self, tenant_id: str = "") -> TenantPolicy:
        """What a tenant may use; without one, the caller's own."""
        request = filled(keys_pb2.GetTenantPolicyRequest(), tenant_id=tenant_id)
        answer = await self._calls(self._stub.GetTenantPolicy, request)
        return wire.from_proto(TenantPolicy, answer.policy)

    async def set_policy(self, tenant_id: str, policy: TenantPolicy) -> TenantPolicy:
        """Set the whole policy of a tenant."""
        request = filled(keys_pb2.SetTenantPolicyRequest(), tenant_id=tenant_id)
        with carrying("policy", instance("policy", policy, TenantPolicy)):
            wire.fill_proto(policy, request.policy)
        answer = await self._calls(self._stub.SetTenantPolicy, request)
        return wire.from_proto(TenantPolicy, answer.policy)


class SyncKeyClient:
    """What `Client.keys` offers; see `KeyClient`."""

    def __init__(self, run: Runs, keys: KeyClient) -> None:
        self._run = run
        self._keys = keys

    def create(self, name: str, **options: Any) -> NewKey:
        """Make a key; see `KeyClient.create`."""
        return self._run(self._keys.create(name, **options))

    def list(self, **options: Any) -> Page[ApiKeyInfo]:
        """Keys, the newest first; see `KeyClient.list`."""
        return self._run(self._keys.list(**options))

    def revoke(self, key_id: str) -> ApiKeyInfo:
        """End a key; see `KeyClient.revoke`."""
        return self._run(self._keys.revoke(key_id))

    def policy(self, tenant_id: str = "") -> TenantPolicy:
        """What a tenant may use; see `KeyClient.policy`."""
        return self._run(self._keys.policy(tenant_id))

    def set_policy(self, tenant_id: str, policy: TenantPolicy) -> TenantPolicy:
        """Set the whole policy of a tenant; see `KeyClient.set_policy`."""
        return self._run(self._keys.set_policy(tenant_id, policy))


def _info(message: keys_pb2.ApiKeyInfo) -> ApiKeyInfo:
    return ApiKeyInfo(
        key_id=message.key_id,
        tenant_id=message.tenant_id,
        name=message.name,
        role=message.role,
        created_at=message.created_at.ToDatetime(UTC),
        expires_at=(message.expires_at.ToDatetime(UTC) if message.HasField("expires_at") else None),
        revoked_at=(message.revoked_at.ToDatetime(UTC) if message.HasField("revoked_at") else None),
        created_by=message.created_by,
    )
