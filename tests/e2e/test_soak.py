"""A thousand mixed requests leave nothing behind: no pool, no credit, no slot, no memory."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import grpc
import psutil
import pytest

from fastvideo.api.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
from fastvideo.api.worker.v1 import worker_pb2, worker_pb2_grpc
from fastvideo.client import AsyncClient, CallPolicy
from fastvideo.requests.types import RequestStatus, SamplingOverrides
from tests.e2e.stack import Stack, running_stack

REQUESTS: Final = 1_000
# Before the first look, so that allocators and caches have their working size.
# Until workers have met the shapes and batch sizes of the mixture: over 2,500 more requests memory
# stays where it is by then.
WARM_UP: Final = 500
AT_ONCE: Final = 24
MEMORY_GROWTH_MAX: Final = 0.05
PROMPTS: Final = tuple(
    f"a {colour} {digit} moving {way}"
    for colour in ("red", "green", "blue")
    for digit in ("two", "five")
    for way in ("left", "up")
)
PATIENT = CallPolicy(timeout_s=60.0, silence_s_max=120.0)
SERVICES: Final = ("gateway", "scheduler-1", "worker-1", "worker-2", "artifacts", "sessions")

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def soaked() -> Iterator[Stack]:
    """A stack of its own, whose memory nobody else moves."""
    with running_stack(workers=2) as stack:
        yield stack


@dataclass(frozen=True)
class Standing:
    """What is held when nothing runs."""

    reserved: Mapping[str, float]
    pools: Mapping[str, Mapping[str, int]]
    loops: Mapping[str, int]
    resident_bytes: Mapping[str, int]


async def standing(stack: Stack) -> Standing:
    """How things stand once all has ended."""
    async with asyncio.timeout(60):
        while True:
            status = await _scheduler_status(stack)
            if not status.live_requests and not any(status.reserved.values()):
                break
            await asyncio.sleep(0.2)
    healths = {name: await _health(stack, name) for name in ("worker-1", "worker-2")}
    pids = {name: await asyncio.to_thread(stack.pid, name) for name in SERVICES}
    return Standing(
        reserved=dict(status.reserved),
        # Caches are full or not by what was asked last; their budget is a test of its own.
        pools={
            name: {tag: size for tag, size in health.memory_bytes.items() if tag != "caches"}
            for name, health in healths.items()
        },
        loops={name: health.loops for name, health in healths.items()},
        resident_bytes={name: psutil.Process(pid).memory_info().rss for name, pid in pids.items()},
    )


async def _scheduler_status(stack: Stack) -> Any:
    async with grpc.aio.insecure_channel(stack.address("scheduler-1")) as channel:
        stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
        return await stub.GetStatus(scheduler_pb2.GetStatusRequest(), timeout=60)


async def _health(stack: Stack, worker: str) -> Any:
    async with grpc.aio.insecure_channel(stack.address(worker)) as channel:
        stub = worker_pb2_grpc.WorkerServiceStub(channel)
        return await stub.Health(worker_pb2.HealthRequest(), timeout=60)


class Customers:
    """Requests of every fate: completed, cancelled, failed, watched by a client that goes."""

    def __init__(self, stack: Stack, client: AsyncClient, seed: int) -> None:
        self._stack = stack
        self._client = client
        self._chance = random.Random(seed)
        self._room = asyncio.Semaphore(AT_ONCE)
        self.ends: Counter[str] = Counter()

    async def run(self, count: int) -> None:
        """So many requests, several at once."""
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                await self._room.acquire()
                group.create_task(self._one())

    async def _one(self) -> None:
        try:
            fate = self._chance.choices(
                ("completed", "cancelled", "failed", "disconnected"), (60, 20, 10, 10)
            )[0]
            self.ends[await getattr(self, f"_{fate}")()] += 1
        finally:
            self._room.release()

    async def _completed(self) -> str:
        return await self._end(await self._submit(self._small()))

    async def _cancelled(self) -> str:
        request_id = await self._submit(SamplingOverrides(steps=300))
        await asyncio.sleep(self._chance.uniform(0, 0.6))
        await self._client.cancel(request_id)
        return await self._end(request_id)

    async def _failed(self) -> str:
        soon = datetime.now(UTC) + timedelta(seconds=self._chance.uniform(3, 5))
        return await self._end(await self._submit(SamplingOverrides(steps=1000), deadline=soon))

    async def _disconnected(self) -> str:
        request_id = await self._submit(self._small())
        async with AsyncClient(self._stack.gateway, policy=PATIENT) as other:
            watching = asyncio.create_task(other.wait(request_id))
            await asyncio.sleep(self._chance.uniform(0, 0.2))
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        return await self._end(request_id)

    async def _end(self, request_id: str) -> str:
        async with asyncio.timeout(180):
            state = await self._client.wait(request_id)
        if state.status is RequestStatus.FAILED:
            assert state.error is not None
            return f"failed: {state.error.reason}"
        return state.status.value

    def _small(self) -> SamplingOverrides:
        size = self._chance.choice((32, 48, 64))
        return SamplingOverrides(
            width=size,
            height=size,
            num_frames=self._chance.choice((1, 5, 9)),
            steps=self._chance.randint(1, 4),
            guidance_scale=self._chance.choice((1.0, 3.0)),
        )

    async def _submit(self, sampling: SamplingOverrides, **options: Any) -> str:
        prompt = self._chance.choice(PROMPTS)
        state = await self._client.submit(prompt, sampling=sampling, **options)
        return state.spec.request_id


@pytest.mark.row("REQ-15")
async def test_a_thousand_mixed_requests_leave_nothing_behind(soaked: Stack) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - so that a failure can be repeated
    async with AsyncClient(soaked.gateway, policy=PATIENT) as client:
        warm = Customers(soaked, client, seed + 1)
        await warm.run(WARM_UP)
        before = await standing(soaked)
        customers = Customers(soaked, client, seed)
        await customers.run(REQUESTS)
        after = await standing(soaked)
    print(dict(customers.ends), before, after)  # noqa: T201 - the figures of the soak
    assert sum(customers.ends.values()) == REQUESTS
    assert set(customers.ends) == {"completed", "cancelled", "failed: DEADLINE_EXCEEDED"}
    assert not any(after.reserved.values())
    assert after.pools == before.pools
    assert not any(after.loops.values())
    grown = {
        name: after.resident_bytes[name] / before.resident_bytes[name] - 1 for name in SERVICES
    }
    assert {name: growth for name, growth in grown.items() if growth > MEMORY_GROWTH_MAX} == {}
