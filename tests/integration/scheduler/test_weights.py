"""What changes of models' weights is in the models' streams, once, whoever leads."""

import asyncio
from dataclasses import replace

import pytest

from fastvideo.events.catalog import event_of
from fastvideo.events.types import Event
from fastvideo.scheduling.events import WorkerAttached
from fastvideo.scheduling.known_weights import model_stream
from fastvideo.scheduling.traces import WeightsChanged
from fastvideo.scheduling.work import ModelState
from fastvideo_scheduler.app import RunningScheduler
from tests.integration.scheduler.conftest import WAIT_S, Stage, until
from tests.integration.scheduler.scripted_worker import MODEL, ScriptedWorker


class Reweighted(ScriptedWorker):
    """A scripted worker whose instances a test chooses."""

    instances: tuple[ModelState, ...] = ()

    def _attached(self) -> WorkerAttached:
        return replace(super()._attached(), instances=self.instances)


def state(version: str, **adapters: str) -> ModelState:
    return ModelState(
        model_instance_id=f"mi_{version}",
        model_id=MODEL,
        card_digest="card",
        weights_version=version,
        adapter_versions=adapters,
    )


async def changes(stage: Stage) -> list[Event]:
    return [event_of(e) for e in await stage.store.read_stream(model_stream(MODEL))]


async def until_changes(stage: Stage, count: int) -> list[Event]:
    async with asyncio.timeout(WAIT_S):
        while len(found := await changes(stage)) < count:
            await asyncio.sleep(0.02)
    return found


async def attach_anew(worker: Reweighted, *instances: ModelState) -> None:
    worker.instances = instances
    worker.script.keeps = False
    before = len(worker.epochs)
    worker.end_streams()
    await until(lambda: len(worker.epochs) > before)


async def worker_of(stage: Stage, *schedulers: RunningScheduler) -> Reweighted:
    worker = Reweighted("w1", [scheduler.address for scheduler in schedulers])
    worker.instances = (state("1"),)
    await stage.stack.enter_async_context(worker)
    await until(lambda: worker.epochs)
    return worker


@pytest.mark.row("OBS-06")
async def test_new_other_and_gone_weights_are_told_once(stage: Stage):
    scheduler = await stage.scheduler()
    worker = await worker_of(stage, scheduler)
    await until_changes(stage, 1)
    await attach_anew(worker, state("1"))
    await attach_anew(worker, state("2"))
    await until_changes(stage, 2)
    await attach_anew(worker, state("2", style="a"))
    await until_changes(stage, 3)
    await attach_anew(worker)
    told = await until_changes(stage, 4)
    payloads = [event.payload for event in told]
    assert all(isinstance(payload, WeightsChanged) for payload in payloads)
    assert [(p.from_version, p.to_version, dict(p.adapter_versions)) for p in payloads] == [
        ("", "1", {}),
        ("1", "2", {}),
        ("2", "2", {"style": "a"}),
        ("2", "", {"style": "a"}),
    ]
    attached = {e.event_id for e in await stage.shard_events() if e.type == "WorkerAttached"}
    for event, payload in zip(told, payloads, strict=True):
        assert event.name == "weights.changed"
        about = event.metadata
        assert (about.model_id, about.worker_id, about.role_id) == (MODEL, "w1", "worker")
        assert about.model_instance_id == payload.model_instance_id
        assert about.versions["weights"] == payload.to_version or payload.from_version
        assert about.causation_id in attached


async def test_a_successor_knows_what_the_log_knows(stage: Stage):
    first = await stage.scheduler("scheduler-1")
    second = await stage.scheduler("scheduler-2")
    worker = await worker_of(stage, first, second)
    await until_changes(stage, 1)
    worker.script.keeps = False
    before = len(worker.epochs)
    first.task.cancel()
    await asyncio.gather(first.task, return_exceptions=True)
    await until(lambda: len(worker.epochs) > before)
    await attach_anew(worker, state("3"))
    told = await until_changes(stage, 2)
    assert [e.payload.from_version for e in told] == ["", "1"]
