"""A tenant that is erased: the gateway's answers and rows lose its texts and nothing else."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import asyncpg
import pytest

from fastvideo.api.events.v1 import projections_pb2, projections_pb2_grpc
from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.errors import FailedPrecondition, InvalidField
from fastvideo.events.postgres_pool import PostgresPool
from fastvideo.events.sealing.erasing import Erased, erase_tenant
from fastvideo.events.sealing.keys import MasterKey
from fastvideo.requests.events import RequestCancelled
from fastvideo.requests.tenants import TenantPolicy, TenantPolicySet
from fastvideo.requests.types import RequestMetrics
from fastvideo.rpc.channel import open_channel
from fastvideo.rpc.identity import DEFAULT_TENANT
from fastvideo_gateway.config import Config
from tests.integration.gateway.worlds import World, gateway_config, world_of

SECRET = "an otter that nobody else would draw"
DEADLINE_S = 60.0


@dataclass(frozen=True)
class Erasing:
    """A gateway with a master key."""

    config: Config
    world: World

    async def erase(self, reason: str = "asked to", *, force: bool = True) -> Erased:
        # Nobody schedules here, so requests never end by themselves.
        pool = await PostgresPool.open(self.config.postgres_dsn, connections_max=1)
        try:
            return await erase_tenant(self.world.log, pool, DEFAULT_TENANT, reason, force=force)
        finally:
            await pool.close()

    async def prompts(self) -> list[str]:
        """The prompts of all requests, newest first."""
        listed = await self.world.stub.ListRequests(gateway_pb2.ListRequestsRequest())
        return [state.spec.inputs[0].text.text for state in listed.states]

    async def rows(self) -> str:
        """All that the gateway's own tables hold of requests."""
        connection = await asyncpg.connect(self.config.postgres_dsn)
        try:
            tables = await connection.fetch(
                "SELECT schemaname, tablename FROM pg_tables WHERE schemaname LIKE 'gateway%'"
            )
            rows = [
                tuple(row)
                for schema, table in tables
                for row in await connection.fetch(f"SELECT * FROM {schema}.{table}")
            ]
        finally:
            await connection.close()
        return str(rows)


@pytest.fixture
async def erasing(postgres_dsn: str) -> AsyncIterator[Erasing]:
    config = replace(gateway_config(postgres_dsn), master_key=MasterKey(bytes(32)))
    async with world_of(config) as world:
        yield Erasing(config, world)


async def until_blank(erasing: Erasing, expected: list[str]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await erasing.prompts() != expected:
            await asyncio.sleep(0.02)


async def test_lists_and_answers_are_blank_and_the_rows_hold_nothing(erasing: Erasing) -> None:
    first = await erasing.world.submit(SECRET)
    await erasing.world.submit(SECRET, idempotency_key="k")
    assert await erasing.prompts() == [SECRET, SECRET]
    assert SECRET in await erasing.rows()
    done = await erasing.erase()
    assert (len(done.key_ids), done.repeated) == (1, False)
    await until_blank(erasing, ["", ""])
    assert SECRET not in await erasing.rows()
    response = await erasing.world.stub.GetRequest(gateway_pb2.GetRequestRequest(request_id=first))
    assert response.state.spec.inputs[0].text.text == ""
    assert response.state.spec.inputs[0].text.role == "prompt"
    # The key still answers, with the request that it made.
    again = await erasing.world.submit(SECRET, idempotency_key="k")
    assert again != first
    assert await erasing.prompts() == ["", ""]


async def test_what_is_written_after_it_stays_and_a_rebuild_agrees(erasing: Erasing) -> None:
    await erasing.world.submit(SECRET)
    await erasing.erase()
    await until_blank(erasing, [""])
    await erasing.world.submit("a new prompt")
    assert await erasing.prompts() == ["a new prompt", ""]
    async with open_channel(erasing.world.gateway.address) as channel:
        stub = projections_pb2_grpc.ProjectionServiceStub(channel)
        for projection in ("gateway", "event_index"):
            message = projections_pb2.RebuildProjectionRequest(projection=projection, check=True)
            steps = [step async for step in stub.RebuildProjection(message)]
            assert steps[-1].report.equal, steps[-1]


async def test_erasing_again_changes_nothing_and_says_so(erasing: Erasing) -> None:
    await erasing.world.submit(SECRET)
    done = await erasing.erase()
    # The stream has the tenant's keys and its policy, too.
    policy = TenantPolicySet(tenant_id=DEFAULT_TENANT, policy=TenantPolicy())
    await erasing.world.append(f"tenant-{DEFAULT_TENANT}", policy)
    size = await erasing.world.size()
    assert await erasing.erase() == replace(done, repeated=True)
    assert await erasing.world.size() == size
    # One who died before it was told is told of when it is repeated.
    await erasing.world.submit("another")
    assert len((await erasing.erase()).key_ids) == 2


async def test_a_gateway_that_starts_after_it_knows_nothing(erasing: Erasing) -> None:
    request_id = await erasing.world.submit(SECRET)
    await erasing.erase()
    async with world_of(erasing.config) as other:
        message = gateway_pb2.GetRequestRequest(request_id=request_id)
        response = await other.stub.GetRequest(message)
        assert response.state.spec.inputs[0].text.text == ""


async def test_it_is_refused_while_requests_are_under_way(erasing: Erasing) -> None:
    request_id = await erasing.world.submit(SECRET)
    with pytest.raises(FailedPrecondition) as caught:
        await erasing.erase(force=False)
    assert caught.value.reason == "TENANT_BUSY"
    assert request_id in caught.value.message
    assert await erasing.prompts() == [SECRET]
    await erasing.world.schedule(request_id, RequestCancelled(metrics=RequestMetrics()))
    assert not (await erasing.erase(force=False)).repeated


@pytest.mark.parametrize("reason", ["", "x" * 501])
async def test_an_erasure_has_a_reason(erasing: Erasing, reason: str) -> None:
    await erasing.world.submit(SECRET)
    with pytest.raises(InvalidField, match="reason"):
        await erasing.erase(reason)
    assert await erasing.prompts() == [SECRET]
