"""Fifty random requests, some cancelled, a worker and the leader killed: all of it replays.

For every request what is served is the fold of its stream, and its run gives every digest again;
the shard's scheduler decides every decision again, over the change of its leader.
"""

import asyncio
import os
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace

import pytest

from fastvideo.client import AsyncClient, CallPolicy
from fastvideo.replay.types import ReplayKind, ReplayReport, ReplayRequest
from fastvideo.requests.events import RequestProgressed
from fastvideo.requests.types import RequestState, RequestStatus, SamplingOverrides
from fastvideo.scheduling.events import AssignLoop, LeaderElected, SchedulerDecided, WorkerLost
from tests.e2e.stack import Stack, running_stack
from tests.e2e.test_failover import SCHEDULERS, WORKERS, home, leader

REQUESTS = 50
CANCELLED = 8
MORTAL = (*SCHEDULERS, *WORKERS)
# Through the gateway and a worker; the others run in this process, which loads torch once.
BESIDE_A_WORKER = 3
SHAPES = ((48, 48, 9), (48, 48, 5), (64, 48, 9), (32, 48, 13))
PROMPTS = ("a red three moving left", "blue digit seven moves up", "a green two", "the yellow six")
PATIENT = CallPolicy(timeout_s=60.0, silence_s_max=120.0)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Happened:
    """What was asked of the stack, and what became of it."""

    states: tuple[RequestState, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(state.spec.request_id for state in self.states)


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with running_stack(workers=2, schedulers=2) as running:
        yield running


@pytest.fixture(scope="module")
def happened(stack: Stack) -> Happened:
    seed = int(os.environ.get("FASTVIDEO_TEST_SEED", "0")) or random.randrange(2**31)
    sys.stdout.write(f"FASTVIDEO_TEST_SEED={seed}\n")
    return asyncio.run(_happen(stack, random.Random(seed)))


async def _happen(stack: Stack, chance: random.Random) -> Happened:
    async with AsyncClient(stack.gateway, policy=PATIENT) as client:
        cancelled = set(chance.sample(range(REQUESTS), CANCELLED))
        # Something runs when they die.
        hurts = {REQUESTS // 3: "worker", 2 * REQUESTS // 3: "leader"}
        waiting: list[asyncio.Task[RequestState]] = []
        for number in range(REQUESTS):
            sampling = _sampling(chance, number)
            if number in hurts:
                sampling = replace(sampling, steps=200)
                # Known before, for to ask takes longer than many steps.
                pids = {name: await asyncio.to_thread(stack.pid, name) for name in MORTAL}
            asked = await client.submit(chance.choice(PROMPTS), sampling=sampling)
            wait = client.wait(asked.spec.request_id)
            waiting.append(asyncio.create_task(wait))
            if number in cancelled:
                await asyncio.sleep(chance.random() * 0.3)
                await client.cancel(asked.spec.request_id, reason="changed my mind")
            if number in hurts:
                await _begun(client, asked.spec.request_id)
                by_worker = hurts[number] == "worker"
                name = await (home(stack, asked.spec.request_id) if by_worker else leader(stack))
                os.kill(pids[name], signal.SIGKILL)
            await asyncio.sleep(chance.random() * 0.05)
        return Happened(tuple(await asyncio.gather(*waiting)))


async def _begun(client: AsyncClient, request_id: str) -> None:
    """Wait until a step of a request has been told of."""
    async with aclosing(client.watch(request_id)) as events:
        async for event in events:
            if isinstance(event.payload, RequestProgressed):
                return


def _sampling(chance: random.Random, number: int) -> SamplingOverrides:
    width, height, frames = chance.choice(SHAPES)
    return SamplingOverrides(
        width=width,
        height=height,
        num_frames=frames,
        steps=chance.randint(2, 12),
        guidance_scale=chance.choice((1.0, 3.0)),
        seed=number,
    )


async def test_that_it_was_as_wild_as_it_should_be(stack: Stack, happened: Happened) -> None:
    statuses = [state.status for state in happened.states]
    assert statuses.count(RequestStatus.COMPLETED) >= REQUESTS - CANCELLED
    assert RequestStatus.FAILED not in statuses
    events = [event.payload for event in await stack.log("scheduler-")]
    assert any(isinstance(event, WorkerLost) for event in events)
    assert sum(isinstance(event, LeaderElected) for event in events) >= 2
    attempts = [
        decision.loop.attempt
        for event in events
        if isinstance(event, SchedulerDecided)
        for decision in event.decisions
        if isinstance(decision, AssignLoop)
    ]
    assert max(attempts) > 1, "nobody was thrown back by the loss"


async def test_what_is_served_of_each_is_the_fold_of_its_stream(
    stack: Stack, happened: Happened
) -> None:
    async with AsyncClient(stack.gateway, policy=PATIENT) as client:
        report = await client.replay(ReplayKind.STATE, comparisons_max=REQUESTS * 2)
        assert report.equal, report.first_divergence
        compared = {one.subject.removeprefix("request ") for one in report.comparisons}
        assert compared >= set(happened.ids)
        assert report.digests["requests"] == report.digests["requests served"]
        scheduler = await client.replay(ReplayKind.STATE, "scheduler")
        assert scheduler.equal, scheduler.first_divergence
        assert scheduler.compared >= 1, scheduler.headline


async def test_every_decision_is_made_again(stack: Stack, happened: Happened) -> None:
    async with AsyncClient(stack.gateway, policy=PATIENT) as client:
        shard = await client.replay(ReplayKind.DECISION)
        assert shard.equal, shard.first_divergence
        assert shard.promise.kind == "bits"
        assert shard.compared > 10 * REQUESTS
        took = f"{shard.seconds:.1f} s of {shard.original_seconds:.1f} s"
        sys.stdout.write(f"{shard.compared} decisions: {took}\n")
        for request_id in random.sample(happened.ids, 5):
            one = await client.replay(ReplayKind.DECISION, request_id)
            assert one.equal, (request_id, one.first_divergence)


async def test_every_run_gives_every_digest_again(stack: Stack, happened: Happened) -> None:
    seconds = original = 0.0
    async with AsyncClient(stack.gateway, policy=PATIENT) as client:
        for number, request_id in enumerate(happened.ids):
            if number < BESIDE_A_WORKER:
                report = await client.replay(ReplayKind.EXECUTION, request_id)
            else:
                report = await _run_here(stack, client, request_id)
            assert report.equal, (request_id, report.headline, report.first_divergence)
            # One that was cancelled before it ran has nothing to be compared.
            assert report.promise.kind == "bits" or not report.compared, report.promise
            seconds += report.seconds
            original += report.original_seconds
    sys.stdout.write(f"{len(happened.ids)} runs: {seconds:.1f} s of {original:.1f} s\n")


async def _run_here(stack: Stack, client: AsyncClient, request_id: str) -> ReplayReport:
    """As the process of a replay does it."""
    from fastvideo.recompute.host import HostSetup
    from fastvideo.recompute.kinds import run_replay
    from fastvideo.recompute.sources import ArtifactServiceSources

    run = await client.logged_run(request_id)
    request = ReplayRequest(kind=ReplayKind.EXECUTION, subject_id=request_id)
    with ArtifactServiceSources(stack.address("artifacts")) as sources:
        return await asyncio.to_thread(
            run_replay, request, run, HostSetup(), sources, lambda _: None
        )
