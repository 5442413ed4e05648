"""Why was it deferred: what the scheduler decided is read back for each request."""

import asyncio
from collections.abc import Iterator

import pytest
import yaml

from fastvideo.client import AsyncClient
from fastvideo.explain.types import Explanation, WaitCause
from fastvideo.requests.types import SamplingOverrides
from fastvideo.scheduling.events import (
    DeferLoop,
    DispatchBatch,
    LoopPrepared,
    QueueRequest,
    SchedulerDecided,
)
from tests.e2e.stack import Stack, running_stack

REQUESTS = 8
PLACES = 6
# Files of so many frames take longer to write than the next request takes to be decoded.
FRAMES = 17
STAGING = "memory_bytes/staging"


@pytest.fixture(scope="module")
def narrow_stack(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose worker has few places, and can write one file at a time."""
    stack.generate("a red three moving left", "--steps", "2", "--frames", str(FRAMES))
    policy = tmp_path_factory.mktemp("policy") / "scheduling.yaml"
    budget = {STAGING: round(1.5 * asyncio.run(_bytes_of_a_write(stack)))}
    policy.write_text(yaml.safe_dump({"resident_requests_max": PLACES, "worker_budget": budget}))
    with running_stack(environment={"FASTVIDEO_SCHEDULING_POLICY": str(policy)}) as running:
        yield running


@pytest.mark.slow
@pytest.mark.row("OBS-05")
async def test_admission_and_batches_are_read_back_for_each_request(narrow_stack: Stack) -> None:
    async with AsyncClient(narrow_stack.gateway) as client:

        async def explained(number: int) -> Explanation:
            sampling = SamplingOverrides(steps=2, seed=number, num_frames=FRAMES)
            state = await client.generate("a red three moving left", sampling=sampling)
            return await client.explain(state.spec.request_id)

        told = {
            one.request_id: one for one in await asyncio.gather(*map(explained, range(REQUESTS)))
        }
    decided = [event.payload for event in await narrow_stack.log("scheduler-")]
    decisions = [
        decision
        for payload in decided
        if isinstance(payload, SchedulerDecided)
        for decision in payload.decisions
    ]

    queued = [one for one in decisions if isinstance(one, QueueRequest)]
    assert queued
    for decision in queued:
        marks = [mark.text for mark in told[decision.request_id].marks if mark.name == "queued"]
        assert f"position {decision.position}: {decision.reason}" in marks
    in_line = [one for one in told.values() if _waits(one, WaitCause.PLACE)]
    assert len(in_line) >= REQUESTS - PLACES
    assert all(f"{PLACES} places" in "".join(_waits(one, WaitCause.PLACE)) for one in in_line)

    deferred = [one for one in decisions if isinstance(one, DeferLoop)]
    assert deferred
    for one in told.values():
        reasons = {made.reason for made in deferred if made.loop.request_id == one.request_id}
        assert _waits(one, WaitCause.RESOURCE) == reasons
        assert all(reason.startswith(STAGING) for reason in reasons)

    for decision in decisions:
        if isinstance(decision, DispatchBatch):
            members = {loop.request_id for loop in decision.loops}
            for request_id in members:
                (batch,) = [
                    one for one in told[request_id].batches if one.batch_id == decision.batch_id
                ]
                assert set(batch.request_ids) == members
                assert batch.units == len(decision.unit_ids)


def _waits(explanation: Explanation, cause: WaitCause) -> set[str]:
    """The reasons of all waits of a cause, the request's and its units'."""
    waits = [*explanation.waits, *(wait for unit in explanation.units for wait in unit.waits)]
    return {wait.reason for wait in waits if wait.cause is cause}


async def _bytes_of_a_write(stack: Stack) -> int:
    """What the unit that writes a file of so many frames declares."""
    return max(
        unit.resources.memory_bytes.get("staging", 0)
        for event in await stack.log("scheduler-")
        if isinstance(event.payload, LoopPrepared)
        for unit in event.payload.plan.units
    )
