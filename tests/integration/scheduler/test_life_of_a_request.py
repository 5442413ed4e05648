"""From the accepted event to the terminal one, through a real scheduler and a scripted worker."""

import asyncio

import pytest

from fastvideo.requests.events import RequestAccepted
from fastvideo.scheduling.events import DispatchBatch, StartRequest
from tests.integration.scheduler.conftest import WAIT_S, Stage, until
from tests.unit.scheduling.world import request


@pytest.mark.row("EVT-01", "EVT-03", "EVT-04", "EVT-07")
async def test_a_request_runs_and_its_stream_tells_it(stage: Stage):
    scheduler = await stage.scheduler()
    await stage.worker("w1", scheduler)
    await stage.submit("r1", steps=4)
    done = (await stage.ended("r1")).payload
    assert done.artifact_ids == ("art_r1",)
    assert done.latents_digest == "d-r1"
    assert done.metrics.units == 9
    assert done.metrics.attempts == 1
    assert 0 < done.metrics.queue_seconds < done.metrics.total_seconds
    history = await stage.history("r1")
    assert [e.type for e in history[:2]] == ["RequestAccepted", "RequestStarted"]
    assert [e.type for e in history].count("RequestStarted") == 1
    # It marks the first unit that was admitted: both are one decision.
    decided = [e.payload for e in await stage.shard_events() if e.type == "SchedulerDecided"]
    firsts = [
        next(one for one in decided if any(isinstance(d, kind) for d in one.decisions))
        for kind in (StartRequest, DispatchBatch)
    ]
    assert firsts[0] is firsts[1]
    fractions = [e.payload.fraction for e in history if e.type == "RequestProgressed"]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0


@pytest.mark.row("EVT-18", "SCH-10")
async def test_units_of_different_requests_share_batches_and_the_log_shows_it(stage: Stage):
    scheduler = await stage.scheduler()
    worker = await stage.worker("w1", scheduler)
    worker.script.step_seconds = 0.003
    worker.script.go.clear()
    names = [f"r{n}" for n in range(8)]
    await asyncio.gather(*(stage.submit(name, steps=4 + n) for n, name in enumerate(names)))
    await until(lambda: {c.loop.request_id for _, c in worker.prepared} == set(names))
    worker.script.go.set()
    for name in names:
        assert (await stage.ended(name)).type == "RequestCompleted"
    events = await stage.shard_events()
    batches = [e.payload for e in events if e.type == "BatchExecuted"]
    shared = [
        b for b in batches if len({r.loop.request_id for r in b.results}) > 1 and b.forwards == 1
    ]
    assert shared
    assert len({b.batch_id for b in batches}) == len(batches)
    units = [r.unit_id for b in batches for r in b.results]
    assert len(set(units)) == len(units), "a unit ran twice"
    # Every decision names its input, which is in the log before it.
    seen = {e.event_id for name in names for e in await stage.history(name)}
    for event in events:
        if event.type == "SchedulerDecided" and event.payload.input_event_id:
            assert event.payload.input_event_id in seen
        seen.add(event.event_id)


@pytest.mark.row("EVT-02")
async def test_a_request_that_must_wait_says_why(stage: Stage):
    scheduler = await stage.scheduler(resident_requests_max=1)
    await stage.submit("r1")
    await stage.until_type("r1", "RequestQueued")
    queued = (await stage.history("r1"))[1].payload
    assert queued.position == 1
    assert queued.reason == "no attached worker has model moving-digits"
    worker = await stage.worker("w1", scheduler)
    worker.script.go.clear()
    await stage.until_type("r1", "RequestStarted")
    await stage.submit("r2")
    await stage.until_type("r2", "RequestQueued")
    assert "all 1 places" in (await stage.history("r2"))[1].payload.reason
    await stage.submit("r3")
    await stage.until_type("r3", "RequestQueued")
    assert (await stage.history("r3"))[1].payload.position == 2
    worker.script.go.set()
    assert (await stage.ended("r1")).type == "RequestCompleted"
    assert (await stage.ended("r2")).type == "RequestCompleted"
    assert (await stage.ended("r3")).type == "RequestCompleted"


@pytest.mark.row("REQ-09", "EVT-05")
async def test_a_running_request_is_cancelled_at_its_next_boundary(stage: Stage):
    scheduler = await stage.scheduler()
    worker = await stage.worker("w1", scheduler)
    worker.script.step_seconds = 0.01
    await stage.submit("r1", steps=40)
    await stage.submit("r2", steps=10)
    await until(lambda: any("r1/denoise" in u for _, b in worker.batches for u in b.unit_ids))
    worker.script.go.clear()
    await stage.until_decided(await stage.cancel("r1"))
    worker.script.go.set()
    cancelled = (await stage.ended("r1")).payload
    assert cancelled.boundary.startswith("denoise ")
    assert cancelled.boundary.endswith("/40")
    assert cancelled.reason == "user"
    await until(lambda: ("r1", 1) not in worker.held)
    assert [c.request_id for c in worker.released if c.request_id == "r1"] == ["r1"]
    last = max(t for t, b in worker.batches if any(u.startswith("r1/") for u in b.unit_ids))
    await stage.ended("r2")
    after = [b for t, b in worker.batches if t > last and any("r1/" in u for u in b.unit_ids)]
    assert not after


async def test_a_waiting_request_is_cancelled_at_once(stage: Stage):
    await stage.scheduler()
    await stage.submit("r1")
    await stage.cancel("r1")
    assert (await stage.ended("r1")).payload.boundary == "queued"


@pytest.mark.row("REQ-16", "EVT-06")
async def test_the_failure_of_one_request_harms_no_other(stage: Stage):
    scheduler = await stage.scheduler()
    worker = await stage.worker("w1", scheduler)
    worker.script.step_seconds = 0.003
    worker.script.fail.add("bad")
    names = ["good1", "bad", "good2"]
    await asyncio.gather(*(stage.submit(name, steps=6) for name in names))
    failed = (await stage.ended("bad")).payload
    assert (failed.error.reason, failed.error.message) == ("NAN_LATENTS", "NaN")
    for name in ("good1", "good2"):
        assert (await stage.ended(name)).type == "RequestCompleted"


@pytest.mark.row("SCH-03")
async def test_what_can_never_fit_fails_at_once_and_names_the_resource(stage: Stage):
    scheduler = await stage.scheduler()
    await stage.worker("w1", scheduler, memory=5)
    await stage.submit("r1")
    error = (await stage.ended("r1")).payload.error
    assert error.reason == "RESOURCE_EXHAUSTED"
    assert error.subject == "memory_bytes/activations"
    assert error.attributes == {"needed": "10", "limit": "5"}


async def test_a_passed_deadline_fails_the_request(stage: Stage):
    await stage.scheduler()
    await stage.submit("r1", deadline_s=0.0)
    assert (await stage.ended("r1")).payload.error.reason == "DEADLINE_EXCEEDED"


async def test_a_model_that_no_card_has_fails_typed(stage: Stage):
    await stage.scheduler()
    spec = request("r1", model="other")
    await stage.append("r1", RequestAccepted(spec=spec))
    assert (await stage.ended("r1")).payload.error.reason == "MODEL_NOT_FOUND"


@pytest.mark.row("REQ-15")
async def test_after_every_kind_of_end_nothing_is_reserved(stage: Stage):
    scheduler = await stage.scheduler()
    worker = await stage.worker("w1", scheduler)
    # A scheduler that has just begun tells of its resources once it leads.
    async with asyncio.timeout(WAIT_S):
        while not (idle := dict((await stage.status(scheduler)).reserved)):
            await asyncio.sleep(0.01)
    assert set(idle.values()) == {0.0}
    worker.script.step_seconds = 0.005
    worker.script.fail.add("failed")
    worker.script.repeat = 2
    for name in ("completed", "failed", "cancelled"):
        await stage.submit(name, steps=8)
    await until(
        lambda: any("cancelled/denoise" in u for _, b in worker.batches for u in b.unit_ids)
    )
    worker.script.go.clear()
    await stage.until_decided(await stage.cancel("cancelled"))
    async with asyncio.timeout(WAIT_S):
        while (busy := (await stage.status(scheduler)).reserved)["compute_slots"] != 1.0:
            await asyncio.sleep(0.01)
    assert busy["resident_requests"] > 0
    worker.script.go.set()
    for name in ("completed", "failed", "cancelled"):
        assert (await stage.ended(name)).type == f"Request{name.capitalize()}"
    for n in range(30):
        await stage.submit(f"more{n}", steps=1 + n % 5)
        if n % 3 == 0:
            await stage.cancel(f"more{n}")
    for n in range(30):
        await stage.ended(f"more{n}")
    status = await stage.status(scheduler)
    assert dict(status.reserved) == idle
    assert (status.live_requests, status.queued_requests) == (0, 0)
    assert status.workers[0].batches_in_flight == 0
    await until(lambda: not worker.held)
    kept = scheduler.shard.leader._requests
    await until(lambda: not (kept.specs or kept.spans.requests or kept.spans.batches))
