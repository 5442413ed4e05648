"""A caller that drops its connection: its own request stops within a step, nobody else's does."""

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fastvideo.client import AsyncClient
from fastvideo.requests.types import RequestStatus
from tests.e2e import patient_http as httpx
from tests.e2e.stack import Stack, poll
from tests.e2e.test_cancel import check_stopped

STEPS = 900


@pytest.fixture
def url(stack: Stack) -> str:
    return f"http://{stack.address('gateway-http')}"


def body(steps: int = STEPS, **fields: Any) -> dict[str, Any]:
    return {"prompt": f"gone {time.time_ns()}", "num_inference_steps": steps, **fields}


@contextmanager
def asking(
    stack: Stack, asked: dict[str, Any], *headers: str, path: str = "/v1/videos/sync"
) -> Iterator[socket.socket]:
    """A bare connection with a sync request on its way; it is cut at the end."""
    data = json.dumps(asked).encode()
    host, _, port = stack.address("gateway-http").rpartition(":")
    head = [
        f"POST {path} HTTP/1.1",
        f"Host: {host}:{port}",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
        *headers,
    ]
    connection = socket.create_connection((host, int(port)), timeout=60)
    try:
        connection.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + data)
        yield connection
    finally:
        connection.close()


def newest(url: str, asked: dict[str, Any]) -> Any:
    """The video of what was asked, once it is listed."""

    def find() -> Any:
        listed = httpx.get(f"{url}/v1/videos?limit=10").json()["data"]
        return next((one for one in listed if one["prompt"] == asked["prompt"]), None)

    return poll("the request is listed", find)


def until(url: str, video_id: str, status: str, *, progress: int = 0) -> Any:
    def find() -> Any:
        found = httpx.get(f"{url}/v1/videos/{video_id}").json()
        enough = found["status"] == status and found["progress"] >= progress
        return found if enough else None

    return poll(f"{video_id} is {status}", find, timeout_s=60)


async def check_gone(stack: Stack, url: str, video_id: str) -> None:
    """Cancelled because its caller went away, and stopped within one step of that."""
    until(url, video_id, "cancelled")
    events = stack.watch(video_id)
    [asked] = [event for event in events if event["name"] == "request.cancel_requested"]
    assert asked["request_cancel_requested"]["reason"] == "its caller went away"
    await check_stopped(stack, asked, video_id)


@pytest.mark.row("API-18")
@pytest.mark.parametrize("accept", ["Accept: video/mp4", "Accept: text/event-stream"])
async def test_a_dropped_request_stops_within_one_step(stack: Stack, url: str, accept: str) -> None:
    asked = body()
    with asking(stack, asked, accept):
        video_id = newest(url, asked)["id"]
        until(url, video_id, "in_progress", progress=1)
    await check_gone(stack, url, video_id)


@pytest.mark.row("API-18")
async def test_of_dropped_images_none_is_made(stack: Stack) -> None:
    # So large that none is done before its caller goes, on any machine.
    asked = body(1000, n=2, size="256x256")
    async with AsyncClient(stack.gateway) as client, asyncio.timeout(120):
        with asking(stack, asked, path="/v1/images/generations"):
            made: list[str] = []
            while len(made) < 2:
                page = await client.list(page_size=10)
                made = [one.request_id for one in page.items if one.prompt == asked["prompt"]]
        for request_id in made:
            assert (await client.wait(request_id)).status is RequestStatus.CANCELLED
            events = stack.watch(request_id)
            [gone] = [event for event in events if event["name"] == "request.cancel_requested"]
            assert gone["request_cancel_requested"]["reason"] == "its caller went away"
            await check_stopped(stack, gone, request_id)


def test_a_stream_tells_all_and_ends_with_the_video(url: str) -> None:
    told: list[tuple[str, Any]] = []
    headers = {"Accept": "text/event-stream"}
    with httpx.stream(
        "POST", f"{url}/v1/videos/sync", json=body(4), headers=headers, timeout=60
    ) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        name = ""
        for line in answer.iter_lines():
            key, _, value = line.partition(": ")
            if key == "event":
                name = value
            elif key == "data":
                told.append((name, json.loads(value)))
    names = [name for name, _ in told]
    assert names[0] == "request.accepted"
    assert "request.progress" in names
    assert names[-2:] == ["request.completed", "video"]
    assert told[-1][1]["status"] == "completed"


def test_what_is_wrong_is_refused_before_a_stream_begins(url: str) -> None:
    answer = httpx.post(
        f"{url}/v1/videos/sync", json=body(0), headers={"Accept": "text/event-stream"}
    )
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "num_inference_steps")


@pytest.mark.row("API-18")
def test_a_watcher_that_leaves_ends_nobody_s_work(stack: Stack, url: str) -> None:
    asked = body(60)
    made = httpx.post(f"{url}/v1/videos", json=asked, headers={"Idempotency-Key": asked["prompt"]})
    video_id = made.json()["id"]
    with httpx.stream("GET", f"{url}/v1/videos/{video_id}/events", timeout=60) as answer:
        next(answer.iter_lines())
    # Nor does one that names somebody's job again and waits for it.
    with asking(
        stack, asked, f"Idempotency-Key: {asked['prompt']}", "Accept: text/event-stream"
    ) as again:
        assert again.recv(1)
    until(url, video_id, "completed")
    names = [event["name"] for event in stack.watch(video_id)]
    assert "request.cancel_requested" not in names
