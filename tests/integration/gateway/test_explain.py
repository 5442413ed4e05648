"""Explain over gRPC: from a real log, bounded by the request's own time."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest

from fastvideo import wire
from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.events.spans import LEAD_IN
from fastvideo.explain.types import Explanation
from fastvideo.requests.events import RequestAccepted, RequestCompleted
from fastvideo.requests.reading import read_request
from fastvideo.requests.state import stream_of
from fastvideo.requests.types import RequestMetrics
from fastvideo.scheduling.events import DispatchBatch
from fastvideo.scheduling.work import UnitKind
from tests.integration.gateway.shards import SHARD, Shard, loop_of, run
from tests.integration.gateway.worlds import World
from tests.plugins.waiting import eventually


async def explained(world: World, request_id: str, **fields: Any) -> tuple[Explanation, str]:
    message = gateway_pb2.ExplainRequestRequest(request_id=request_id, **fields)
    answer = await world.stub.ExplainRequest(message, timeout=240)
    return wire.from_proto(Explanation, answer.explanation), answer.next_page_token


async def test_an_unknown_request_is_not_found(world: World) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await explained(world, "req_unknown")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    "fields", [{"page_size": 2_001}, {"page_token": "nonsense"}, {"request_id": ""}]
)
async def test_what_is_not_allowed_is_refused_by_name(world: World, fields: dict[str, Any]) -> None:
    request_id = fields.pop("request_id", None)
    if request_id is None:
        request_id = await world.submit()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await explained(world, request_id, **fields)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_request_that_no_scheduler_has_seen_is_explained(world: World) -> None:
    told, token = await explained(world, await world.submit())
    assert told.waiting is not None
    assert (told.unit_count, token) == (0, "")
    assert told.headline.startswith("waits for messages")


async def test_units_and_their_batches_come_out_of_the_log(world: World) -> None:
    request_id = await world.submit()
    shard = Shard(world)
    run(shard, request_id, 5)
    await shard.write()
    await world.schedule(request_id, RequestCompleted(metrics=RequestMetrics(units=5)))
    told, _ = await explained(world, request_id)
    assert [unit.step_range.start for unit in told.units] == list(range(5))
    assert [unit.batch_id for unit in told.units] == [f"1-{step}" for step in range(5)]
    assert told.totals.units == 5
    assert told.attempts[0].end == "completed"
    assert told.metrics is not None


async def test_requests_of_another_tenant_are_counted_and_not_named(world: World) -> None:
    mine, ours = await world.submit(), await world.submit("a blue seven")
    theirs = "req_theirs"
    spec = (await read_request(world.log, mine)).spec  # type: ignore[union-attr]
    await world.append(stream_of(theirs), RequestAccepted(spec=replace(spec, tenant_id="them")))
    shard = Shard(world)
    run(shard, mine, 3, beside=(ours, theirs))
    await shard.write()
    told, _ = await explained(world, mine)
    assert {unit.shared_with for unit in told.units} == {(ours,)}
    assert {unit.shared_with_others for unit in told.units} == {1}
    assert theirs not in repr(told)


async def test_whom_a_decision_was_led_to_by_says_nothing_of_whom_it_is_about(
    world: World,
) -> None:
    mine = await world.submit()
    theirs = "req_theirs"
    spec = (await read_request(world.log, mine)).spec  # type: ignore[union-attr]
    await world.append(stream_of(theirs), RequestAccepted(spec=replace(spec, tenant_id="them")))
    shard = Shard(world)
    loops = (loop_of(mine), loop_of(theirs))
    units = (f"{mine}/0", f"{theirs}/0")
    shard.decide(
        DispatchBatch(
            batch_id="1-0",
            worker_id="w1",
            kind=UnitKind.DIFFUSION_STEP,
            unit_ids=units,
            loops=loops,
        )
    )
    run(shard, mine, 3, beside=(theirs,))
    await shard.write()
    told, _ = await explained(world, mine)
    assert {unit.shared_with_others for unit in told.units} == {1}
    assert theirs not in repr(told)


async def test_what_came_before_and_after_a_request_is_not_read(world: World) -> None:
    shard = Shard(world)
    run(shard, "req_before", 2_000)
    await shard.write()
    # The clock of the database tells the two apart.
    newest = (await world.log.read_stream(SHARD, 4_000, 1))[0].recorded_at

    async def is_apart() -> bool:
        return datetime.now(UTC) > newest + 1.1 * LEAD_IN

    await eventually(is_apart)
    request_id = await world.submit()
    shard = Shard(world)
    run(shard, request_id, 10)
    run(shard, "req_after", 2_000)
    await shard.write()
    told, _ = await explained(world, request_id)
    assert told.totals.units == 10
    assert told.events_read <= 2 * 10 + 3


@pytest.mark.slow
async def test_a_request_of_ten_thousand_units_is_answered_page_by_page(world: World) -> None:
    request_id = await world.submit()
    shard = Shard(world)
    run(shard, request_id, 10_000)
    await shard.write()
    told, token = await explained(world, request_id, page_size=2_000)
    assert (len(told.units), told.unit_count, told.stages[0].units) == (2_000, 10_000, 10_000)
    assert wire.to_proto(told).ByteSize() < 4 << 20
    next_page, _ = await explained(world, request_id, page_size=2_000, page_token=token)
    assert next_page.units[0].step_range.start == 2_000
