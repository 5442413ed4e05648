"""What is a tenant's does not exist for another: every rpc and every route, one by one.

A method or route that is for tenants and has no probe in `probes.py` fails the test, and so does
one that the rules do not name.
"""

from collections.abc import AsyncIterator, Awaitable
from typing import Any, Final

import grpc
import pytest
import pytest_asyncio
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from fastvideo.api.artifacts.v1 import artifacts_pb2
from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.api.sessions.v1 import sessions_pb2
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.rpc.identity import Access
from fastvideo_gateway.access.rules import METHODS, ROUTES
from tests.integration.gateway.keyed import Keyed, Owned, Party, keyed_place
from tests.integration.gateway.probes import (
    ANSWERED,
    BODIES,
    HTTP_ANSWERED,
    NOBODYS,
    NOT_FOUND,
    ask,
)
from tests.integration.gateway.worlds import MODEL, submit_message
from tests.plugins.http import Answer

pytestmark = pytest.mark.asyncio(loop_scope="module")

REFLECTION: Final = "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(
    module_postgres_dsn: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Keyed]:
    async with keyed_place(module_postgres_dsn, tmp_path_factory.mktemp("keyed")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def theirs(place: Keyed) -> Owned:
    """What tenant `a` has."""
    return await place.furnish(await place.join("a"), "a")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def b(place: Keyed) -> Party:
    """Who has nothing, and tries."""
    return await place.join("b")


def short(method: str) -> str:
    """ "/fastvideo.gateway.v1.GatewayService/GetRequest" as "GatewayService/GetRequest"."""
    return method.rpartition(".")[2]


async def refused(work: Awaitable[Any]) -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await work
    return from_rpc_error(caught.value)


async def raw(party: Party, method: str) -> Any:
    """A method of any kind, called with an empty message."""
    channel: Any = party.channel
    return await anext(aiter(channel.unary_stream(method)(b"")))


def told(error: Any, ids: Owned) -> str:
    """An error without the ids that were asked for."""
    text = f"{type(error).__name__} {error.reason} {error.message} {error.subject}"
    for one in sorted(ids.ids, key=len, reverse=True):
        text = text.replace(one, "X")
    return text


async def test_every_method_that_is_served_has_a_rule(place: Keyed, b: Party) -> None:
    channel: Any = b.channel
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
    pool: Any = descriptor_pool.Default()
    ask_for: Any = reflection_pb2.ServerReflectionRequest
    asked = ask_for(list_services="")
    served = set()
    async for answer in stub.ServerReflectionInfo(iter([asked])):
        for service in answer.list_services_response.service:
            if not service.name.startswith("grpc."):
                found = pool.FindServiceByName(service.name)
                served |= {f"/{service.name}/{method.name}" for method in found.methods}
    assert served == set(METHODS)
    for_tenants = {short(m) for m, access in METHODS.items() if access is Access.TENANT}
    assert for_tenants == set(NOT_FOUND) | ANSWERED


@pytest.mark.row("DEP-13")
async def test_what_is_another_tenants_is_not_found(place: Keyed, theirs: Owned, b: Party) -> None:
    for method, probes in NOT_FOUND.items():
        for number, probe in enumerate(probes):
            error = await refused(probe(b, theirs))
            missing = await refused(probe(b, NOBODYS))
            assert told(error, theirs).startswith("NotFound "), (method, number, error)
            # There is no way to tell what is another's from what is nowhere.
            assert told(error, theirs) == told(missing, NOBODYS), (method, number)
    # And nothing happened to it.
    state = (await place.world.log.read_stream(f"request-{theirs.request_id}"))[-1]
    assert state.type == "RequestCompleted"
    session = await place.world.log.read_stream(f"session-{theirs.session_id}")
    assert {stored.type for stored in session} == {"SessionCreated"}


@pytest.mark.row("DEP-13")
async def test_lists_are_of_ones_own(theirs: Owned, b: Party) -> None:
    request = gateway_pb2.ListRequestsRequest(session_id=theirs.session_id)
    assert not (await b.gateway.ListRequests(request)).states
    own = await b.gateway.ListRequests(gateway_pb2.ListRequestsRequest())
    assert all(state.spec.tenant_id == "b" for state in own.states)
    request = gateway_pb2.ListRequestsRequest(page_token=theirs.page_token)
    assert (await refused(b.gateway.ListRequests(request))).field == "page_token"
    sessions = sessions_pb2.ListSessionsRequest(page_token=theirs.session_token)
    assert (await refused(b.sessions.ListSessions(sessions))).field == "page_token"
    listed = await b.sessions.ListSessions(sessions_pb2.ListSessionsRequest())
    assert all(state.tenant_id == "b" for state in listed.states)


@pytest.mark.row("DEP-13")
async def test_an_idempotency_key_is_a_tenants_own(place: Keyed, theirs: Owned, b: Party) -> None:
    message = submit_message("something else", idempotency_key="first")
    submitted = await b.gateway.SubmitRequest(message)
    assert not submitted.repeated
    assert submitted.state.spec.request_id != theirs.request_id
    assert submitted.state.spec.tenant_id == "b"
    session = sessions_pb2.CreateSessionRequest(model_ids=[MODEL], idempotency_key="first")
    assert (await b.sessions.CreateSession(session)).state.tenant_id == "b"
    # The metadata between services is no way to be somebody else.
    got = await refused(
        b.gateway.GetRequest(
            gateway_pb2.GetRequestRequest(request_id=theirs.request_id),
            metadata=(("fastvideo-tenant", "a"),),
        )
    )
    assert got.reason == "NOT_FOUND"
    stat = artifacts_pb2.StatArtifactRequest(artifact_id=theirs.output_id)
    metadata = (("fastvideo-tenant", "a"),)
    assert (await refused(b.artifacts.StatArtifact(stat, metadata=metadata))).reason == "NOT_FOUND"


@pytest.mark.row("DEP-13")
async def test_files_are_a_tenants_own_though_their_bytes_are_stored_once(
    place: Keyed, theirs: Owned, b: Party
) -> None:
    c = await place.join("c")
    mine = await place.furnish(c, "c")
    assert mine.upload_id != theirs.upload_id
    stat = artifacts_pb2.StatArtifactRequest(artifact_id=mine.upload_id)
    assert (await c.artifacts.StatArtifact(stat)).record.tenant_id == "c"
    blob = artifacts_pb2.GetBlobRequest(digest=theirs.digest)

    async def read() -> None:
        async for _ in b.artifacts.GetBlob(blob):
            pass

    assert (await refused(read())).reason == "NOT_FOR_USERS"
    put = artifacts_pb2.PutBlobRequest(chunk=b"x")
    assert (await refused(b.artifacts.PutBlob(iter([put])))).reason == "NOT_FOR_USERS"
    # A worker's header is not a user's: nothing is put into a request of another.
    header = artifacts_pb2.PutArtifactHeader(artifact_id=theirs.output_id, tenant_id="a")
    forged = artifacts_pb2.PutArtifactRequest(header=header)
    assert (await refused(b.artifacts.PutArtifact(iter([forged])))).reason == "FIELD_NOT_TAKEN"


async def test_operators_methods_are_not_for_users(b: Party) -> None:
    for method, access in METHODS.items():
        if access is Access.OPERATOR:
            error = await refused(raw(b, method))
            assert error.reason == "OPERATOR_ONLY", method
    answer = await b.gateway.ListModels(gateway_pb2.ListModelsRequest())
    assert MODEL in {model.model_id for model in answer.models}
    await b.gateway.DescribeModel(gateway_pb2.DescribeModelRequest(model_id=MODEL))


async def test_without_a_key_there_is_nothing(place: Keyed) -> None:
    nobody = place.party()
    for method in METHODS:
        error = await refused(raw(nobody, method))
        assert error.reason == "KEY_REQUIRED", method
    for method in ("grpc.health.v1.Health/Watch", REFLECTION):
        assert (await refused(raw(nobody, f"/{method}"))).reason == "KEY_REQUIRED", method
    health: Any = health_pb2_grpc.HealthStub(nobody.channel)
    await health.Check(health_pb2.HealthCheckRequest())
    for name, access in ROUTES.items():
        if access is not Access.PUBLIC:
            answer = await ask(nobody, name, NOBODYS)
            assert answer.status == 401, name


def body_of(answer: Answer, ids: Owned) -> str:
    text = answer.body.decode()
    for one in sorted(ids.ids, key=len, reverse=True):
        text = text.replace(one, "X")
    return text


@pytest.mark.row("DEP-13")
async def test_every_route_of_a_thing_answers_that_another_tenants_is_not_there(
    theirs: Owned, b: Party
) -> None:
    probed = {n for n, access in ROUTES.items() if access is Access.TENANT} - HTTP_ANSWERED
    for name in sorted(probed):
        assert "{" in name or name in BODIES, f"{name} has no probe"
        answer, missing = await ask(b, name, theirs), await ask(b, name, NOBODYS)
        if name.endswith("/live"):
            # A stream tells of it in its first event.
            assert b"NOT_FOUND" in answer.body, name
        else:
            assert answer.status == 404, (name, answer.status, answer.body)
        assert body_of(answer, theirs) == body_of(missing, NOBODYS), name


@pytest.mark.row("DEP-13")
async def test_lists_over_http_are_of_ones_own(place: Keyed, theirs: Owned, b: Party) -> None:
    me = (await b.http("GET", "/api/me")).json
    assert (me["tenant_id"], me["role"]) == ("b", "user")
    for path in ("/api/requests?limit=200", "/v1/videos?limit=100"):
        assert theirs.request_id not in (await b.http("GET", path)).body.decode()
    searched = await b.http("GET", f"/api/requests?search={theirs.request_id}")
    assert searched.json["requests"] == []
    assert (await b.http("GET", "/api/requests?search=secret")).json["requests"] == []
    assert (await b.http("GET", f"/api/requests?cursor={theirs.page_token}")).status == 400
    after = await b.http("GET", f"/v1/videos?after={theirs.request_id}")
    nowhere = await b.http("GET", f"/v1/videos?after={NOBODYS.request_id}")
    assert body_of(after, theirs) == body_of(nowhere, NOBODYS)
    a = await place.join("a")
    assert theirs.request_id in (await a.http("GET", "/v1/videos")).body.decode()


async def test_operators_routes_are_not_for_users(theirs: Owned, b: Party) -> None:
    for name, access in ROUTES.items():
        if access is Access.OPERATOR:
            answer = await ask(b, name, theirs)
            assert (answer.status, answer.error["reason"]) == (403, "OPERATOR_ONLY"), name


async def test_an_operator_sees_the_log_and_not_anothers_requests(
    place: Keyed, theirs: Owned
) -> None:
    admin = place.admin
    error = await refused(
        admin.gateway.GetRequest(gateway_pb2.GetRequestRequest(request_id=theirs.request_id))
    )
    assert error.reason == "NOT_FOUND"
    found = await admin.http("GET", f"/api/events?request={theirs.request_id}")
    assert len(found.json["events"]) >= 3
    # Replays are of whatever is in the log: what is served of it is asked for in its tenant's name.
    for subject in (theirs.request_id, theirs.session_id, theirs.output_id):
        body = f'{{"kind": "state", "subject_id": "{subject}"}}'.encode()
        answer = await admin.http("POST", "/api/replays", body=body)
        assert b'"equal":true' in answer.body.rpartition(b"event: report")[2], subject
