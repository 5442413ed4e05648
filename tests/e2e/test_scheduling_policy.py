"""A deployment that schedules by a file: the order of work, what who waits is told, and windows."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from fastvideo import wire
from fastvideo.api.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from fastvideo.api.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
from fastvideo.client import AsyncClient
from fastvideo.requests.events import RequestQueued
from fastvideo.requests.types import RequestState, RequestStatus, SamplingOverrides
from fastvideo.rpc.channel import open_channel
from fastvideo.scheduling.events import DispatchBatch, SchedulerDecided, YieldBatch
from fastvideo.scheduling.work import CancelScope, CancelScopeKind
from tests.e2e import patient_http as httpx
from tests.e2e.stack import Stack, poll, running_stack

# A stack of its own, and requests that wait for each other on purpose.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NARROW = {"resident_requests_max": 1, "window_steps_max": 1, "queue_news_seconds_min": 0.0}
# However slow the machine is, a window is cut by its steps alone.
WIDE = {"window_steps_max": 16, "window_seconds_max": 60.0}
PROMPT = "a red three moving left"


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack that runs one request at a time, and asks after every step."""
    with scheduled(tmp_path_factory, NARROW) as running:
        yield running


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack with long windows."""
    with scheduled(tmp_path_factory, WIDE) as running:
        yield running


@contextmanager
def scheduled(
    tmp_path_factory: pytest.TempPathFactory, policy: dict[str, float]
) -> Iterator[Stack]:
    file = tmp_path_factory.mktemp("policy") / "scheduling.yaml"
    file.write_text(yaml.safe_dump(policy))
    with running_stack(options=("--policy", str(file))) as running:
        yield running


async def decisions(stack: Stack) -> list[object]:
    events = await stack.log("scheduler-")
    return [
        decision
        for event in events
        if isinstance(event.payload, SchedulerDecided)
        for decision in event.payload.decisions
    ]


async def ended(client: AsyncClient, request_ids: list[str]) -> dict[str, RequestState]:
    async with asyncio.timeout(120):
        return {request_id: await client.wait(request_id) for request_id in request_ids}


@pytest.mark.row("REQ-17")
async def test_priority_and_deadline_decide_who_is_next(narrow: Stack) -> None:
    sampling = SamplingOverrides(steps=12)
    soon = datetime.now(UTC) + timedelta(minutes=5)
    async with AsyncClient(narrow.gateway) as client:
        first = await client.submit(PROMPT, sampling=SamplingOverrides(steps=60))
        names = {"first": first.spec.request_id}
        asked: dict[str, dict[str, Any]] = {
            "plain": {},
            "late": {"deadline": soon + timedelta(minutes=5)},
            "soon": {"deadline": soon},
            "urgent": {"priority": 3},
        }
        submits = (client.submit(PROMPT, sampling=sampling, **one) for one in asked.values())
        for name, state in zip(asked, await asyncio.gather(*submits), strict=True):
            names[name] = state.spec.request_id
        states = await ended(client, list(names.values()))
    assert all(state.status is RequestStatus.COMPLETED for state in states.values())
    # The first may be set aside for the urgent one, and goes on when it has a place again.
    del names["first"]
    ended_at = {name: str(states[id_].ended_at) for name, id_ in names.items()}
    order = sorted(names, key=ended_at.__getitem__)
    assert order == ["urgent", "soon", "late", "plain"]


@pytest.mark.row("EVT-02")
async def test_who_waits_is_told_how_the_queue_shrinks(narrow: Stack) -> None:
    async with AsyncClient(narrow.gateway) as client:
        before = SamplingOverrides(steps=10)
        await asyncio.gather(*(client.submit(PROMPT, sampling=before) for _ in range(5)))
        last = await client.submit(PROMPT, sampling=before)
        places = []
        async with asyncio.timeout(120):
            async for event in client.watch(last.spec.request_id):
                if isinstance(event.payload, RequestQueued):
                    places.append(event.payload.position)
                    assert "all 1 places" in event.payload.reason
    assert places == sorted(places, reverse=True)
    assert places[-1] == 1
    assert len(set(places)) >= 3


@pytest.mark.row("API-19", "REQ-12")
async def test_what_waits_for_a_place_is_cancelled_and_never_begins(narrow: Stack) -> None:
    url = f"http://{narrow.address('gateway-http')}"
    # So long that it holds the place to the end, on any machine.
    long = SamplingOverrides(steps=1000, width=128, height=128, num_frames=17)

    def polled(request_id: str) -> Any:
        return httpx.get(f"{url}/v1/videos/{request_id}").json()["status"]

    async with AsyncClient(narrow.gateway) as client:
        session = (await client.create_session()).session_id
        holder = await client.submit(PROMPT, sampling=long)
        in_line = [
            await client.submit(PROMPT, sampling=long, session_id=where)
            for where in ("", session, session)
        ]
        first, *others = (state.request_id for state in in_line)
        poll("it is queued", lambda: polled(first) == "queued" or None)
        answer = httpx.post(f"{url}/v1/videos/{first}/cancel", timeout=60)
        assert answer.json()["status"] == polled(first) == "cancelled"
        scope = CancelScope(kind=CancelScopeKind.SESSION, target_id=session)
        async with open_channel(narrow.gateway) as channel:
            gateway = gateway_pb2_grpc.GatewayServiceStub(channel)
            await gateway.CancelRequest(
                gateway_pb2.CancelRequestRequest(scope=wire.to_proto(scope)), timeout=60
            )
        states = await ended(client, others)
        # All that while the one place was taken.
        assert (await client.cancel(holder.request_id)).started_at is not None
        states |= await ended(client, [first, holder.request_id])
    assert {state.status for state in states.values()} == {RequestStatus.CANCELLED}
    assert [states[name].started_at for name in (first, *others)] == [None] * 3


@pytest.mark.row("LOOP-14")
async def test_windows_give_the_bits_of_single_steps(wide: Stack, narrow: Stack) -> None:
    digests = []
    windows = []
    for where in (wide, narrow):
        # Twice, since the first may teach what a step costs.
        for _ in range(2):
            made = where.generate(PROMPT, "--steps", "24", "--seed", "5")
        digests.append(made["latents_digest"])
        dispatched = [
            decision
            for decision in await decisions(where)
            if isinstance(decision, DispatchBatch)
            and any(loop.request_id == made["id"] for loop in decision.loops)
        ]
        windows.append(max(batch.window for batch in dispatched))
    assert digests[0] == digests[1]
    assert windows[0] > 1
    assert windows[1] == 1


async def test_a_newcomer_ends_a_window(wide: Stack) -> None:
    wide.generate(PROMPT, "--steps", "8")
    before = sum(isinstance(decision, YieldBatch) for decision in await decisions(wide))
    async with AsyncClient(wide.gateway) as client:
        # So long that it runs alone, in windows, between the newcomers.
        long = [
            (await client.submit(PROMPT, sampling=SamplingOverrides(steps=800))).spec.request_id
        ]
        for n in range(6):
            await asyncio.sleep(0.4)
            short = await client.submit(f"{PROMPT} {n}", sampling=SamplingOverrides(steps=4))
            long.append(short.spec.request_id)
        states = await ended(client, long)
    assert all(state.status is RequestStatus.COMPLETED for state in states.values())
    after = sum(isinstance(decision, YieldBatch) for decision in await decisions(wide))
    assert after > before


@pytest.mark.row("SCH-07")
async def test_predictions_get_better_and_their_error_is_published(narrow: Stack) -> None:
    async with open_channel(narrow.address("scheduler-1")) as channel:
        scheduler = scheduler_pb2_grpc.SchedulerServiceStub(channel)
        # Steps of a machine that was busy for a while take other times than predicted.
        for _ in range(30):
            narrow.generate(PROMPT, "--steps", "20")
            status = await scheduler.GetStatus(scheduler_pb2.GetStatusRequest(), timeout=60)
            card = await scheduler.GetDeploymentCard(
                scheduler_pb2.GetDeploymentCardRequest(), timeout=60
            )
            denoise = [e for e in card.card.cost_model.entries if e.samples > 100]
            errors = [status.prediction_error, *(entry.relative_error for entry in denoise)]
            if denoise and max(errors) < 0.5:
                break
        assert denoise
        assert max(errors) < 0.5
        assert status.predictions > 100


def test_a_policy_that_is_wrong_is_refused_by_name_before_anything_starts(
    narrow: Stack, tmp_path: Path
) -> None:
    file = tmp_path / "scheduling.yaml"
    file.write_text("resident_request_max: 4\n")
    data = tmp_path / "data"
    outcome = narrow.run("up", "--detach", "--data", str(data), "--policy", str(file))
    assert outcome.code == 1
    assert "scheduling.yaml: resident_request_max: unknown field" in " ".join(outcome.err.split())
    assert not data.exists()
