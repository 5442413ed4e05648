"""The doors of a gateway that asks for keys: who comes in, by gRPC, by HTTP and on the page."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
import pytest_asyncio

from fastvideo.api.gateway.v1 import gateway_pb2, keys_pb2
from fastvideo.errors import InvalidField, NotFound, PermissionDenied, Unauthenticated
from fastvideo.requests.tenants import TenantPolicy
from fastvideo.rpc.api_keys import ApiToken
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.telemetry.redaction import redact_text
from fastvideo_gateway.http.openai import waiting
from tests.integration.gateway.keyed import ADMIN, JSON, Keyed, Party, keyed_place
from tests.integration.gateway.worlds import gateway_config, submit_message, world_of
from tests.plugins.http import call
from tests.plugins.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODELS = gateway_pb2.ListModelsRequest()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(
    module_postgres_dsn: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Keyed]:
    async with keyed_place(module_postgres_dsn, tmp_path_factory.mktemp("keyed")) as running:
        yield running


async def refusal(work: Any) -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await work
    return from_rpc_error(caught.value)


async def reasons(party: Party) -> tuple[str, str]:
    """Why a party is not let in, by gRPC and by HTTP."""
    error = await refusal(party.gateway.ListModels(MODELS))
    assert isinstance(error, Unauthenticated)
    answer = await party.http("GET", "/api/requests")
    assert answer.status == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    return error.reason, answer.error["reason"]


async def test_a_key_opens_both_doors_until_it_is_revoked(place: Keyed) -> None:
    created = await place.admin.keys.CreateKey(
        keys_pb2.CreateKeyRequest(tenant_id="acme", name="laptop")
    )
    acme = place.party(created.api_key)
    await acme.gateway.ListModels(MODELS)
    assert (await acme.http("GET", "/v1/models")).status == 200
    me = (await acme.http("GET", "/api/me")).json
    key_id = created.key.key_id
    assert me == {"tenant_id": "acme", "role": "user", "key_id": key_id, "open": False}
    revoked = await place.admin.keys.RevokeKey(keys_pb2.RevokeKeyRequest(key_id=key_id))
    assert revoked.key.HasField("revoked_at")
    assert await reasons(acme) == ("KEY_REVOKED", "KEY_REVOKED")


async def test_an_unknown_key_and_a_wrong_secret_are_the_same(place: Keyed) -> None:
    assert await reasons(place.party()) == ("KEY_REQUIRED", "KEY_REQUIRED")
    known = ApiToken.parse((await place.join("acme")).key)
    assert known is not None
    wrong = [ApiToken.new(known.key_id).text, ApiToken.new("ak_unknown").text]
    wrong += [ApiToken.new(ADMIN.key_id).text, "fv_x", "nonsense", ADMIN.text + "x"]
    errors = [await refusal(place.party(key).gateway.ListModels(MODELS)) for key in wrong]
    assert {(e.reason, e.message, e.subject, str(e.attributes)) for e in errors} == {
        ("KEY_UNKNOWN", "the key is not known here", "", "{}")
    }
    assert await reasons(place.party(wrong[0])) == ("KEY_UNKNOWN", "KEY_UNKNOWN")


async def short_lived(place: Keyed) -> Party:
    """A party whose key runs out in a moment, however slow the machine is."""
    for seconds in (2, 8, 32):
        message = keys_pb2.CreateKeyRequest(tenant_id="acme", name="short")
        message.expires_at.FromDatetime(datetime.now(UTC) + timedelta(seconds=seconds))
        with contextlib.suppress(grpc.aio.AioRpcError):
            return place.party((await place.admin.keys.CreateKey(message)).api_key)
    raise AssertionError("no key could be made in time")


async def test_a_key_runs_out_and_its_watch_with_it(place: Keyed) -> None:
    acme = await short_lived(place)

    async def watch_to_the_end() -> None:
        submitted = await acme.gateway.SubmitRequest(submit_message())
        request = gateway_pb2.WatchRequestRequest(request_id=submitted.state.spec.request_id)
        async for _ in acme.gateway.WatchRequest(request):
            pass

    assert (await refusal(asyncio.wait_for(watch_to_the_end(), 60))).reason == "KEY_EXPIRED"
    assert await reasons(acme) == ("KEY_EXPIRED", "KEY_EXPIRED")


async def test_revoking_ends_a_watch_that_runs(place: Keyed) -> None:
    acme = await place.join("acme")
    submitted = await acme.gateway.SubmitRequest(submit_message())
    watch = acme.gateway.WatchRequest(
        gateway_pb2.WatchRequestRequest(request_id=submitted.state.spec.request_id)
    )
    await watch.read()
    token = ApiToken.parse(acme.key)
    assert token is not None
    await place.admin.keys.RevokeKey(keys_pb2.RevokeKeyRequest(key_id=token.key_id))

    async def to_the_end() -> None:
        while await watch.read() is not grpc.aio.EOF:
            pass

    assert (await refusal(asyncio.wait_for(to_the_end(), 30))).reason == "KEY_REVOKED"


async def test_revoking_ends_a_wait_over_http_and_what_was_waited_for(
    place: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LOOK_EVERY_S", 0.1)
    party = await place.join("waits")
    body = b'{"prompt": "a red three", "model": "moving-digits"}'
    waited = asyncio.create_task(party.http("POST", "/v1/videos/sync", body=body))

    async def videos(party: Party) -> Any:
        return (await party.http("GET", "/v1/videos")).json["data"]

    async def is_made() -> bool:
        return bool(await videos(party))

    await eventually(is_made, timeout_s=30)
    token = ApiToken.parse(party.key)
    assert token is not None
    await place.admin.keys.RevokeKey(keys_pb2.RevokeKeyRequest(key_id=token.key_id))
    answer = await waited
    assert (answer.status, answer.error["code"]) == (401, "key_revoked")
    (video,) = await videos(await place.join("waits"))
    stream_id = f"request-{video['id']}"

    async def is_cancelled() -> bool:
        events = await place.world.log.read_stream(stream_id)
        return events[-1].type == "RequestCancelRequested"

    await eventually(is_cancelled, timeout_s=30)


async def test_the_page_keeps_a_key_that_no_script_sees(place: Keyed) -> None:
    acme = await place.join("acme")
    nobody = place.party()
    assert (await nobody.http("GET", "/")).status == 200
    refused = await nobody.http("POST", "/api/login", body=b'{"key": "fv_nonsense"}')
    assert (refused.status, refused.error["reason"]) == (401, "KEY_UNKNOWN")
    assert "set-cookie" not in refused.headers
    answer = await nobody.http("POST", "/api/login", body=f'{{"key": "{acme.key}"}}'.encode())
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert acme.key not in answer.body.decode()
    shown = {"Cookie": cookie.partition(";")[0]}
    assert (await nobody.http("GET", "/api/me", headers=shown)).json["tenant_id"] == "acme"
    # The page of another site cannot use it, and a header that is there wins.
    cross = {**shown, **JSON, "Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert (await nobody.http("POST", "/v1/videos", headers=cross, body=b"{}")).status == 403
    wrong = {**shown, "Authorization": "Bearer fv_nonsense"}
    assert (await nobody.http("GET", "/api/me", headers=wrong)).status == 401
    gone = await nobody.http("POST", "/api/logout", headers=shown)
    assert gone.status == 204
    assert "Max-Age=0" in gone.headers["set-cookie"]
    secure = {**JSON, "X-Forwarded-Proto": "https"}
    body = f'{{"key": "{acme.key}"}}'.encode()
    answer = await nobody.http("POST", "/api/login", body=body, headers=secure)
    assert "Secure" in answer.headers["set-cookie"]


async def test_keys_are_listed_page_by_page_without_their_secrets(place: Keyed) -> None:
    made = [await place.join("paged", name=f"key {i}") for i in range(3)]
    await place.join("other", role="operator")
    request = keys_pb2.ListKeysRequest(tenant_id="paged", page_size=2)
    first = await place.admin.keys.ListKeys(request)
    assert [key.name for key in first.keys] == ["key 2", "key 1"]
    request.page_token = first.next_page_token
    second = await place.admin.keys.ListKeys(request)
    assert [key.name for key in second.keys] == ["key 0"]
    assert second.next_page_token == ""
    whole = await place.admin.keys.ListKeys(keys_pb2.ListKeysRequest())
    assert {key.tenant_id for key in whole.keys} >= {"paged", "other"}
    assert all(party.key[-43:] not in str(whole) for party in made)
    error = await refusal(place.admin.keys.RevokeKey(keys_pb2.RevokeKeyRequest(key_id="ak_none")))
    assert isinstance(error, NotFound)
    wrong = keys_pb2.CreateKeyRequest(tenant_id="acme", name="x", role="root")
    assert isinstance(await refusal(place.admin.keys.CreateKey(wrong)), InvalidField)


async def test_an_operator_of_the_log_may_do_what_a_user_may_not(place: Keyed) -> None:
    operator, user = await place.join("acme", role="operator"), await place.join("acme")
    await operator.keys.ListKeys(keys_pb2.ListKeysRequest())
    error = await refusal(user.keys.ListKeys(keys_pb2.ListKeysRequest()))
    assert isinstance(error, PermissionDenied)
    assert error.reason == "OPERATOR_ONLY"
    assert (await operator.http("GET", "/api/events")).status == 200
    refused = await user.http("GET", "/api/events")
    assert (refused.status, refused.error["reason"]) == (403, "OPERATOR_ONLY")


async def test_keys_and_policies_reach_another_replica_and_a_later_one(
    place: Keyed, module_postgres_dsn: str
) -> None:
    acme = await place.join("acme")
    async with world_of(gateway_config(module_postgres_dsn)) as later:
        tenants = later.gateway.core.tenants

        async def loaded() -> bool:
            return tenants.loaded

        await eventually(loaded, timeout_s=30)
        token = ApiToken.parse(acme.key)
        assert token is not None
        assert tenants.key(token.key_id) is not None
        policy = keys_pb2.SetTenantPolicyRequest(tenant_id="acme")
        policy.policy.requests_per_minute = 7
        await place.admin.keys.SetTenantPolicy(policy)

        async def known() -> bool:
            return tenants.policy_of("acme") == TenantPolicy(requests_per_minute=7)

        await eventually(known, timeout_s=30)
    assert place.world.gateway.core.tenants.policy_of("nobody") == TenantPolicy()
    answer = await place.admin.keys.GetTenantPolicy(
        keys_pb2.GetTenantPolicyRequest(tenant_id="acme")
    )
    assert answer.policy.requests_per_minute == 7


@pytest.mark.row("DEP-13")
async def test_what_changes_is_told_to_those_whose_it_is(place: Keyed) -> None:
    a, b = await place.join("a"), await place.join("b")
    host, _, port = place.world.gateway.http_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    shown = f"Host: localhost\r\nAuthorization: Bearer {b.key}"
    writer.write(f"GET /api/live HTTP/1.1\r\n{shown}\r\n\r\n".encode())
    seen = b""

    async def until(wanted: str) -> None:
        nonlocal seen
        while wanted.encode() not in seen:
            read = await reader.read(65_536)
            assert read, seen
            seen += read

    async with asyncio.timeout(60):
        await until(": open")
        theirs = (await a.gateway.SubmitRequest(submit_message())).state.spec.request_id
        own = (await b.gateway.SubmitRequest(submit_message())).state.spec.request_id
        await until(own)
    writer.close()
    assert theirs.encode() not in seen


async def test_no_secret_is_in_the_log_nor_in_what_is_told(place: Keyed) -> None:
    acme = await place.join("acme")
    secret = acme.key[-43:]
    for partition in range(place.world.log.partition_count):
        for stored in await place.world.log.read_partition(partition):
            assert secret.encode() not in stored.payload + stored.metadata
    # Put where it does not belong, it comes back as what it is.
    error = await refusal(
        acme.gateway.GetRequest(gateway_pb2.GetRequestRequest(request_id=acme.key))
    )
    assert secret not in error.message + str(error.attributes)
    answer = await acme.http("GET", f"/api/requests/{acme.key}")
    assert secret not in answer.body.decode()
    assert secret not in redact_text(f"Authorization: Bearer {acme.key}")


async def test_probes_and_the_page_need_no_key(place: Keyed) -> None:
    address = place.world.gateway.http_address
    for path in ("/health/live", "/", "/page/main.js", "/openapi.json"):
        assert (await call(address, path)).status == 200, path
    assert (await call(address, "/nothing")).status == 404
