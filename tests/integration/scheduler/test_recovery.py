"""What a new leader begins with: the last saved term and what the stream says since."""

import asyncio
import time
from dataclasses import replace

import pytest

from fastvideo.deployment.catalog import Catalog
from fastvideo.errors import CorruptLog
from fastvideo.events.records import AppendCommand, NewEvent, Snapshot, StreamAppend
from fastvideo.events.restoring import begin_log_epoch
from fastvideo.replay.saved_term import SavedTerm
from fastvideo.scheduling import snapshot
from fastvideo.scheduling.core import SchedulerCore
from fastvideo.scheduling.deployed import DeployedModels
from fastvideo.scheduling.events import LeaderElected, SchedulerDecided, WorkerLost
from fastvideo.scheduling.evolve import EVOLVER_VERSION
from fastvideo_scheduler import unsaved_term
from fastvideo_scheduler.app import RunningScheduler
from fastvideo_scheduler.leader import Leader
from fastvideo_scheduler.recovery import Recovered, RecoverySource, recover
from tests.integration.scheduler.conftest import WAIT_S, Stage, until
from tests.integration.scheduler.scripted_worker import MODEL, ScriptedWorker

UNITS = 1 + 30 + 3 + 1


async def saved(stage: Stage, at_least: int = 1) -> tuple[Snapshot, ...]:
    """Wait for saved terms of the shard."""
    deadline = time.monotonic() + WAIT_S
    while len(found := await stage.store.load_snapshots("scheduler-0")) < at_least:
        assert time.monotonic() < deadline, "nothing was saved"
        await asyncio.sleep(0.02)
    return found


async def elections(stage: Stage) -> list[LeaderElected]:
    return [e.payload for e in await stage.shard_events() if isinstance(e.payload, LeaderElected)]


async def stop(scheduler: RunningScheduler) -> None:
    """End it without giving the lease back in order, as far as one process allows."""
    scheduler.task.cancel()
    await asyncio.gather(scheduler.task, return_exceptions=True)


async def moved_over(
    stage: Stage, second: str, **changes: object
) -> tuple[ScriptedWorker, RunningScheduler]:
    """A request in the middle of its denoising, its leader gone, another in its place."""
    first = await stage.scheduler("scheduler-1")
    port_holder = await stage.scheduler(second, **changes)
    worker = ScriptedWorker("w1", [first.address, port_holder.address])
    await stage.stack.enter_async_context(worker)
    worker.script.step_seconds = 0.02
    await until(lambda: worker.epochs)
    await stage.submit("r1", steps=30)
    await until(lambda: len(worker.batches) > 5)
    await stop(first)
    return worker, port_holder


async def test_a_successor_folds_the_stream_and_goes_on(stage: Stage):
    worker, _ = await moved_over(stage, "scheduler-2")
    done = await stage.ended("r1")
    assert (done.payload.metrics.attempts, done.payload.metrics.units) == (1, UNITS)
    assert [e.anew for e in await elections(stage)] == [True, False]
    assert len(worker.resumed) == 1


async def nothing(self: object, name: str) -> tuple[Snapshot, ...]:
    """No saved terms."""
    return ()


STORED = "fastvideo.events.postgres.PostgresEventStore.load_snapshots"


async def test_without_a_saved_term_the_stream_is_folded_from_its_beginning(
    stage: Stage, monkeypatch
):
    monkeypatch.setattr(STORED, nothing)
    worker, _ = await moved_over(stage, "scheduler-2")
    done = await stage.ended("r1")
    assert (done.payload.metrics.attempts, done.payload.metrics.units) == (1, UNITS)
    assert [e.anew for e in await elections(stage)] == [True, False]
    assert len(worker.resumed) == 1


async def test_requests_begin_again_when_the_beginning_is_too_far_back(stage: Stage, monkeypatch):
    monkeypatch.setattr(STORED, nothing)
    monkeypatch.setattr(unsaved_term, "STREAM_EVENTS_MAX", 0)
    await moved_over(stage, "scheduler-2")
    done = await stage.ended("r1")
    assert done.type == "RequestCompleted"
    assert done.payload.metrics.attempts == 2
    assert [e.anew for e in await elections(stage)] == [True, True]


async def test_a_second_beginning_is_folded_as_far_as_requests_had_come(stage: Stage, monkeypatch):
    monkeypatch.setattr(STORED, nothing)
    monkeypatch.setattr(unsaved_term, "STREAM_EVENTS_MAX", 0)
    worker, second = await moved_over(stage, "scheduler-2")
    await until(lambda: second.shard.leader is not None)
    worker.script.step_seconds = 0.05
    batches = len(worker.batches)
    await until(lambda: len(worker.batches) > batches + 5)
    leader = second.shard.leader
    await settled(worker, leader)
    monkeypatch.setattr(unsaved_term, "STREAM_EVENTS_MAX", 100_000)
    found = await recovered(stage, leader)
    assert not found.anew
    assert found.core.digest() == leader.core.digest()
    worker.script.go.set()
    assert (await stage.ended("r1")).payload.metrics.attempts == 2


async def test_a_saved_term_that_cannot_be_read_is_passed_over(stage: Stage):
    first = await stage.scheduler("scheduler-1")
    worker = await stage.worker("w1", first)
    await stage.submit("r1", steps=3)
    await stage.ended("r1")
    newest = (await saved(stage))[0]
    await stop(first)
    await stage.store.save_snapshot("scheduler-0", Snapshot(newest.version + 1, b"nonsense"))
    second = await stage.scheduler("scheduler-2")
    worker._schedulers.append(second.address)
    await stage.submit("r2", steps=3)
    assert (await stage.ended("r2")).type == "RequestCompleted"
    assert [e.anew for e in await elections(stage)] == [True, False]


async def test_a_saved_term_of_before_a_term_that_began_anew_is_not_folded(
    stage: Stage, monkeypatch
):
    first = await stage.scheduler("scheduler-1")
    await stage.worker("w1", first)
    await stage.submit("r1", steps=3)
    await stage.ended("r1")
    old = (await saved(stage))[-1]
    await stop(first)

    async def only_old(self, name: str) -> tuple[Snapshot, ...]:
        return (old,)

    monkeypatch.setattr(STORED, nothing)
    monkeypatch.setattr(unsaved_term, "STREAM_EVENTS_MAX", 0)
    second = await stage.scheduler("scheduler-2")
    await until(lambda: second.shard.leader is not None)
    deadline = time.monotonic() + WAIT_S
    while len(await elections(stage)) < 2:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    await stop(second)
    monkeypatch.setattr(STORED, only_old)
    await stage.scheduler("scheduler-3")
    await stage.submit("r2", steps=3)
    deadline = time.monotonic() + WAIT_S
    while len(found := await elections(stage)) < 3:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    assert [e.anew for e in found] == [True, True, True]


async def test_a_request_in_flight_at_the_backup_begins_again_after_the_restore(stage: Stage):
    """Its worker may be ahead of the restored log, so nothing of the term before is folded."""
    first = await stage.scheduler("scheduler-1")
    worker = await stage.worker("w1", first)
    worker.script.step_seconds = 0.02
    await stage.submit("r1", steps=30)
    await until(lambda: len(worker.batches) > 5)
    await saved(stage)
    worker.script.go.clear()
    await stop(first)
    assert await begin_log_epoch(stage.dsn) == 2
    second = await stage.scheduler("scheduler-2")
    worker._schedulers.append(second.address)
    worker.script.go.set()
    done = await stage.ended("r1")
    assert (done.type, done.payload.metrics.attempts) == ("RequestCompleted", 2)
    assert [e.anew for e in await elections(stage)] == [True, True]


async def test_what_was_asked_while_nobody_led_is_taken_in_once(stage: Stage):
    first = await stage.scheduler("scheduler-1")
    worker = await stage.worker("w1", first)
    worker.script.go.clear()
    await stage.submit("r1", steps=30)
    await stage.submit("r2", steps=3)
    await until(lambda: worker.batches)
    await saved(stage)
    await stop(first)
    await stage.submit("r3", steps=3)
    await stage.cancel("r2")
    second = await stage.scheduler("scheduler-2")
    worker._schedulers.append(second.address)
    worker.script.go.set()
    assert (await stage.ended("r1")).payload.metrics.attempts == 1
    assert (await stage.ended("r2")).type == "RequestCancelled"
    assert (await stage.ended("r3")).type == "RequestCompleted"


async def test_a_worker_that_does_not_come_back_to_the_successor_is_lost(stage: Stage):
    first = await stage.scheduler("scheduler-1")
    second = await stage.scheduler("scheduler-2")
    gone = ScriptedWorker("w1", [first.address])
    await stage.stack.enter_async_context(gone)
    gone.script.go.clear()
    await until(lambda: gone.epochs)
    await stage.submit("r1", steps=3)
    await until(lambda: gone.batches)
    await saved(stage)
    await gone.die()
    await stop(first)
    await stage.worker("w2", second)
    done = await stage.ended("r1")
    assert (done.type, done.payload.metrics.attempts) == ("RequestCompleted", 2)
    lost = [e.payload for e in await stage.shard_events() if isinstance(e.payload, WorkerLost)]
    assert [event.worker_id for event in lost] == ["w1"]


async def settled(worker: ScriptedWorker, leader: Leader | None) -> None:
    """Hold the worker, and wait until all that it said is in the log and nothing more comes."""
    assert leader is not None
    worker.script.go.clear()
    version = -1
    while version != leader._journal.version:
        version = leader._journal.version
        await asyncio.sleep(0.2)
        await until(
            lambda: (
                not worker.stepping and leader.core.reported(worker.worker_id) == len(worker.outbox)
            )
        )
    await leader._journal.until_committed(version)


async def recovered(stage: Stage, leader: Leader | None) -> Recovered:
    """What a successor of the leader would begin with."""
    assert leader is not None
    return await recover(
        RecoverySource(
            store=stage.store,
            stream="scheduler-0",
            models=DeployedModels(Catalog.load(models=(MODEL,))),
            policy=leader._parts.policy,
        )
    )


async def busy_leader(stage: Stage) -> tuple[ScriptedWorker, Leader]:
    """A leader in the middle of four requests, at rest."""
    scheduler = await stage.scheduler()
    worker = await stage.worker("w1", scheduler)
    worker.script.step_seconds = 0.01
    for n in range(4):
        await stage.submit(f"r{n}", steps=20)
    await until(lambda: len(worker.batches) > 30)
    await saved(stage)
    leader = scheduler.shard.leader
    await settled(worker, leader)
    assert leader is not None
    return worker, leader


async def test_a_saved_core_and_the_stream_give_the_core_that_wrote_them(stage: Stage, monkeypatch):
    """The digest of the leader's core is that of its saved term with the stream since folded in,
    and that of the whole stream folded."""
    worker, leader = await busy_leader(stage)
    events = await stage.shard_events()
    assert any(isinstance(e.payload, SchedulerDecided) for e in events)
    found = await recovered(stage, leader)
    assert not found.anew
    assert found.version == len(events)
    assert found.core.digest() == leader.core.digest()
    assert SavedTerm.decode((await saved(stage))[0].body).cursors
    monkeypatch.setattr(STORED, nothing)
    folded = await recovered(stage, leader)
    assert (folded.anew, folded.version, dict(folded.cursors)) == (
        False,
        found.version,
        dict(found.cursors),
    )
    assert folded.core.digest() == leader.core.digest()
    assert set(folded.acceptances) == set(found.acceptances)
    worker.script.go.set()
    for n in range(4):
        await stage.ended(f"r{n}")


@pytest.mark.parametrize("damage", ["another evolver", "cut", "flipped"])
async def test_saved_terms_that_this_program_must_not_trust_are_ignored(
    stage: Stage, monkeypatch, damage: str
):
    worker, leader = await busy_leader(stage)
    terms = await stage.store.load_snapshots("scheduler-0")
    # What would be believed if it were: a core that knows of nothing.
    empty = SchedulerCore(leader._parts.models, policy=leader._parts.policy, epoch=1).snapshot()
    trusted = SavedTerm.decode(terms[0].body)
    with monkeypatch.context() as patched:
        if damage == "another evolver":
            patched.setattr(snapshot, "EVOLVER_VERSION", EVOLVER_VERSION - 1)
        body = replace(trusted, core=empty).encode()
    if damage == "cut":
        body = body[: len(body) // 2]
    elif damage == "flipped":
        middle = len(body) // 2
        body = body[:middle] + bytes([body[middle] ^ 0xFF]) + body[middle + 1 :]
    planted = (Snapshot(leader._journal.version, body),)

    async def only_planted(self: object, name: str) -> tuple[Snapshot, ...]:
        return planted

    monkeypatch.setattr(STORED, only_planted)
    found = await recovered(stage, leader)
    assert not found.anew
    assert found.core.digest() == leader.core.digest()
    worker.script.go.set()
    for n in range(4):
        await stage.ended(f"r{n}")


@pytest.mark.parametrize("stream", ["scheduler-0", "request-r1"])
async def test_a_leader_halts_before_what_a_newer_program_wrote(stage: Stage, stream: str):
    first = await stage.scheduler("scheduler-1")
    worker = await stage.worker("w1", first)
    worker.script.step_seconds = 0.05
    await stage.submit("r1", steps=200)
    await until(lambda: len(worker.batches) > 3)
    await saved(stage)
    await stop(first)
    unknown = NewEvent("evt_of_tomorrow", "SchedulerRethought", 1, b"")
    await stage.store.append(AppendCommand((StreamAppend(stream, (unknown,)),)))
    second = await stage.scheduler("scheduler-2")
    with pytest.raises(BaseExceptionGroup) as caught:
        await asyncio.wait_for(second.task, WAIT_S)
    (error,) = flattened(caught.value)
    assert isinstance(error, CorruptLog)
    assert (error.reason, error.subject) == ("UNKNOWN_SCHEMA", "SchedulerRethought")
    # It decided nothing over it.
    events = await stage.store.read_stream("scheduler-0", limit=10_000)
    assert not any(event.fence_epoch > 1 for event in events)


def flattened(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in flattened(inner)]
    return [error]
