"""Cancelling: compute stops at the next step, and the request ends as cancelled, once."""

import asyncio
import json
import signal
import subprocess
from typing import Any

import pytest

from fastvideo.client import AsyncClient
from fastvideo.requests.types import RequestStatus
from fastvideo.scheduling.events import BatchExecuted, DispatchBatch, SchedulerDecided
from tests.e2e.stack import Stack

PROMPT = "a blue eight moving down"
TERMINAL = {"request.completed", "request.failed", "request.cancelled"}
# Long enough that a cancel lands in the middle.
STEPS = 400


def start_long(stack: Stack) -> "subprocess.Popen[str]":
    return stack.start("generate", PROMPT, "--steps", str(STEPS), "--json")


async def running_id(stack: Stack) -> str:
    """The id of the request that a test has just begun, once it runs."""
    async with AsyncClient(stack.gateway) as client, asyncio.timeout(60):
        while True:
            page = await client.list(status=RequestStatus.RUNNING, page_size=10)
            for state in page.items:
                if state.spec.sampling.steps == STEPS and state.progress > 0:
                    return state.spec.request_id
            await asyncio.sleep(0.02)


async def check_stopped(stack: Stack, asked: Any, request_id: str) -> None:
    """Once the scheduler had read the cancel nothing was begun, and one step at most ended."""
    log = [event.payload for event in await stack.log("scheduler-")]
    [read] = [
        index
        for index, payload in enumerate(log)
        if isinstance(payload, SchedulerDecided) and payload.input_event_id == asked["event_id"]
    ]
    begun = [
        decision
        for payload in log[read:]
        if isinstance(payload, SchedulerDecided)
        for decision in payload.decisions
        if isinstance(decision, DispatchBatch)
        and any(loop.request_id == request_id for loop in decision.loops)
    ]
    assert begun == []
    ended = [
        payload
        for payload in log[read:]
        if isinstance(payload, BatchExecuted)
        and any(result.loop.request_id == request_id for result in payload.results)
    ]
    assert len(ended) <= 1


async def check_cancelled(stack: Stack, request_id: str) -> None:
    events = stack.watch(request_id)
    names = [event["name"] for event in events]
    assert [name for name in names if name in TERMINAL] == ["request.cancelled"]
    assert names[-1] == "request.cancelled"
    assert events[-1]["request_cancelled"]["boundary"]
    [asked] = [event for event in events if event["name"] == "request.cancel_requested"]
    await check_stopped(stack, asked, request_id)
    record = stack.run("request", "get", request_id, "--json").json
    assert (record["status"], record["artifacts"]) == ("cancelled", [])
    assert "error" not in record


@pytest.mark.row("REQ-09", "EVT-05")
async def test_a_cancel_in_the_middle_stops_within_a_step(stack: Stack) -> None:
    generating = start_long(stack)
    try:
        request_id = await running_id(stack)
        outcome = stack.run("request", "cancel", request_id, "--json", "--reason", "enough")
        assert outcome.code == 0, outcome.err
        assert outcome.json["status"] == "cancelled"
        out, _ = generating.communicate(timeout=60)
    finally:
        generating.kill()
        generating.wait()
    assert generating.returncode == 130
    assert json.loads(out)["status"] == "cancelled"
    await check_cancelled(stack, request_id)


@pytest.mark.row("REQ-09", "EVT-05")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_an_interrupt_at_the_command_line_cancels(
    stack: Stack, number: signal.Signals
) -> None:
    generating = start_long(stack)
    try:
        request_id = await running_id(stack)
        generating.send_signal(number)
        _, err = generating.communicate(timeout=60)
    finally:
        generating.kill()
        generating.wait()
    assert generating.returncode == 130
    assert f"{request_id} cancelled" in err
    assert "Traceback" not in err
    await check_cancelled(stack, request_id)


def test_a_cancel_after_the_end_changes_nothing(stack: Stack) -> None:
    record = stack.generate(PROMPT, "--steps", "2")
    outcome = stack.run("request", "cancel", record["id"], "--json")
    assert outcome.code == 0
    assert outcome.json == record
