"""Two schedulers and two workers under load: whoever is killed or paused, the bits are the same."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator

import grpc
import pytest

from fastvideo.api.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
from fastvideo.client import AsyncClient, CallPolicy, Client
from fastvideo.events.catalog import TERMINAL
from fastvideo.events.types import Event
from fastvideo.requests.types import RequestState, RequestStatus, SamplingOverrides
from fastvideo.scheduling.events import (
    BatchExecuted,
    RestartRequest,
    SchedulerDecided,
    WorkerLost,
)
from tests.e2e.stack import Stack, poll, running_stack

PROMPT = "a green four moving down"
KINDS = tuple((steps, seed) for seed, steps in enumerate((16, 24, 40, 60)))
LOAD = 16
KILLS = 30
VICTIMS = ("worker-1", "worker-2", "scheduler-1", "scheduler-2")
PATIENT = CallPolicy(timeout_s=60.0, silence_s_max=120.0)
REQUEST_S_MAX = 240.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def fleet() -> Iterator[Stack]:
    """Two of each, which these tests may hurt."""
    with running_stack(workers=2, schedulers=2) as stack:
        yield stack


@pytest.fixture(scope="module")
def undisturbed(fleet: Stack) -> dict[tuple[int, int], str]:
    """Latents digest by (steps, seed), of requests that nobody disturbs."""
    with Client(fleet.gateway, policy=PATIENT) as client:
        return {
            (steps, seed): client.generate(
                PROMPT, sampling=SamplingOverrides(steps=steps, seed=seed)
            ).latents_digest
            for steps, seed in KINDS
        }


async def submit(client: AsyncClient, kind: tuple[int, int]) -> str:
    steps, seed = kind
    sampling = SamplingOverrides(steps=steps, seed=seed)
    return (await client.submit(PROMPT, sampling=sampling)).spec.request_id


async def ended(client: AsyncClient, request_id: str) -> RequestState:
    """The ended request, after checking that its watch has one terminal event, the last."""
    types: list[str] = []
    async with asyncio.timeout(REQUEST_S_MAX):
        state = await client.wait(request_id, on_event=lambda event: types.append(event.type))
    assert [type_ for type_ in types if type_ in TERMINAL] == types[-1:]
    return state


def check(state: RequestState, digest: str) -> None:
    """It completed with these bits and one artifact of each name."""
    assert state.status is RequestStatus.COMPLETED, f"{state.spec.request_id}: {state.error}"
    assert state.latents_digest == digest, state.spec.request_id
    names = Counter(artifact.name for artifact in state.artifacts)
    assert names
    assert set(names.values()) == {1}, names


def leader(stack: Stack) -> str:
    """The name of the scheduler that leads."""

    def ask() -> str | None:
        for name in ("scheduler-1", "scheduler-2"):
            with grpc.insecure_channel(stack.address(name)) as channel:
                stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
                try:
                    if stub.GetStatus(scheduler_pb2.GetStatusRequest(), timeout=2).leader:
                        return name
                except grpc.RpcError:
                    continue
        return None

    return poll("a scheduler leads", ask)


async def test_thirty_random_kills_under_a_load_of_sixteen(
    fleet: Stack, undisturbed: dict[tuple[int, int], str]
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - so that a failure can be repeated
    chance = random.Random(seed)
    over = asyncio.Event()
    completed = 0

    async def customer(client: AsyncClient, number: int) -> None:
        """One request after another, as long as there are kills."""
        nonlocal completed
        mine = random.Random(seed + number)
        while not over.is_set():
            kind = mine.choice(KINDS)
            check(await ended(client, await submit(client, kind)), undisturbed[kind])
            completed += 1

    async with AsyncClient(fleet.gateway, policy=PATIENT) as client, asyncio.TaskGroup() as group:
        for number in range(LOAD):
            group.create_task(customer(client, number))
        for _ in range(KILLS):
            await asyncio.sleep(chance.uniform(0.2, 2.0))
            victim = chance.choice(VICTIMS)
            os.kill(await asyncio.to_thread(fleet.pid, victim), signal.SIGKILL)
        over.set()
    assert completed >= LOAD


async def test_the_death_of_the_leader_restarts_no_loop(
    fleet: Stack, undisturbed: dict[tuple[int, int], str]
) -> None:
    kind = KINDS[-1]
    for _ in range(3):
        async with AsyncClient(fleet.gateway, policy=PATIENT) as client:
            ids = [await submit(client, kind) for _ in range(4)]
            await asyncio.sleep(0.7)
            name = await asyncio.to_thread(leader, fleet)
            pid = await asyncio.to_thread(fleet.pid, name)
            os.kill(pid, signal.SIGKILL)
            killed_s = time.monotonic()
            await asyncio.to_thread(leader, fleet)
            assert time.monotonic() - killed_s < 10
            for request_id in ids:
                state = await ended(client, request_id)
                check(state, undisturbed[kind])
                assert state.metrics is not None
                assert state.metrics.attempts == 1, request_id
        await asyncio.to_thread(fleet.pid, name)


async def test_a_paused_worker_comes_back_and_its_late_results_are_refused(
    fleet: Stack, undisturbed: dict[tuple[int, int], str]
) -> None:
    kind = KINDS[-1]
    pids = [await asyncio.to_thread(fleet.pid, name) for name in ("worker-1", "worker-2")]
    before = len(await fleet.log("scheduler-"))
    async with AsyncClient(fleet.gateway, policy=PATIENT) as client:
        ids = [await submit(client, kind) for _ in range(6)]
        await asyncio.sleep(1.0)
        os.kill(pids[0], signal.SIGSTOP)
        try:
            await lost(fleet, before)
        finally:
            os.kill(pids[0], signal.SIGCONT)
        for request_id in ids:
            check(await ended(client, request_id), undisturbed[kind])
    events = (await fleet.log("scheduler-"))[before:]
    check_one_result_a_unit(events)
    # It is of use again afterwards.
    async with AsyncClient(fleet.gateway, policy=PATIENT) as client:
        async with asyncio.timeout(60):
            while True:
                more = [await submit(client, KINDS[0]) for _ in range(4)]
                for request_id in more:
                    check(await ended(client, request_id), undisturbed[KINDS[0]])
                late = (await fleet.log("scheduler-"))[before + len(events) :]
                if {"worker-1", "worker-2"} <= {
                    event.payload.worker_id
                    for event in late
                    if isinstance(event.payload, BatchExecuted)
                }:
                    break


async def lost(stack: Stack, after: int) -> None:
    """Wait until the scheduler has given a worker up, by the log after so many events."""
    async with asyncio.timeout(60):
        while True:
            events = (await stack.log("scheduler-"))[after:]
            if any(isinstance(event.payload, WorkerLost) for event in events):
                return
            await asyncio.sleep(0.5)


def check_one_result_a_unit(events: list[Event]) -> None:
    """No unit of an attempt has a result of two workers, and none comes after its restart."""
    newest: dict[str, int] = {}
    results: Counter[tuple[str, int, str]] = Counter()
    for event in events:
        payload = event.payload
        if isinstance(payload, SchedulerDecided):
            for decision in payload.decisions:
                if isinstance(decision, RestartRequest):
                    newest[decision.request_id] = decision.attempt
        elif isinstance(payload, BatchExecuted):
            for result in payload.results:
                if result.error is None:
                    assert result.loop.attempt >= newest.get(result.loop.request_id, 0)
                    key = (result.loop.request_id, result.loop.attempt, result.unit_id)
                    results[key] += 1
    assert [key for key, count in results.items() if count > 1] == []
