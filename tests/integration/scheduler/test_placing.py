"""Which of several workers a request goes to, as the workers themselves see it."""

import pytest

from fastvideo.scheduling.policy import SchedulingPolicy, SloClass
from fastvideo_scheduler.app import RunningScheduler
from tests.integration.scheduler.conftest import Stage, until
from tests.integration.scheduler.scripted_worker import ScriptedWorker


async def working(stage: Stage, scheduler: RunningScheduler, name: str, **script) -> ScriptedWorker:
    """An attached worker whose script is this from the start."""
    worker = ScriptedWorker(name, [scheduler.address])
    for field, value in script.items():
        setattr(worker.script, field, value)
    return await stage.attached(worker, scheduler)


def places(*workers: ScriptedWorker) -> dict[str, str]:
    """Request to the model instance that its first loop was made on."""
    return {
        command.loop.request_id: command.model_instance_id
        for worker in workers
        for _, command in worker.prepared
        if command.loop.node_id == "encode"
    }


@pytest.mark.row("SCH-14")
async def test_a_request_goes_where_its_text_is_cached(stage: Stage):
    scheduler = await stage.scheduler()
    first = await working(stage, scheduler, "w1", caches=True)
    second = await working(stage, scheduler, "w2", caches=True)
    # One that does not end takes the worker that is first in everything else.
    first.script.go.clear()
    await stage.submit("holds", prompt="a blue five")
    await until(lambda: first.batches)
    await stage.submit("teaches", prompt="a red three")
    await stage.ended("teaches")
    first.script.go.set()
    await stage.ended("holds")
    for request_id, prompt in (("same", "a red three"), ("other", "a green nine")):
        await stage.submit(request_id, prompt=prompt)
        await stage.ended(request_id)
    found = {name: place.partition("/")[0] for name, place in places(first, second).items()}
    assert found == {"holds": "w1", "teaches": "w2", "same": "w2", "other": "w1"}


@pytest.mark.row("SCH-18", "DEP-10")
async def test_class_capacity_and_work_choose_pool_worker_mesh_and_instance(stage: Stage):
    classes = {
        "vip": SloClass(priority_min=5, pool="fast", mesh="tp2"),
        "plain": SloClass(pool="plain"),
    }
    scheduler = await stage.scheduler(
        policy=SchedulingPolicy(slo_classes=classes), resident_requests_max=2
    )
    plain = [await working(stage, scheduler, f"p{n}", role="plain") for n in range(2)]
    fast = await working(stage, scheduler, "f", role="fast", meshes=("tp1", "tp2"))
    for worker in (*plain, fast):
        worker.script.go.clear()
    for n in range(5):
        await stage.submit(f"r{n}")
    await until(lambda: len(places(*plain)) == 4)
    await stage.until_type("r4", "RequestQueued")
    # Two places each, taken in turn; the fifth waits although the other pool is idle.
    assert [len(places(worker)) for worker in plain] == [2, 2]
    [queued] = [e.payload for e in await stage.history("r4") if e.type == "RequestQueued"]
    assert queued.reason == "all 4 places on workers with model moving-digits are taken"
    await stage.submit("v", priority=5)
    await until(lambda: places(fast) == {"v": "f/moving-digitstp2"})
    for worker in (*plain, fast):
        worker.script.go.set()
    for request_id in ("r0", "r1", "r2", "r3", "r4", "v"):
        assert (await stage.ended(request_id)).type == "RequestCompleted"
