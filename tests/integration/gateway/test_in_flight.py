"""One id in flight many times at once, through two gateways: one request, never a deadlock."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from fastvideo.errors import AlreadyExists
from fastvideo.requests.events import RequestCompleted
from fastvideo.requests.types import RequestMetrics
from fastvideo.rpc.errors import from_rpc_error
from tests.integration.gateway.worlds import World, gateway_config, submit_message, world_of
from tests.plugins.http import Answer, call

AT_ONCE = 50
WAIT_S = 120.0
DONE = RequestCompleted(metrics=RequestMetrics(total_seconds=1.0, units=1))


@pytest.fixture
async def worlds(postgres_dsn: str) -> AsyncIterator[tuple[World, World]]:
    """Two gateways over one log."""
    # Each call of a test holds a thread, and the gateways here need some, too.
    threads = ThreadPoolExecutor(AT_ONCE + 16)
    asyncio.get_running_loop().set_default_executor(threads)
    config = gateway_config(postgres_dsn)
    async with world_of(config) as one, world_of(config) as other:
        yield one, other


async def submit(world: World, prompt: str, key: str) -> str:
    """The request's id; empty when it was refused as another's key."""
    try:
        message = submit_message(prompt, idempotency_key=key)
        answer = await world.stub.SubmitRequest(message, timeout=WAIT_S)
    except grpc.RpcError as error:
        refused = from_rpc_error(error)
        assert isinstance(refused, AlreadyExists), refused
        assert refused.reason == "IDEMPOTENCY_KEY_REUSED"
        assert refused.attributes["used_for"].startswith("req_")
        return ""
    return str(answer.state.spec.request_id)


async def post(world: World, path: str, body: Mapping[str, Any], key: str) -> Answer:
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    return await call(
        world.gateway.http_address,
        path,
        method="POST",
        headers={**headers, "Accept": "application/json"},
        body=json.dumps(body).encode(),
    )


@pytest.mark.row("API-26")
async def test_of_fifty_at_once_with_one_key_and_two_bodies_one_wins_everywhere(
    worlds: tuple[World, World],
) -> None:
    prompts = [f"a {'red' if index // 2 % 2 else 'blue'} three" for index in range(AT_ONCE)]
    async with asyncio.timeout(WAIT_S):
        ids = await asyncio.gather(
            *(submit(worlds[index % 2], prompt, "k") for index, prompt in enumerate(prompts))
        )
    (winner,) = {request_id for request_id in ids if request_id}
    won = {prompt for prompt, request_id in zip(prompts, ids, strict=True) if request_id}
    assert len(won) == 1
    assert ids.count(winner) == prompts.count(won.pop())
    assert await worlds[0].size() == 1


@pytest.mark.row("API-26")
async def test_over_http_another_body_is_a_conflict_and_the_same_body_the_same_video(
    worlds: tuple[World, World],
) -> None:
    bodies = [{"prompt": "a red three"}, {"prompt": "a blue four"}]
    async with asyncio.timeout(WAIT_S):
        answers = await asyncio.gather(
            *(
                post(worlds[index % 2], "/v1/videos", bodies[index // 2 % 2], "k")
                for index in range(AT_ONCE)
            )
        )
    counts = Counter(answer.status for answer in answers)
    assert counts.keys() == {202, 409}
    assert len({answer.json["id"] for answer in answers if answer.status == 202}) == 1
    for answer in answers:
        if answer.status == 409:
            assert answer.error["code"] == "idempotency_key_reused"
    assert await worlds[0].size() == 1


@pytest.mark.row("API-26")
async def test_what_waits_for_its_video_holds_up_no_second_with_its_id(
    worlds: tuple[World, World],
) -> None:
    one, other = worlds
    body = {"prompt": "a red three"}
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        waiting = group.create_task(post(one, "/v1/videos/sync", body, "k"))
        request_id = ""
        while not request_id:
            # It is made once the first has been taken; a repeat makes none.
            listed = (await call(one.gateway.http_address, "/v1/videos")).json["data"]
            request_id = listed[0]["id"] if listed else ""
        refused = await post(other, "/v1/videos/sync", {"prompt": "a blue four"}, "k")
        assert (refused.status, refused.error["code"]) == (409, "idempotency_key_reused")
        again = group.create_task(post(other, "/v1/videos/sync", body, "k"))
        repeated = await post(other, "/v1/videos", body, "k")
        assert (repeated.status, repeated.json["id"]) == (202, request_id)
        await one.schedule(request_id, DONE)
    for answer in (waiting.result(), again.result()):
        assert (answer.json["id"], answer.json["status"]) == (request_id, "completed")
