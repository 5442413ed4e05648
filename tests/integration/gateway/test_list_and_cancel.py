"""List, get, cancel and models over gRPC and `buf curl`."""

import asyncio
import json
import re
import sysconfig
from pathlib import Path
from typing import Any

import asyncpg
import grpc
import pytest

from fastvideo.api.artifacts.v1 import artifacts_pb2, artifacts_pb2_grpc
from fastvideo.api.common.v1 import request_pb2, work_pb2
from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.errors import InvalidField, NotFound
from fastvideo.requests.events import RequestCancelled, RequestCompleted, RequestStarted
from fastvideo.requests.types import RequestMetrics
from fastvideo.rpc.channel import open_channel
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.scheduling.events import WorkerAttached, WorkerLost
from fastvideo.scheduling.work import ModelState
from fastvideo_gateway.index_postgres import LAYOUT
from tests.integration.gateway.worlds import MODEL, World, gateway_config, world_of
from tests.plugins.waiting import eventually

DONE = RequestCompleted(metrics=RequestMetrics())


async def listed(world: World, **fields: Any) -> gateway_pb2.ListRequestsResponse:
    return await world.stub.ListRequests(gateway_pb2.ListRequestsRequest(**fields))


def ids(response: gateway_pb2.ListRequestsResponse) -> list[str]:
    return [state.spec.request_id for state in response.states]


async def cancel(
    world: World, target_id: str, kind: "work_pb2.CancelScopeKind.ValueType"
) -> request_pb2.RequestState:
    scope = work_pb2.CancelScope(kind=kind, target_id=target_id)
    request = gateway_pb2.CancelRequestRequest(scope=scope, reason="changed my mind")
    return (await world.stub.CancelRequest(request)).state


async def test_a_list_is_newest_first_and_pages_hold_each_request_once(world: World) -> None:
    submitted = [await world.submit(f"a red three {i}") for i in range(7)]
    assert ids(await listed(world)) == submitted[::-1]
    found: list[str] = []
    token = ""
    while True:
        page = await listed(world, page_size=3, page_token=token)
        found += ids(page)
        # A request that comes meanwhile does not shift the pages.
        await world.submit("later")
        token = page.next_page_token
        if not token:
            break
    assert found == submitted[::-1]


async def test_a_list_can_be_filtered_by_status(world: World) -> None:
    one, two = await world.submit(), await world.submit()
    await world.schedule(one, RequestStarted(attempt=1))
    await world.schedule(two, RequestStarted(attempt=1), DONE)
    running = await listed(world, status=request_pb2.REQUEST_STATUS_RUNNING)
    assert ids(running) == [one]
    completed = await listed(world, status=request_pb2.REQUEST_STATUS_COMPLETED)
    assert ids(completed) == [two]
    assert completed.states[0].progress == 1.0


async def test_a_page_that_cannot_be_is_refused(world: World) -> None:
    await world.submit()
    await world.submit()
    token = (await listed(world, page_size=1)).next_page_token
    cases: list[tuple[dict[str, Any], str]] = [
        ({"page_size": 201}, "page_size"),
        ({"page_token": "nonsense"}, "page_token"),
        ({"page_token": token, "session_id": "ses_1"}, "page_token"),
        ({"status": 77}, "status"),
    ]
    for fields, subject in cases:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await listed(world, **fields)
        error = from_rpc_error(caught.value)
        assert isinstance(error, InvalidField)
        assert error.subject == subject


async def test_an_unknown_request_is_not_found(world: World) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await world.stub.GetRequest(gateway_pb2.GetRequestRequest(request_id="req_none"))
    assert isinstance(from_rpc_error(caught.value), NotFound)


async def test_the_index_is_rebuilt_from_the_log(world: World, postgres_dsn: str) -> None:
    submitted = [await world.submit() for _ in range(3)]
    await world.schedule(submitted[0], DONE)
    before = await listed(world)
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute(f"UPDATE {LAYOUT.live}.layout SET log_epoch = -1")
    await connection.close()
    async with world_of(gateway_config(postgres_dsn)) as another:
        assert await listed(another) == before


async def test_a_cancel_is_an_event_and_asking_again_adds_none(world: World) -> None:
    request_id = await world.submit()
    state = await cancel(world, request_id, work_pb2.CANCEL_SCOPE_KIND_REQUEST)
    assert state.cancel_requested
    assert state.status == request_pb2.REQUEST_STATUS_ACCEPTED
    before = await world.size()
    again = await cancel(world, request_id, work_pb2.CANCEL_SCOPE_KIND_REQUEST)
    assert again == state
    assert await world.size() == before


async def test_cancelling_what_has_ended_gives_its_state_and_no_event(world: World) -> None:
    request_id = await world.submit()
    await world.schedule(request_id, DONE)
    before = await world.size()
    state = await cancel(world, request_id, work_pb2.CANCEL_SCOPE_KIND_REQUEST)
    assert state.status == request_pb2.REQUEST_STATUS_COMPLETED
    assert not state.cancel_requested
    assert await world.size() == before


async def test_a_cancel_lands_while_the_request_writes_progress(world: World) -> None:
    request_id = await world.submit()

    async def write() -> None:
        for _ in range(50):
            await world.schedule(request_id, RequestStarted(attempt=1))

    writing = asyncio.create_task(write())
    state = await cancel(world, request_id, work_pb2.CANCEL_SCOPE_KIND_REQUEST)
    await writing
    assert state.cancel_requested
    metrics = RequestMetrics()
    await world.schedule(request_id, RequestCancelled(boundary="denoise 7/20", metrics=metrics))
    got = await world.stub.GetRequest(gateway_pb2.GetRequestRequest(request_id=request_id))
    assert got.state.status == request_pb2.REQUEST_STATUS_CANCELLED


async def test_one_loop_or_one_stream_can_be_cancelled_and_then_the_request(world: World) -> None:
    request_id = await world.submit()
    for kind, part in (
        (work_pb2.CANCEL_SCOPE_KIND_LOOP, "decode"),
        (work_pb2.CANCEL_SCOPE_KIND_STREAM, "preview"),
    ):
        before = await world.size()
        for _ in range(2):
            state = await cancel(world, f"{request_id}/{part}", kind)
            # The request itself goes on.
            assert not state.cancel_requested
        assert await world.size() == before + 1, "asked for once"
    state = await cancel(world, request_id, work_pb2.CANCEL_SCOPE_KIND_REQUEST)
    assert state.cancel_requested
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await cancel(world, f"{await world.submit()}/nothing", work_pb2.CANCEL_SCOPE_KIND_LOOP)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert "encode, denoise, decode, write" in str(caught.value.details())


async def test_scopes_that_cannot_be_are_refused_by_name(world: World) -> None:
    request_id = await world.submit()
    cases = [
        (work_pb2.CANCEL_SCOPE_KIND_LOOP, request_id, "scope.target_id"),
        (work_pb2.CANCEL_SCOPE_KIND_STREAM, f"{request_id}/", "scope.target_id"),
        (work_pb2.CANCEL_SCOPE_KIND_UNSPECIFIED, request_id, "scope.kind"),
        (work_pb2.CANCEL_SCOPE_KIND_REQUEST, "", "scope.target_id"),
    ]
    for kind, target_id, subject in cases:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await cancel(world, target_id, kind)
        error = from_rpc_error(caught.value)
        assert isinstance(error, InvalidField)
        assert error.subject == subject
    kinds = (
        (work_pb2.CANCEL_SCOPE_KIND_REQUEST, "none"),
        (work_pb2.CANCEL_SCOPE_KIND_SESSION, "none"),
        (work_pb2.CANCEL_SCOPE_KIND_LOOP, "none/denoise"),
    )
    for kind, target_id in kinds:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await cancel(world, target_id, kind)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_model_is_ready_while_a_worker_with_its_card_is_attached(world: World) -> None:
    described = await world.stub.DescribeModel(gateway_pb2.DescribeModelRequest(model_id=MODEL))
    assert described.spec.model_id == MODEL
    assert {p.program_id for p in described.programs} >= {"text_to_video"}
    assert not described.ready

    async def ready() -> bool:
        response = await world.stub.ListModels(gateway_pb2.ListModelsRequest())
        return {model.model_id: model.ready for model in response.models}[MODEL]

    async def not_ready() -> bool:
        return not await ready()

    def attached(digest: str, incarnation: str) -> WorkerAttached:
        state = ModelState(model_id=MODEL, card_digest=digest)
        return WorkerAttached(worker_id="w1", incarnation=incarnation, instances=(state,))

    await world.append("worker-w1", attached("another card", "1"))
    await world.append("worker-w1", attached(described.card_digest, "2"))
    await eventually(ready)
    # The loss of its former self does not count.
    await world.append("worker-w1", WorkerLost(worker_id="w1", incarnation="1"))
    await world.submit()
    await listed(world)
    assert await ready()
    await world.append("worker-w1", WorkerLost(worker_id="w1", incarnation="2"))
    await eventually(not_ready)


async def test_an_unavailable_model_is_listed_with_what_to_do(world: World) -> None:
    response = await world.stub.ListModels(gateway_pb2.ListModelsRequest())
    models = {model.model_id: model for model in response.models}
    assert models[MODEL].unavailable_reason == ""
    assert "text_to_video" in models[MODEL].capabilities
    assert "FASTVIDEO_MODELS" in models["wan2.1-t2v-1.3b"].unavailable_reason


async def test_artifacts_are_handed_on_and_nobody_there_is_unavailable(world: World) -> None:
    async with open_channel(world.gateway.address) as channel:
        stub = artifacts_pb2_grpc.ArtifactServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.StatArtifact(artifacts_pb2.StatArtifactRequest(artifact_id="a"))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def buf(*arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        str(Path(sysconfig.get_path("scripts")) / "buf"),
        "curl",
        "--protocol",
        "grpc",
        "--http2-prior-knowledge",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60.0)
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_buf_curl_lists_and_calls_by_reflection(world: World) -> None:
    url = f"http://{world.gateway.address}"
    services = (await buf("--list-services", url)).split()
    assert "fastvideo.gateway.v1.GatewayService" in services
    assert "fastvideo.artifacts.v1.ArtifactService" in services
    assert "fastvideo.sessions.v1.SessionService" in services
    body = {
        "modelId": MODEL,
        "inputs": [{"text": {"role": "prompt", "text": "a red three moving left"}}],
        "sampling": {"steps": 4},
    }
    method = f"{url}/fastvideo.gateway.v1.GatewayService"
    submitted = json.loads(await buf("-d", json.dumps(body), f"{method}/SubmitRequest"))
    spec = submitted["state"]["spec"]
    assert re.fullmatch(r"req_[0-9a-z]{26}", spec["requestId"])
    assert spec["sampling"]["steps"] == 4
    got = json.loads(
        await buf("-d", json.dumps({"requestId": spec["requestId"]}), f"{method}/GetRequest")
    )
    assert got["state"] == submitted["state"]


@pytest.mark.parametrize(
    "name", ["a\0b", "\0", "y" * 100_000, "a\nb"], ids=["nul", "0", "long", "lf"]
)
async def test_names_that_nothing_can_have_are_refused_by_every_call(
    world: World, name: str
) -> None:
    before = await world.size()
    scope = work_pb2.CancelScope(kind=work_pb2.CANCEL_SCOPE_KIND_SESSION, target_id=name)
    stub = world.stub
    calls: dict[str, Any] = {
        "request_id": stub.GetRequest(gateway_pb2.GetRequestRequest(request_id=name)),
        "session_id": stub.ListRequests(gateway_pb2.ListRequestsRequest(session_id=name)),
        "scope.target_id": stub.CancelRequest(gateway_pb2.CancelRequestRequest(scope=scope)),
        "model_id": stub.DescribeModel(gateway_pb2.DescribeModelRequest(model_id=name)),
    }
    watch = stub.WatchRequest(gateway_pb2.WatchRequestRequest(request_id=name))
    for field, answer in (*calls.items(), ("request_id", watch.read())):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await answer
        error = from_rpc_error(caught.value)
        assert isinstance(error, InvalidField)
        assert error.field == field
    for field in ("model_id", "program_id", "session_id"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await world.submit(**{field: name})
        error = from_rpc_error(caught.value)
        assert isinstance(error, InvalidField)
        assert error.field == field
    assert await world.size() == before
