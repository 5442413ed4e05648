"""Sessions through the gateway: created, named by requests, remembered, closed."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest

from fastvideo.api.common.v1 import session_pb2, work_pb2
from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.api.sessions.v1 import sessions_pb2
from fastvideo.artifacts.events import ArtifactCompleted
from fastvideo.artifacts.types import ArtifactKind, ArtifactRecord, Producer
from fastvideo.errors import AlreadyExists, FailedPrecondition, InvalidField, NotFound
from fastvideo.requests.events import RequestCompleted
from fastvideo.requests.types import RequestMetrics
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.sessions.state import stream_of
from tests.integration.gateway.worlds import MODEL
from tests.integration.sessions.worlds import SessionWorld, session_world
from tests.plugins.waiting import eventually

DONE = RequestCompleted(artifact_ids=("art_1",), metrics=RequestMetrics())


def video() -> ArtifactRecord:
    return ArtifactRecord(
        artifact_id="art_1",
        kind=ArtifactKind.VIDEO,
        digest="d",
        producer=Producer(),
        created_at=datetime.now(UTC),
    )


async def prompts(world: SessionWorld, session_id: str) -> list[str]:
    return [entry.prompt for entry in (await world.get(session_id)).prompt_memory]


async def test_a_new_session_is_open_with_its_bindings_and_defaults(world: SessionWorld) -> None:
    state = await world.create(model_ids=[MODEL], user_id="ada")
    assert state.status == session_pb2.SESSION_STATUS_OPEN
    assert (state.user_id, state.inactivity_timeout_s) == ("ada", 1800)
    assert [binding.model_id for binding in state.model_bindings] == [MODEL]
    assert await world.get(state.session_id) == state


async def test_prompts_are_remembered_once_and_in_order(world: SessionWorld) -> None:
    session_id = (await world.create(prompt_memory_limit=3)).session_id
    for i in range(5):
        await world.gateway.submit(f"a red three {i}", session_id=session_id)

    async def all_remembered() -> bool:
        return await prompts(world, session_id) == [f"a red three {i}" for i in (2, 3, 4)]

    await eventually(all_remembered)
    # One creation and five prompts: none was written twice.
    assert await world.gateway.log.stream_version(stream_of(session_id)) == 6


async def test_a_request_is_active_in_its_session_until_it_ends(world: SessionWorld) -> None:
    session_id = (await world.create()).session_id
    request_id = await world.gateway.submit(session_id=session_id)

    async def active() -> bool:
        return list((await world.get(session_id)).cancel_scopes) == [f"request/{request_id}"]

    await eventually(active)
    await world.gateway.schedule(request_id, ArtifactCompleted(record=video()), DONE)

    async def ended() -> bool:
        state = await world.get(session_id)
        return not state.cancel_scopes and list(state.artifact_refs) == ["art_1"]

    await eventually(ended)


async def test_without_nats_sessions_follow_the_log(postgres_dsn: str) -> None:
    async with session_world(postgres_dsn) as world:
        session_id = (await world.create()).session_id
        await world.gateway.submit("a red three", session_id=session_id)

        async def remembered() -> bool:
            return await prompts(world, session_id) == ["a red three"]

        await eventually(remembered)


async def test_a_closed_session_takes_no_more_requests(world: SessionWorld) -> None:
    session_id = (await world.create()).session_id
    await world.gateway.submit(session_id=session_id)
    closed = await world.close(session_id)
    assert closed.status == session_pb2.SESSION_STATUS_CLOSED
    assert closed.close_reason == "closed"
    assert (await world.close(session_id)).closed_at == closed.closed_at
    before = await world.gateway.size()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await world.gateway.submit(session_id=session_id)
    error = from_rpc_error(caught.value)
    assert isinstance(error, FailedPrecondition)
    assert error.reason == "SESSION_CLOSED"
    assert await world.gateway.size() - before <= 1  # The first request may just be remembered.


async def test_a_session_takes_only_the_models_that_it_is_bound_to(world: SessionWorld) -> None:
    session_id = (await world.create(model_ids=["wan2.1-t2v-1.3b"])).session_id
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await world.gateway.submit(session_id=session_id)
    assert from_rpc_error(caught.value).reason == "MODEL_NOT_BOUND"


async def test_a_quiet_session_is_closed_by_the_ticker(world: SessionWorld) -> None:
    quick = (await world.create(inactivity_timeout_s=1)).session_id
    slow = (await world.create(inactivity_timeout_s=3600)).session_id

    async def closed() -> bool:
        return (await world.get(quick)).close_reason == "inactive"

    await eventually(closed)
    assert (await world.get(slow)).status == session_pb2.SESSION_STATUS_OPEN
    # The ticker decides with the time that it is given.
    far = datetime.now(UTC) + timedelta(hours=2)
    closed_by: list[int] = []

    async def closed_early() -> bool:
        closed_by.append(await world.sessions.core.expiry.close_due(far))
        return closed_by[-1] > 0

    await eventually(closed_early)
    assert closed_by[-1] == 1
    assert (await world.get(slow)).close_reason == "inactive"


async def test_one_key_makes_one_session_under_concurrent_creates(world: SessionWorld) -> None:
    states = await asyncio.gather(*(world.create(idempotency_key="k") for _ in range(10)))
    assert len({state.session_id for state in states}) == 1
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await world.create(idempotency_key="k", user_id="another")
    assert isinstance(from_rpc_error(caught.value), AlreadyExists)


async def test_sessions_are_listed_newest_first_and_page_by_page(world: SessionWorld) -> None:
    created = [(await world.create()).session_id for _ in range(5)]
    found: list[str] = []
    token = ""
    while True:
        request = sessions_pb2.ListSessionsRequest(page_size=2, page_token=token)
        page = await world.stub.ListSessions(request)
        found += [state.session_id for state in page.states]
        token = page.next_page_token
        if not token:
            break
    assert found == created[::-1]


async def test_requests_are_listed_and_cancelled_by_session(world: SessionWorld) -> None:
    session_id = (await world.create()).session_id
    other = await world.gateway.submit()
    first = await world.gateway.submit(session_id=session_id)
    second = await world.gateway.submit(session_id=session_id)
    await world.gateway.schedule(first, DONE)
    stub = world.gateway.stub
    page = await stub.ListRequests(gateway_pb2.ListRequestsRequest(session_id=session_id))
    assert [state.spec.request_id for state in page.states] == [second, first]
    scope = work_pb2.CancelScope(kind=work_pb2.CANCEL_SCOPE_KIND_SESSION, target_id=session_id)
    response = await stub.CancelRequest(gateway_pb2.CancelRequestRequest(scope=scope))
    assert response.state.spec.request_id == second
    assert response.state.cancel_requested
    for untouched in (other, first):
        got = await stub.GetRequest(gateway_pb2.GetRequestRequest(request_id=untouched))
        assert not got.state.cancel_requested
    await world.gateway.submit(session_id=session_id)  # The session stays usable.


BAD: list[tuple[dict[str, Any], type, str]] = [
    ({"model_ids": ["sora"]}, NotFound, "model_id"),
    ({"model_ids": [MODEL, MODEL]}, InvalidField, "model_ids"),
    ({"user_id": "u" * 201}, InvalidField, "user_id"),
    ({"inactivity_timeout_s": 604_801}, InvalidField, "inactivity_timeout_s"),
    ({"prompt_memory_limit": 201}, InvalidField, "prompt_memory_limit"),
    ({"idempotency_key": "a\n"}, InvalidField, "idempotency_key"),
]


async def test_bad_input_is_refused_by_name_and_stores_nothing(world: SessionWorld) -> None:
    before = await world.gateway.size()
    for fields, kind, subject in BAD:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await world.create(**fields)
        error = from_rpc_error(caught.value)
        assert type(error) is kind, fields
        assert error.subject == subject
    unknown = sessions_pb2.CreateSessionRequest.FromString(b"\x98\x06\x01")
    with pytest.raises(grpc.aio.AioRpcError, match="99"):
        await world.stub.CreateSession(unknown)
    for call in (world.get, world.close):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call("ses_none")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert await world.gateway.size() == before
