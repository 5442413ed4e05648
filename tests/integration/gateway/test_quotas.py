"""Quotas over real Redis: shared by replicas, and kept whatever happens to Redis."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import grpc
import openai
import pytest

from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.artifacts.events import ArtifactCompleted
from fastvideo.artifacts.types import ArtifactKind, ArtifactRecord, Producer
from fastvideo.errors import FastVideoError, ResourceExhausted
from fastvideo.events.catalog import new_event
from fastvideo.events.records import AppendCommand, StreamAppend
from fastvideo.events.types import EventMetadata
from fastvideo.ids import new_id
from fastvideo.requests.events import RequestCompleted, RequestStarted
from fastvideo.requests.state import stream_of
from fastvideo.requests.tenants import TenantPolicy, TenantPolicySet
from fastvideo.requests.types import RequestMetrics
from fastvideo.rpc.errors import from_rpc_error
from fastvideo_gateway.quotas import shared
from fastvideo_gateway.quotas.keeping import LOCAL, SHARED
from tests.integration.gateway.worlds import (
    MODEL,
    World,
    gateway_config,
    submit_message,
    world_of,
)
from tests.plugins.http import Answer, call
from tests.plugins.redis import OwnRedis
from tests.plugins.waiting import eventually

TENANT = "default"
WAIT_S = 120.0
QUOTAS = (
    ("QUOTA_REQUESTS", "requests_per_minute"),
    ("QUOTA_LIVE_REQUESTS", "live_requests_max"),
)


@asynccontextmanager
async def limited(dsn: str, redis_url: str, policy: TenantPolicy) -> AsyncIterator[World]:
    """A gateway whose tenant has a policy."""
    async with world_of(replace(gateway_config(dsn), redis_url=redis_url)) as world:
        await world.append(
            f"tenant-{TENANT}", TenantPolicySet(tenant_id=TENANT, policy=policy, set_by="test")
        )
        await eventually(lambda: _is_known(world, policy), timeout_s=WAIT_S)
        if redis_url:
            await kept(world, SHARED)
        yield world


async def _is_known(world: World, policy: TenantPolicy) -> bool:
    tenants = world.gateway.core.tenants
    return tenants.loaded and tenants.policy_of(TENANT) == policy


async def kept(world: World, where: str) -> None:
    """Wait until a gateway keeps its quotas so; its health says the same."""

    async def is_so() -> bool:
        answer = await call(world.gateway.http_address, "/health/ready")
        return bool(answer.json["quotas"] == where)

    await eventually(is_so, timeout_s=WAIT_S)


async def tried(world: World, **fields: Any) -> FastVideoError | None:
    """Submit; the error of a refusal."""
    try:
        await world.stub.SubmitRequest(submit_message(**fields), timeout=WAIT_S)
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error)
    return None


async def count_admitted(*worlds: World, tries: int) -> int:
    """How many of so many submits to each are let in; the others name their quota."""
    answers = await asyncio.gather(*(tried(world) for world in worlds for _ in range(tries)))
    refusals = [answer for answer in answers if answer is not None]
    for refusal in refusals:
        assert isinstance(refusal, ResourceExhausted), refusal
        assert (refusal.reason, refusal.subject) in QUOTAS
        assert 1 <= int(refusal.attributes["retry_after_s"]) <= 60
    return len(answers) - len(refusals)


async def end(world: World, request_id: str, device_seconds: float) -> None:
    """End a request as the scheduler does."""
    metadata = EventMetadata(occurred_at=datetime.now(UTC), tenant_id=TENANT, request_id=request_id)
    done = RequestCompleted(metrics=RequestMetrics(device_seconds=device_seconds))
    events = tuple(
        new_event(new_id("evt", 0), payload, metadata)
        for payload in (RequestStarted(attempt=1), done)
    )
    streams = (StreamAppend(stream_of(request_id), events),)
    await world.log.append(AppendCommand(streams=streams))


@pytest.mark.row("DEP-13")
async def test_two_gateways_share_a_quota_exactly(
    postgres_dsn: str, own_redis: OwnRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine this process may be the one that is late.
    monkeypatch.setattr(shared, "ANSWER_S_MAX", 20.0)
    policy = TenantPolicy(requests_per_minute=10)
    async with (
        limited(postgres_dsn, own_redis.url, policy) as one,
        limited(postgres_dsn, own_redis.url, policy) as other,
    ):
        first = await one.stub.SubmitRequest(submit_message(idempotency_key="again"))
        before = await one.size()
        assert await count_admitted(one, other, tries=15) == 9
        # What is refused is stored nowhere; what is repeated is no request of its own.
        assert await one.size() == before + 9
        again = await other.stub.SubmitRequest(submit_message(idempotency_key="again"))
        assert again.repeated
        assert again.state.spec.request_id == first.state.spec.request_id


@pytest.mark.filterwarnings("ignore:The Sora API:DeprecationWarning")
async def test_http_says_when_to_try_again_and_the_openai_package_does(
    postgres_dsn: str, own_redis: OwnRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = TenantPolicy(requests_per_minute=1)
    async with limited(postgres_dsn, own_redis.url, policy) as world:
        await world.submit()
        body = f'{{"model": "{MODEL}", "prompt": "a red three"}}'.encode()
        json_type = {"Content-Type": "application/json"}
        refused = await call(
            world.gateway.http_address, "/v1/videos", method="POST", headers=json_type, body=body
        )
        assert refused.status == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert refused.error["type"] == "rate_limit_error"
        assert refused.error["code"] == "quota_requests"

        asked_to_wait: list[str] = []

        async def wait(self: object, *, response: Any, **_: object) -> None:
            asked_to_wait.append(response.headers["retry-after"])
            more = TenantPolicySet(tenant_id=TENANT, policy=TenantPolicy(requests_per_minute=2))
            await world.append(f"tenant-{TENANT}", more)
            await eventually(lambda: _is_known(world, more.policy), timeout_s=WAIT_S)

        # The package waits as it is told; the test does not.
        monkeypatch.setattr(openai.AsyncOpenAI, "_sleep_for_retry", wait)
        url = f"http://{world.gateway.http_address}/v1"
        async with openai.AsyncOpenAI(api_key="unused", base_url=url, max_retries=1) as client:
            video = await client.videos.create(model=MODEL, prompt="a red three")
            assert video.status == "queued"
            assert len(asked_to_wait) == 1
            assert 1 <= int(asked_to_wait[0]) <= 60
            with pytest.raises(openai.RateLimitError) as caught:
                await client.with_options(max_retries=0).videos.create(
                    model=MODEL, prompt="a red three"
                )
            assert caught.value.code == "quota_requests"


async def images(world: World, n: int, key: str) -> Answer:
    """Ask for images over HTTP, and wait for them."""
    return await call(
        world.gateway.http_address,
        "/v1/images/generations",
        method="POST",
        headers={"Content-Type": "application/json", "Idempotency-Key": key},
        body=json.dumps({"model": MODEL, "prompt": "a red three", "n": n}).encode(),
    )


async def draw(world: World, request_id: str) -> None:
    """End a request for an image as a worker and the scheduler do."""
    record = ArtifactRecord(
        artifact_id=new_id("art", 0),
        kind=ArtifactKind.IMAGE,
        name="image.png",
        producer=Producer(request_id=request_id),
        created_at=datetime.now(UTC),
        tenant_id=TENANT,
    )
    await world.schedule(request_id, ArtifactCompleted(record=record))
    await end(world, request_id, 1.0)


async def test_images_are_let_in_together_or_not_at_all(postgres_dsn: str) -> None:
    policy = TenantPolicy(requests_per_minute=9, live_requests_max=3)
    async with limited(postgres_dsn, "", policy) as world:
        running = [await world.submit() for _ in range(2)]
        before = await world.size()
        never = await images(world, 4, "never")
        assert (never.status, never.error["param"]) == (400, "n")
        assert "at most 3" in never.error["message"]
        refused = await images(world, 2, "again")
        assert (refused.status, refused.error["code"]) == (429, "quota_live_requests")
        # Nothing was made that would have to be cancelled.
        assert await world.size() == before

        # What was let in and given back leaves room: with one that ends, there is for two.
        await end(world, running[0], 1.0)
        made: list[str] = []

        async def both_are_made() -> bool:
            page = await world.stub.ListRequests(gateway_pb2.ListRequestsRequest())
            made[:] = {state.spec.request_id for state in page.states} - set(running)
            return len(made) == 2

        async def ask_until_let_in() -> Answer:
            async with asyncio.timeout(WAIT_S):
                while (answer := await images(world, 2, "again")).status == 429:
                    await asyncio.sleep(0.05)
                return answer

        async with asyncio.TaskGroup() as group:
            asking = group.create_task(ask_until_let_in())
            await eventually(both_are_made, timeout_s=WAIT_S)
            for request_id in made:
                await draw(world, request_id)
        answer = asking.result()
        assert answer.status == 200
        assert {image["id"] for image in answer.json["data"]} == set(made)
        # A repeat is no request of its own, whatever the quotas let in by now.
        lower = TenantPolicy(live_requests_max=1)
        await world.append(f"tenant-{TENANT}", TenantPolicySet(tenant_id=TENANT, policy=lower))
        await eventually(lambda: _is_known(world, lower), timeout_s=WAIT_S)
        assert (await images(world, 2, "again")).json["data"] == answer.json["data"]
        # The key was used for two.
        size = await world.size()
        for n in (1, 3):
            other = await images(world, n, "again")
            assert (other.status, other.error["param"]) == (409, "Idempotency-Key")
        assert await world.size() == size


@pytest.mark.slow
async def test_a_quota_outlives_its_redis(postgres_dsn: str, own_redis: OwnRedis) -> None:
    # Of requests that never end here: no test is over before its minute on every machine.
    policy = TenantPolicy(live_requests_max=6)
    async with limited(postgres_dsn, own_redis.url, policy) as world:
        assert await count_admitted(world, tries=3) == 3
        own_redis.process.kill()
        # Each of these was let in by this gateway alone, which knows of those before.
        assert await count_admitted(world, tries=5) == 3
        await kept(world, LOCAL)
        own_redis.start()
        await kept(world, SHARED)
        assert await count_admitted(world, tries=3) == 0
        # What Redis had is made again from the log.
        own_redis.wipe()
        assert await count_admitted(world, tries=3) == 0
        await kept(world, SHARED)
        assert await count_admitted(world, tries=3) == 0


async def test_a_redis_that_hangs_makes_nobody_wait(postgres_dsn: str, own_redis: OwnRedis) -> None:
    policy = TenantPolicy(live_requests_max=5)
    async with limited(postgres_dsn, own_redis.url, policy) as world:
        assert await count_admitted(world, tries=2) == 2
        own_redis.process.send(signal.SIGSTOP)
        try:
            async with asyncio.timeout(30):
                assert await count_admitted(world, tries=20) == 3
            await kept(world, LOCAL)
        finally:
            own_redis.process.send(signal.SIGCONT)
        await kept(world, SHARED)
        assert await count_admitted(world, tries=2) == 0


@pytest.mark.slow
async def test_device_seconds_and_requests_under_way_are_counted_from_the_log(
    postgres_dsn: str, own_redis: OwnRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine this process may be the one that is late.
    monkeypatch.setattr(shared, "ANSWER_S_MAX", 20.0)
    policy = TenantPolicy(device_seconds_per_hour=200.0, live_requests_max=2)
    async with limited(postgres_dsn, own_redis.url, policy) as one:
        first, _ = await one.submit(), await one.submit()
        refused = await tried(one)
        assert refused is not None
        assert (refused.reason, refused.subject) == ("QUOTA_LIVE_REQUESTS", "live_requests_max")
        await end(one, first, 60.0)

        async def is_let_in() -> bool:
            return await tried(one) is None

        await eventually(is_let_in, timeout_s=WAIT_S)
    # Another gateway, which has read nothing yet, finds it as it is.
    async with limited(postgres_dsn, own_redis.url, policy) as other:
        refused = await tried(other)
        assert refused is not None
        assert refused.reason == "QUOTA_LIVE_REQUESTS"
    own_redis.process.kill()
    policy = TenantPolicy(device_seconds_per_hour=100.0)
    async with limited(postgres_dsn, "", policy) as alone:
        page = await alone.stub.ListRequests(gateway_pb2.ListRequestsRequest())
        for state in page.states:
            if state.spec.request_id != first:
                await end(alone, state.spec.request_id, 30.0)

        async def is_spent_for_an_hour() -> bool:
            answer = await tried(alone)
            return (
                answer is not None
                and answer.reason == "QUOTA_DEVICE_SECONDS"
                and 3_000 < int(answer.attributes["retry_after_s"]) <= 3_600
            )

        await eventually(is_spent_for_an_hour, timeout_s=WAIT_S)
