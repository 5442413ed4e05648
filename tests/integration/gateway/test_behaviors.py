"""Records of behaviour over gRPC: listed by any field, after a restart of the gateway too."""

import pytest

from fastvideo.client import AsyncClient
from fastvideo.errors import InvalidField
from fastvideo.model.specs import ParallelPlan
from fastvideo.requests.behavior import BehaviorRecord
from fastvideo.scheduling.traces import BehaviorRecorded
from tests.integration.gateway.worlds import World, gateway_config, world_of

STREAM = "scheduler-0"


def recorded(number: int, policy_version: str = "w1") -> BehaviorRecorded:
    record = BehaviorRecord(
        request_id=f"req_{number}",
        model_id="moving-digits",
        policy_version=policy_version,
        seeds=(number,),
        guidance_settings={"scale": "3.0"},
        logprobs=(-1.0,),
        parallel_plan=ParallelPlan(),
    )
    return BehaviorRecorded(behavior_id=f"bhv_{number}", record=record)


async def ids(client: AsyncClient, limit: int | None = None, **where: str) -> list[str]:
    return [found.behavior_id async for found in client.behaviors(where, limit=limit)]


async def test_records_are_listed_by_any_field_and_survive_a_restart(postgres_dsn: str) -> None:
    config = gateway_config(postgres_dsn)
    async with world_of(config) as world, AsyncClient(world.gateway.address) as client:
        await world.append(STREAM, *(recorded(number) for number in range(3)))
        await world.append(STREAM, recorded(3, "w2"), recorded(1, "told again"))
        assert sorted(await ids(client)) == ["bhv_0", "bhv_1", "bhv_2", "bhv_3"]
        assert sorted(await ids(client, policy_version="w1")) == ["bhv_0", "bhv_1", "bhv_2"]
        assert await ids(client, seeds="2", guidance_settings="scale=3.0") == ["bhv_2"]
        assert len(await ids(client, limit=2)) == 2
        with pytest.raises(InvalidField, match=r"where\[colour\]"):
            await ids(client, colour="red")
    async with world_of(config) as world, AsyncClient(world.gateway.address) as client:
        [found] = [one async for one in client.behaviors({"request_id": "req_3"})]
        assert found == recorded(3, "w2")


async def test_what_is_recorded_later_is_listed_at_once(world: World) -> None:
    async with AsyncClient(world.gateway.address) as client:
        for number in range(3):
            await world.append(STREAM, recorded(number))
            assert await ids(client, behavior_id=f"bhv_{number}") == [f"bhv_{number}"]
