"""Nothing that was accepted is lost or doubled, whatever is killed, wiped or restarted."""

import asyncio
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from fastvideo.client import AsyncClient, CallPolicy, Client
from fastvideo.events.catalog import TERMINAL
from fastvideo.events.types import Event
from fastvideo.model.embedded import EMBEDDED_MODEL_ID
from fastvideo.requests.events import RequestQueued
from fastvideo.requests.types import RequestState, RequestStatus, SamplingOverrides
from tests.e2e.stack import Stack, running_stack
from tests.plugins.http import call
from tests.plugins.waiting import eventually

PROMPT = "a white six moving right"
STEPS = 30
KILLS_EACH = 4
SEEDS = 3
VICTIMS = ("gateway", "scheduler-1", "worker-1", "nats", "postgres")
# Long enough for a part to be restarted and for a worker to load its model again.
PATIENT = CallPolicy(timeout_s=60.0, silence_s_max=120.0)
REQUEST_S_MAX = 150.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def own_stack() -> Iterator[Stack]:
    """A stack that these tests may hurt."""
    with running_stack() as stack:
        yield stack


async def submit(client: AsyncClient, seed: int) -> str:
    sampling = SamplingOverrides(steps=STEPS, seed=seed)
    return (await client.submit(PROMPT, sampling=sampling)).spec.request_id


async def ended(client: AsyncClient, request_id: str) -> RequestState:
    """The ended request, after checking that its watch has one terminal event, the last."""
    types: list[str] = []
    async with asyncio.timeout(REQUEST_S_MAX):
        state = await client.wait(request_id, on_event=lambda event: types.append(event.type))
    assert [type_ for type_ in types if type_ in TERMINAL] == types[-1:]
    return state


@pytest.fixture(scope="module")
def undisturbed(own_stack: Stack) -> dict[int, str]:
    """Latents digests by seed, of requests that nobody disturbs."""
    with Client(own_stack.gateway, policy=PATIENT) as client:
        return {
            seed: client.generate(
                PROMPT, sampling=SamplingOverrides(steps=STEPS, seed=seed)
            ).latents_digest
            for seed in range(SEEDS)
        }


async def listed(client: AsyncClient) -> Counter[str]:
    """How often each request is in the list of all."""
    found: Counter[str] = Counter()
    token = ""
    while True:
        page = await client.list(page_size=50, page_token=token)
        found.update(state.spec.request_id for state in page.items)
        token = page.next_page_token
        if not token:
            return found


@pytest.mark.parametrize("victim", VICTIMS)
async def test_random_kills_lose_and_double_nothing(
    own_stack: Stack, undisturbed: dict[int, str], victim: str
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - so that a failure can be repeated
    chance = random.Random(seed)
    async with AsyncClient(own_stack.gateway, policy=PATIENT) as client:
        before = await listed(client)
        submitted: list[str] = []
        for kill in range(KILLS_EACH):
            pid = await asyncio.to_thread(own_stack.pid, victim)
            which = chance.randrange(SEEDS)
            submitted.append(await submit(client, which))
            await asyncio.sleep(chance.uniform(0, 1.2))
            os.kill(pid, signal.SIGKILL)
            state = await ended(client, submitted[-1])
            assert state.status is RequestStatus.COMPLETED, f"kill {kill}: {state.error}"
            assert state.latents_digest == undisturbed[which], f"kill {kill}"
            assert len({artifact.artifact_id for artifact in state.artifacts}) == 1
        assert await listed(client) == before + Counter(submitted)


@pytest.mark.row("EVT-02")
async def test_without_a_worker_a_request_is_queued_and_says_why(own_stack: Stack) -> None:
    ready = f"/health/ready?model={EMBEDDED_MODEL_ID}"

    async def told(status: int) -> bool:
        return (await call(own_stack.address("gateway-http"), ready)).status == status

    pid = own_stack.pid("worker-1")
    await eventually(lambda: told(200), timeout_s=REQUEST_S_MAX)
    os.kill(pid, signal.SIGKILL)
    queued: list[RequestQueued] = []

    def note(event: Event) -> None:
        if isinstance(event.payload, RequestQueued):
            queued.append(event.payload)

    async with AsyncClient(own_stack.gateway, policy=PATIENT) as client:
        request_id = await submit(client, 0)
        await eventually(lambda: told(503), timeout_s=REQUEST_S_MAX)
        async with asyncio.timeout(REQUEST_S_MAX):
            state = await client.wait(request_id, on_event=note)
    assert state.status is RequestStatus.COMPLETED
    await eventually(lambda: told(200), timeout_s=REQUEST_S_MAX)
    assert queued
    assert all(event.position or event.reason for event in queued)


def test_data_survives_down_and_up_and_a_wiped_bus(own_stack: Stack) -> None:
    before = own_stack.generate(PROMPT, "--steps", "4", "--seed", "1")
    events = own_stack.watch(before["id"])
    own_stack.down()
    shutil.rmtree(own_stack.data / "nats")
    own_stack.up()
    assert own_stack.run("request", "get", before["id"], "--json").json == before
    assert own_stack.watch(before["id"]) == events
    after = own_stack.generate(PROMPT, "--steps", "4", "--seed", "1")
    assert after["latents_digest"] == before["latents_digest"]


async def test_an_artifact_outlives_a_restart(own_stack: Stack) -> None:
    record = own_stack.generate(PROMPT, "--steps", "2", "--seed", "1")
    os.kill(own_stack.pid("artifacts"), signal.SIGKILL)
    async with AsyncClient(own_stack.gateway, policy=PATIENT) as client:
        state = await client.get(record["id"])
        [artifact] = state.artifacts
        data = await client.read_artifact(artifact.artifact_id)
    assert len(data) == record["artifacts"][0]["bytes"]
