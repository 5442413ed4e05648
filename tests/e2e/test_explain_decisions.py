"""Why was it deferred: what the scheduler decided is read back for each request."""

import asyncio
from collections.abc import Iterator

import pytest
import yaml

from fastvideo.client import AsyncClient
from fastvideo.explain.types import Explanation, WaitCause
from fastvideo.requests.types import SamplingOverrides
from fastvideo.scheduling.events import DeferLoop, DispatchBatch, QueueRequest, SchedulerDecided
from tests.e2e.stack import Stack, running_stack

REQUESTS = 10
PLACES = 7
# Room for one unit of decode, or for five of denoise.
POLICY = {
    "resident_requests_max": PLACES,
    "worker_budget": {"memory_bytes/activations": 3_400_000},
}


@pytest.fixture(scope="module")
def narrow_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose worker has few places and little memory."""
    policy = tmp_path_factory.mktemp("policy") / "scheduling.yaml"
    policy.write_text(yaml.safe_dump(POLICY))
    with running_stack(environment={"FASTVIDEO_SCHEDULING_POLICY": str(policy)}) as running:
        yield running


@pytest.mark.slow
@pytest.mark.row("OBS-05")
async def test_admission_and_batches_are_read_back_for_each_request(narrow_stack: Stack) -> None:
    async with AsyncClient(narrow_stack.gateway) as client:

        async def explained(number: int) -> Explanation:
            sampling = SamplingOverrides(steps=10, seed=number)
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
    by_memory = [one for one in told.values() if _waits(one, WaitCause.RESOURCE)]
    assert by_memory
    for one in by_memory:
        reasons = {made.reason for made in deferred if made.loop.request_id == one.request_id}
        assert _waits(one, WaitCause.RESOURCE) <= reasons
        assert any(reason.startswith("memory_bytes/activations") for reason in reasons)

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
