"""Deletion and lifetimes at the gateway's doors, with a hand that plays the scheduler."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import grpc
import pytest

from fastvideo import wire
from fastvideo.api.common.v1 import request_pb2
from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.clock import SystemClock
from fastvideo.errors import AlreadyExists, FastVideoError, InvalidField, NotFound, Unavailable
from fastvideo.events.catalog import event_of
from fastvideo.requests.events import RequestCancelled, RequestCompleted, RequestDeleted
from fastvideo.requests.state import stream_of
from fastvideo.requests.types import RequestMetrics, RequestState
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.rpc.identity import ANYBODY, calling
from fastvideo.scheduling.work import CancelScope, CancelScopeKind
from fastvideo_gateway.deletion import Deleter
from tests.integration.gateway.worlds import World, gateway_config, submit_message, world_of
from tests.plugins.http import call
from tests.plugins.waiting import eventually

METRICS = RequestMetrics(total_seconds=1.0)
DONE, STOPPED = RequestCompleted(metrics=METRICS), RequestCancelled(metrics=METRICS)


async def delete(world: World, request_id: str) -> datetime:
    message = gateway_pb2.DeleteRequestRequest(request_id=request_id)
    return (await world.stub.DeleteRequest(message)).deleted_at.ToDatetime(UTC)


async def refused(answer: object) -> FastVideoError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await answer  # type: ignore[misc]
    return from_rpc_error(caught.value)


async def names(world: World, request_id: str) -> list[str]:
    return [event_of(one).name for one in await world.log.read_stream(stream_of(request_id))]


async def state_of(world: World, request_id: str) -> RequestState:
    answer = await world.stub.GetRequest(gateway_pb2.GetRequestRequest(request_id=request_id))
    return wire.from_proto(RequestState, answer.state)


async def test_a_deleted_request_is_there_for_nobody_and_its_history_stays(world: World) -> None:
    gone, kept = await world.submit("a red three"), await world.submit("a blue seven")
    for one in (gone, kept):
        await world.schedule(one, DONE)
    at = await delete(world, gone)
    assert await delete(world, gone) == at
    assert await names(world, gone) == ["request.accepted", "request.completed", "request.deleted"]

    stub = world.stub
    get = gateway_pb2.GetRequestRequest(request_id=gone)
    explain = gateway_pb2.ExplainRequestRequest(request_id=gone)
    assert isinstance(await refused(stub.GetRequest(get)), NotFound)
    assert isinstance(await refused(stub.ExplainRequest(explain)), NotFound)
    scope = CancelScope(kind=CancelScopeKind.REQUEST, target_id=gone)
    cancel = gateway_pb2.CancelRequestRequest(scope=wire.to_proto(scope))
    assert isinstance(await refused(stub.CancelRequest(cancel)), NotFound)
    watch = stub.WatchRequest(gateway_pb2.WatchRequestRequest(request_id=gone))
    assert isinstance(await refused(watch.read()), NotFound)
    listed = await stub.ListRequests(gateway_pb2.ListRequestsRequest())
    assert [one.spec.request_id for one in listed.states] == [kept]

    http = world.gateway.http_address
    for path in ("", "/content", "/events"):
        assert (await call(http, f"/v1/videos/{gone}{path}")).status == 404
    for path in ("", "/events", "/events/1", "/states/1", "/explanation"):
        assert (await call(http, f"/api/requests/{gone}{path}")).status == 404
    assert [one["id"] for one in (await call(http, "/v1/videos")).json["data"]] == [kept]
    # A page goes on behind what was deleted meanwhile.
    assert (await call(http, f"/v1/videos?after={gone}&order=asc")).json["first_id"] == kept
    nobody = gateway_pb2.DeleteRequestRequest(request_id="req_nobody")
    assert isinstance(await refused(stub.DeleteRequest(nobody)), NotFound)


async def test_a_running_request_is_cancelled_first(world: World) -> None:
    request_id = await world.submit()
    deleting = asyncio.create_task(
        call(world.gateway.http_address, f"/v1/videos/{request_id}", method="DELETE")
    )

    async def asked() -> bool:
        return "request.cancel_requested" in await names(world, request_id)

    await eventually(asked, timeout_s=30.0)
    assert not deleting.done()
    await world.schedule(request_id, STOPPED)
    answer = await deleting
    assert answer.status == 200
    assert answer.json == {"id": request_id, "object": "video.deleted", "deleted": True}
    assert (await names(world, request_id))[-2:] == ["request.cancelled", "request.deleted"]


async def test_what_does_not_end_in_time_is_not_deleted(world: World) -> None:
    request_id = await world.submit()
    parts = world.gateway.core.parts
    deleter = Deleter(
        world.log, parts.standings, parts.canceller, parts.watches, SystemClock(), cancel_s_max=0.2
    )
    with calling(ANYBODY), pytest.raises(Unavailable) as caught:
        await deleter.delete(request_id, "default")
    assert caught.value.reason == "DELETE_PENDING"
    assert (await state_of(world, request_id)).cancel_requested
    await world.schedule(request_id, STOPPED)
    await delete(world, request_id)
    assert (await names(world, request_id)).count("request.deleted") == 1


@pytest.mark.parametrize("after", [0, 1])
async def test_a_deletion_that_meets_the_completion_is_final(world: World, after: int) -> None:
    """The completion comes before or after the cancellation; the request never comes back."""
    for _ in range(5):
        request_id = await world.submit()

        async def complete(one: str = request_id) -> None:
            async def asked() -> bool:
                return not after or "request.cancel_requested" in await names(world, one)

            await eventually(asked, timeout_s=30.0)
            await world.schedule(one, DONE)

        await asyncio.gather(delete(world, request_id), complete(), delete(world, request_id))
        told = await names(world, request_id)
        assert told[-1] == "request.deleted"
        assert (told.count("request.deleted"), told.count("request.completed")) == (1, 1)
        get = gateway_pb2.GetRequestRequest(request_id=request_id)
        assert isinstance(await refused(world.stub.GetRequest(get)), NotFound)


async def test_the_key_of_a_deleted_request_is_used_up(world: World) -> None:
    message = submit_message(idempotency_key="once")
    request_id = (await world.stub.SubmitRequest(message)).state.spec.request_id
    await world.schedule(request_id, DONE, RequestDeleted())
    error = await refused(world.stub.SubmitRequest(message))
    assert isinstance(error, AlreadyExists)
    assert error.reason == "REQUEST_DELETED"


async def test_a_lifetime_runs_from_the_end_and_is_told_as_it_passes(world: World) -> None:
    request_id = await world.submit(outputs=request_pb2.OutputSpec(video=True, ttl_s=3600))
    assert (await state_of(world, request_id)).expires_at is None
    await world.schedule(request_id, DONE)
    state = await state_of(world, request_id)
    assert state.ended_at is not None
    assert state.expires_at == state.ended_at + timedelta(hours=1)
    assert state.expired_at is None

    short = await world.submit(outputs=request_pb2.OutputSpec(video=True, ttl_s=1))
    await world.schedule(short, DONE)

    async def expired() -> bool:
        state = await state_of(world, short)
        return state.expired_at is not None and state.expired_at == state.expires_at

    await eventually(expired, timeout_s=30.0)
    http = world.gateway.http_address
    video = (await call(http, f"/v1/videos/{short}")).json
    assert (video["status"], video["progress"]) == ("expired", 100)
    assert video["error"]["code"] == "media_expired"
    assert video["expires_at"] == video["completed_at"] + 1
    row = (await call(http, f"/api/requests/{short}")).json["request"]
    assert row["expired_at"] == row["expires_at"]
    listed = {one["id"]: one["status"] for one in (await call(http, "/v1/videos")).json["data"]}
    assert listed == {short: "expired", request_id: "completed"}
    # Nobody has swept: that is the log's word.
    assert await names(world, short) == ["request.accepted", "request.completed"]


async def test_the_gateways_default_is_also_the_longest(postgres_dsn: str) -> None:
    async with world_of(replace(gateway_config(postgres_dsn), media_ttl_s=600)) as world:
        request_id = await world.submit()
        assert (await state_of(world, request_id)).spec.outputs.ttl_s == 600
        shorter = await world.submit(outputs=request_pb2.OutputSpec(video=True, ttl_s=60))
        assert (await state_of(world, shorter)).spec.outputs.ttl_s == 60
        for ttl_s in (0, 601):
            outputs = request_pb2.OutputSpec(video=True, ttl_s=ttl_s)
            error = await refused(world.stub.SubmitRequest(submit_message(outputs=outputs)))
            assert isinstance(error, InvalidField)
            assert error.field == "outputs.ttl_s"
