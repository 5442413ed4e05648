"""Why was it deferred: what the scheduler decided is read back for each request."""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest
import yaml

from fastvideo.client import AsyncClient
from fastvideo.explain.types import Explanation, WaitCause
from fastvideo.requests.types import OutputSpec, SamplingOverrides
from fastvideo.scheduling.events import (
    AssignLoop,
    CancelLoop,
    Decision,
    DeferLoop,
    DispatchBatch,
    LoopPrepared,
    PreemptRequest,
    QueueRequest,
    SchedulerDecided,
    StartRequest,
    YieldBatch,
)
from tests.e2e.stack import Stack, running_stack

# Two stacks, and requests that wait for each other on purpose.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

REQUESTS = 7
PLACES = 5
# Files of so many frames take longer to write than the next request takes to be decoded.
FRAMES = 33
STAGING = "memory_bytes/staging"


@pytest.fixture(scope="module")
def narrow_stack(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose worker has few places, and can write one file at a time."""
    stack.generate("a red three moving left", "--steps", "2", "--frames", str(FRAMES))
    policy = tmp_path_factory.mktemp("policy") / "scheduling.yaml"
    budget = {STAGING: round(1.5 * asyncio.run(_bytes_of_a_write(stack)))}
    knobs = {
        "resident_requests_max": PLACES,
        "worker_budget": budget,
        "residency_seconds_min": 0.2,
    }
    policy.write_text(yaml.safe_dump(knobs))
    with running_stack(environment={"FASTVIDEO_SCHEDULING_POLICY": str(policy)}) as running:
        yield running


@dataclass(frozen=True)
class Run:
    """What was decided in a run, as the log has it, and each request's explanation."""

    decisions: Sequence[Decision]
    # Event types and public names under which the decisions are in the log.
    names: set[str]
    told: Mapping[str, Explanation]


@pytest.fixture(scope="module")
def crowded(narrow_stack: Stack) -> Run:
    """More requests at once than the worker has places."""
    return asyncio.run(_crowded(narrow_stack))


@pytest.fixture(scope="module")
def preempted(narrow_stack: Stack) -> tuple[Run, str]:
    """All places taken, and then a request of a higher priority, whose id this gives."""
    return asyncio.run(_preempted(narrow_stack))


@pytest.mark.row("OBS-05")
def test_admission_and_batches_are_read_back_for_each_request(crowded: Run) -> None:
    queued = [one for one in crowded.decisions if isinstance(one, QueueRequest)]
    assert queued
    for decision in queued:
        marks = crowded.told[decision.request_id].marks
        texts = [mark.text for mark in marks if mark.name == "queued"]
        assert f"position {decision.position}: {decision.reason}" in texts
    in_line = [one for one in crowded.told.values() if _waits(one, WaitCause.PLACE)]
    assert len(in_line) >= REQUESTS - PLACES
    assert all(f"{PLACES} places" in "".join(_waits(one, WaitCause.PLACE)) for one in in_line)

    deferred = [one for one in crowded.decisions if isinstance(one, DeferLoop)]
    assert deferred
    for one in crowded.told.values():
        reasons = {late.reason for late in deferred if late.loop.request_id == one.request_id}
        assert _waits(one, WaitCause.RESOURCE) == reasons
        assert all(reason.startswith(STAGING) for reason in reasons)

    for made in crowded.decisions:
        if isinstance(made, DispatchBatch):
            members = {loop.request_id for loop in made.loops}
            for request_id in members:
                batches = {one.batch_id: one for one in crowded.told[request_id].batches}
                assert set(batches[made.batch_id].request_ids) == members
                assert batches[made.batch_id].units == len(made.unit_ids)


def test_who_gave_its_place_away_says_to_whom_and_where_it_went_on(
    preempted: tuple[Run, str],
) -> None:
    run, urgent = preempted
    set_aside = [one for one in run.decisions if isinstance(one, PreemptRequest)]
    assert any(urgent in one.reason for one in set_aside)
    for decision in set_aside:
        victim = run.told[decision.request_id]
        ends = [attempt.end for attempt in victim.attempts]
        assert f"preempted: {decision.reason}" in ends
        assert ends[-1] == "completed"
        assert victim.attempts[-1].resumed_from
        assert victim.totals.waited_by_cause["preemption"] > 0
    assert not any(attempt.end.startswith("preempted") for attempt in run.told[urgent].attempts)


@pytest.mark.row("EVT-21")
def test_trace_scheduler_tells_admission_deferral_preemption_and_batches(
    crowded: Run, preempted: tuple[Run, str]
) -> None:
    run = preempted[0]
    assert crowded.names == run.names == {"trace.scheduler"}
    for request_id in (*crowded.told, *run.told):
        made = [*crowded.decisions, *run.decisions]
        assert any(isinstance(one, StartRequest) and one.request_id == request_id for one in made)
        assert any(
            isinstance(one, AssignLoop) and one.loop.request_id == request_id for one in made
        )
    batches = [one for one in crowded.decisions if isinstance(one, DispatchBatch)]
    assert any(len({loop.request_id for loop in batch.loops}) > 1 for batch in batches)
    assert any(isinstance(one, DeferLoop) and one.reason for one in crowded.decisions)
    assert any(isinstance(one, PreemptRequest) and one.reason for one in run.decisions)


async def _crowded(stack: Stack) -> Run:
    async with AsyncClient(stack.gateway) as client:
        submits = (_submit(client, number, steps=2, frames=FRAMES) for number in range(REQUESTS))
        return await _ended(stack, client, await asyncio.gather(*submits))


async def _preempted(stack: Stack) -> tuple[Run, str]:
    async with AsyncClient(stack.gateway) as client:
        ids = [await _submit(client, number, steps=100) for number in range(PLACES)]
        async with asyncio.timeout(60):
            while not all([(await client.get(id_)).progress for id_ in ids]):
                await asyncio.sleep(0.02)
        urgent = await _submit(client, PLACES, steps=25, priority=10)
        return await _ended(stack, client, [*ids, urgent]), urgent


async def _submit(
    client: AsyncClient, seed: int, *, steps: int, frames: int = 9, priority: int = 0
) -> str:
    state = await client.submit(
        "a blue seven",
        sampling=SamplingOverrides(steps=steps, seed=seed, num_frames=frames),
        outputs=OutputSpec(video=True, sheet=True, latents=True),
        priority=priority,
    )
    return state.spec.request_id


async def _ended(stack: Stack, client: AsyncClient, request_ids: Sequence[str]) -> Run:
    """Wait for requests, and gather what was said of them."""
    async with asyncio.timeout(200):
        for request_id in request_ids:
            await client.wait(request_id)
    told = {request_id: await client.explain(request_id) for request_id in request_ids}
    decisions = []
    names = set()
    for event in await stack.log("scheduler-"):
        if isinstance(event.payload, SchedulerDecided):
            names.add(event.name)
            decisions += [one for one in event.payload.decisions if _is_about(one, told)]
    return Run(decisions, names, told)


def _is_about(decision: Decision, request_ids: Collection[str]) -> bool:
    match decision:
        case AssignLoop(loop=loop) | DeferLoop(loop=loop) | CancelLoop(loop=loop):
            return loop.request_id in request_ids
        case DispatchBatch(loops=loops):
            return any(loop.request_id in request_ids for loop in loops)
        case YieldBatch():
            return False
        case _:
            return decision.request_id in request_ids


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
