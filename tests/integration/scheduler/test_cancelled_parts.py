"""Cancels of one loop or one stream, from the log to the worker."""

from fastvideo.requests.events import RequestCancelRequested
from fastvideo.scheduling.work import CancelScope, CancelScopeKind
from tests.integration.scheduler.conftest import Stage, until


async def ask(stage: Stage, kind: CancelScopeKind, target: str) -> str:
    scope = CancelScope(kind=kind, target_id=target)
    return await stage.append(
        target.split("/")[0], RequestCancelRequested(scope=scope, reason="not wanted")
    )


def denoised(worker) -> int:
    return sum("/denoise/" in batch.unit_ids[0] for _, batch in worker.batches)


async def test_a_cancelled_loop_is_freed_and_the_user_reads_why(stage: Stage):
    scheduler = await stage.scheduler()
    worker = await stage.worker("w1", scheduler)
    worker.script.step_seconds = 0.01
    await stage.submit("r1", steps=40)
    await until(lambda: denoised(worker) > 3)
    worker.script.go.clear()
    await stage.until_decided(await ask(stage, CancelScopeKind.LOOP, "r1/denoise"))
    worker.script.go.set()
    ended = await stage.ended("r1")
    # Nothing that ends the program is left.
    assert ended.type == "RequestCancelled"
    assert ended.payload.reason == "not wanted"
    assert denoised(worker) < 40
    logged = [e.payload.message for e in await stage.history("r1") if e.type == "RequestLogged"]
    assert logged == ["loop denoise is cancelled: not wanted"]
    await until(lambda: not worker.held.get(("r1", 1)))
    assert ("denoise",) in [command.node_ids for command in worker.released]
    status = await stage.status(scheduler)
    assert not any(status.reserved.values())


async def test_a_cancelled_stream_reaches_the_worker_and_the_request_completes(stage: Stage):
    scheduler = await stage.scheduler()
    worker = await stage.worker("w1", scheduler)
    worker.script.step_seconds = 0.005
    await stage.submit("r1", steps=40)
    await until(lambda: denoised(worker) > 3)
    worker.script.go.clear()
    await ask(stage, CancelScopeKind.STREAM, "r1/preview")
    await until(lambda: worker.muted)
    worker.script.go.set()
    assert (await stage.ended("r1")).type == "RequestCompleted"
    assert worker.muted == [("r1", 1, "preview")]


async def test_a_new_leader_knows_of_cancelled_parts(stage: Stage):
    await stage.submit("r1", steps=4)
    await ask(stage, CancelScopeKind.LOOP, "r1/decode")
    scheduler = await stage.scheduler()
    worker = await stage.worker("w1", scheduler)
    assert (await stage.ended("r1")).type == "RequestCancelled"
    assert not any("/decode/" in batch.unit_ids[0] for _, batch in worker.batches)


async def test_the_status_says_how_far_predictions_are_off(stage: Stage):
    scheduler = await stage.scheduler()
    worker = await stage.worker("w1", scheduler)
    worker.script.step_seconds = 0.005
    await stage.submit("r1", steps=60)
    await stage.ended("r1")
    status = await stage.status(scheduler)
    assert status.predictions > 60
    assert 0 < status.prediction_error < 0.5
