"""KeyService: the gRPC face of keys and policies."""

from datetime import UTC, datetime

from fastvideo import wire
from fastvideo.api.gateway.v1 import keys_pb2, keys_pb2_grpc
from fastvideo.errors import InvalidField
from fastvideo.requests.tenant_state import ApiKey
from fastvideo.requests.tenants import TenantPolicy
from fastvideo.rpc.identity import Role, current_tenant
from fastvideo.rpc.names import check_name, require_name
from fastvideo.rpc.server import Service
from fastvideo.rpc.unknown_fields import refuse_unknown_fields
from fastvideo_gateway.access.keys import Keys


class KeyServicer(keys_pb2_grpc.KeyServiceServicer):
    """Messages in, messages out; typed errors become statuses in the server's interceptor."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    async def CreateKey(
        self, request: keys_pb2.CreateKeyRequest, context: object
    ) -> keys_pb2.CreateKeyResponse:
        refuse_unknown_fields(request)
        key, token = await self._keys.create(
            request.tenant_id or current_tenant(),
            request.name,
            request.role or Role.USER,
            _expiry(request),
        )
        return keys_pb2.CreateKeyResponse(key=_info(key), api_key=token.text)

    async def ListKeys(
        self, request: keys_pb2.ListKeysRequest, context: object
    ) -> keys_pb2.ListKeysResponse:
        refuse_unknown_fields(request)
        check_name("tenant_id", request.tenant_id)
        page = self._keys.page(
            request.tenant_id, page_size=request.page_size, token=request.page_token
        )
        return keys_pb2.ListKeysResponse(
            keys=map(_info, page.keys), next_page_token=page.next_page_token
        )

    async def RevokeKey(
        self, request: keys_pb2.RevokeKeyRequest, context: object
    ) -> keys_pb2.RevokeKeyResponse:
        refuse_unknown_fields(request)
        require_name("key_id", request.key_id, "the id of a key")
        return keys_pb2.RevokeKeyResponse(key=_info(await self._keys.revoke(request.key_id)))

    async def SetTenantPolicy(
        self, request: keys_pb2.SetTenantPolicyRequest, context: object
    ) -> keys_pb2.SetTenantPolicyResponse:
        refuse_unknown_fields(request)
        if not request.HasField("policy"):
            raise InvalidField("policy", "", "a policy", reason="FIELD_REQUIRED")
        policy = wire.from_proto(TenantPolicy, request.policy)
        policy = await self._keys.set_policy(request.tenant_id, policy)
        return keys_pb2.SetTenantPolicyResponse(policy=wire.to_proto(policy))

    async def GetTenantPolicy(
        self, request: keys_pb2.GetTenantPolicyRequest, context: object
    ) -> keys_pb2.GetTenantPolicyResponse:
        refuse_unknown_fields(request)
        policy = await self._keys.policy(request.tenant_id or current_tenant())
        return keys_pb2.GetTenantPolicyResponse(policy=wire.to_proto(policy))


def key_service(keys: Keys) -> Service:
    """Keys, as a server hangs them."""
    return Service.of(
        keys_pb2.DESCRIPTOR,
        "KeyService",
        keys_pb2_grpc.add_KeyServiceServicer_to_server,
        KeyServicer(keys),
    )


def _expiry(request: keys_pb2.CreateKeyRequest) -> datetime | None:
    if not request.HasField("expires_at"):
        return None
    try:
        return request.expires_at.ToDatetime(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidField("expires_at", "out of range", "a time to come") from error


def _info(key: ApiKey) -> keys_pb2.ApiKeyInfo:
    info = keys_pb2.ApiKeyInfo(
        key_id=key.key_id,
        tenant_id=key.tenant_id,
        name=key.name,
        role=key.role,
        created_by=key.created_by,
    )
    info.created_at.FromDatetime(key.created_at)
    if key.expires_at is not None:
        info.expires_at.FromDatetime(key.expires_at)
    if key.revoked_at is not None:
        info.revoked_at.FromDatetime(key.revoked_at)
    return info
